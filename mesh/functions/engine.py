"""Functions of the reference engine that depend on a value's class or on the event.

``cast`` gives a value of the named type: numbers are converted by Java's casts, 'string' accepts
any value, and a failed conversion fails the row.  (The engine's own ``cast`` returns any value
unchanged, and fails where the value is used.)  A null stays null, but is false as a bool.

Source: observed on Siddhi 5.1.7; tests/cases/functions/engine.jsonl.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mesh.functions import kernels
from mesh.functions.kernels import convert
from mesh.functions.objects import ValueSet, java_class
from mesh.functions.vectors import (
    Function,
    Rows,
    Vector,
    each_row,
    fail,
    from_values,
    object_values,
)
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from collections.abc import Sequence

_WORDS = {
    "boolean": AttributeType.BOOL,
    "double": AttributeType.DOUBLE,
    "float": AttributeType.FLOAT,
    "integer": AttributeType.INT,
    "long": AttributeType.LONG,
    "string": AttributeType.STRING,
}
_CLASSES = {
    AttributeType.BOOL: "java.lang.Boolean",
    AttributeType.DOUBLE: "java.lang.Double",
    AttributeType.FLOAT: "java.lang.Float",
    AttributeType.INT: "java.lang.Integer",
    AttributeType.LONG: "java.lang.Long",
    AttributeType.STRING: "java.lang.String",
}


def _cast(arguments: Sequence[Vector], type: AttributeType, rows: Rows) -> Vector:
    value = arguments[0]
    if value.type is AttributeType.OBJECT:
        return _cast_objects(value, type, rows)
    if type is AttributeType.STRING:
        return convert(value, type)
    if value.type is type:
        return value if type is not AttributeType.BOOL else _no_null(value)
    if value.type.is_numeric and type.is_numeric:
        return kernels.cast(value, type)
    fail(rows, ~value.null_mask, _not_that(_CLASSES[value.type], type))
    return from_values([None] * len(value), type)


def _cast_objects(value: Vector, type: AttributeType, rows: Rows) -> Vector:
    if type is AttributeType.STRING:
        return convert(value, type)
    values: list[Any] = []
    failed: dict[str, list[int]] = {}
    for row, one in enumerate(value.values):
        is_number = isinstance(one, int | float | np.generic) and not isinstance(one, bool)
        if one is None or (type is AttributeType.BOOL and isinstance(one, bool)):
            values.append(one)
        elif type.is_numeric and is_number:
            values.append(cast_number(one, type))
        else:
            values.append(None)
            failed.setdefault(java_class(one), []).append(row)
    for name, numbers in failed.items():
        where = np.zeros(len(value), dtype=np.bool_)
        where[numbers] = True
        fail(rows, where, _not_that(name, type))
    result = from_values(values, type)
    return result if type is not AttributeType.BOOL else _no_null(result)


def cast_number(value: Any, type: AttributeType) -> Any:
    """Cast one number of an object to ``type``, by Java's rules."""
    source = AttributeType.DOUBLE if isinstance(value, float | np.floating) else AttributeType.LONG
    if source is AttributeType.LONG and type in (AttributeType.INT, AttributeType.LONG):
        bits = 32 if type is AttributeType.INT else 64
        return (int(value) + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
    plain = float(value) if source is AttributeType.DOUBLE else int(value)
    if source is AttributeType.LONG:
        return float(plain)
    vector = Vector(source, np.array([plain]))
    return kernels.cast(vector, type).values[0].item()


def _no_null(value: Vector) -> Vector:
    return Vector(AttributeType.BOOL, kernels.truth(value))


def _not_that(name: str, type: AttributeType) -> str:
    return f"{name} can't be cast to {type}"


def _instance_of(type: AttributeType) -> Function:
    def apply(arguments: Sequence[Vector], _: AttributeType, rows: Rows) -> Vector:
        (value,) = arguments
        if value.type is AttributeType.OBJECT:
            class_name = _CLASSES[type]
            matches = [one is not None and java_class(one) == class_name for one in value.values]
            return from_values(matches, AttributeType.BOOL)
        is_it = ~value.null_mask if value.type is type else np.zeros(len(value), dtype=np.bool_)
        return Vector(AttributeType.BOOL, is_it)

    return apply


def _create_set(arguments: Sequence[Vector], type: AttributeType, rows: Rows) -> Vector:
    # A set of null is a set with one member.
    return from_values([ValueSet((one,)) for one in object_values(arguments[0])], type)


def _size_of_set(value: object) -> int:
    if value is None:
        return 0
    if not isinstance(value, ValueSet):
        raise ValueError(f"sizeOfSet takes a set, not {java_class(value)}")
    return len(value)


def _now(arguments: Sequence[Vector], type: AttributeType, rows: Rows) -> Vector:
    # The event's clock, not the machine's, so that a replay gives the same.
    return Vector(AttributeType.LONG, rows.clock_ms)


def _event_timestamp(arguments: Sequence[Vector], type: AttributeType, rows: Rows) -> Vector:
    return Vector(AttributeType.LONG, rows.time_ms)


FUNCTIONS: dict[str, Function] = {
    "cast": _cast,
    "createset": _create_set,
    "currenttimemillis": _now,
    "eventtimestamp": _event_timestamp,
    "sizeofset": each_row(_size_of_set, takes_null=True),
    **{f"instanceof{word}": _instance_of(type) for word, type in _WORDS.items()},
}
