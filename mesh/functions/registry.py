"""All scalar functions by full lower-case name, except ``UUID``, which also needs its call site.

``coalesce`` .. ``minimum`` have the reference engine's semantics (observed on Siddhi 5.1.7), the
start values of ``maximum`` and ``minimum`` included.  ``str:`` and ``math:`` follow the
documentation of the Siddhi extensions of these names, with one difference: where those raise on a
null, these give null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mesh.functions import (
    containers,
    documents,
    engine,
    geometry,
    kernels,
    mathematics,
    strings,
    times,
)
from mesh.functions.kernels import convert
from mesh.functions.vectors import Vector, dtype_of
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from mesh.functions.vectors import Function, PureFunction, Rows


_KINDS_READ = ("double", "float", "int", "long")


def choose(condition: npt.NDArray[Any], yes: Vector, no: Vector) -> Vector:
    """``yes`` where ``condition`` (bool, length n or 1), else ``no``; both of one type."""
    length = next((n for n in (len(condition), len(yes), len(no)) if n != 1), 1)
    if yes.type is AttributeType.STRING:
        mask = pa.array(np.broadcast_to(condition, length))
        a, b = yes.spread(length).values, no.spread(length).values
        return Vector(yes.type, pc.if_else(mask, a, b))
    values = np.where(condition, yes.values, no.values)
    if yes.nulls is None and no.nulls is None:
        return Vector(yes.type, values)
    return Vector(yes.type, values, np.where(condition, yes.null_mask, no.null_mask))


def _as(vector: Vector, type: AttributeType) -> Vector:
    """Convert to ``type``: a bare null gets any type; numbers are widened."""
    if vector.type is type:
        return vector
    if vector.type is AttributeType.BOOL:
        if type is AttributeType.STRING:
            return Vector(type, pa.nulls(len(vector), pa.string()))
        return Vector(type, np.zeros(len(vector), dtype=dtype_of(type)), vector.nulls)
    return kernels.cast(vector, type)


def _coalesce(arguments: Sequence[Vector], type: AttributeType) -> Vector:
    result = _as(arguments[-1], type)
    for argument in reversed(arguments[:-1]):
        value = _as(argument, type)
        result = choose(~value.null_mask, value, result)
    return result


def _if_then_else(arguments: Sequence[Vector], type: AttributeType) -> Vector:
    condition, yes, no = arguments
    return choose(kernels.truth(condition), _as(yes, type), _as(no, type))


def _extreme(arguments: Sequence[Vector], type: AttributeType, larger: bool) -> Vector:
    """The largest or smallest argument; nulls and NaN are ignored, of equals the first wins.

    The engine starts ``maximum`` from Java's Double.MIN_VALUE, the least *positive* double, cast to
    the type.  So the result is never below that, and is that (0 except for doubles) if all are
    null.  A single argument is the result unchanged.
    """
    if len(arguments) == 1:
        return arguments[0]
    start = np.array([5e-324 if larger else np.finfo(np.float64).max])
    # For longs it returns doubles, which have fewer digits.
    held = AttributeType.DOUBLE if type is AttributeType.LONG else type
    result: Any = kernels.cast(Vector(AttributeType.DOUBLE, start), held).values
    for argument in arguments:
        value = kernels.cast(argument, held)
        better = value.values > result if larger else value.values < result
        if value.nulls is not None:
            better = better & ~value.nulls
        result = np.where(better, value.values, result)
    return kernels.cast(Vector(held, result), type)


def _maximum(arguments: Sequence[Vector], type: AttributeType) -> Vector:
    return _extreme(arguments, type, larger=True)


def _minimum(arguments: Sequence[Vector], type: AttributeType) -> Vector:
    return _extreme(arguments, type, larger=False)


def _convert(arguments: Sequence[Vector], type: AttributeType) -> Vector:
    # The second argument names the type, which the binder has read.
    return convert(arguments[0], type)


def _length(arguments: Sequence[Vector], type: AttributeType) -> Vector:
    # Java counts UTF-16 units: a character beyond the basic plane is two.
    (text,) = arguments
    units = pc.utf8_length(text.values)
    wide = pc.count_substring_regex(text.values, r"[\x{10000}-\x{10FFFF}]")
    total = pc.add(units, wide)
    values = pc.fill_null(total, 0).to_numpy(zero_copy_only=False)
    nulls = text.null_mask
    return Vector(AttributeType.INT, values.astype(np.int32), nulls if nulls.any() else None)


def _upper(arguments: Sequence[Vector], type: AttributeType) -> Vector:
    return Vector(AttributeType.STRING, pc.utf8_upper(arguments[0].values))


def _lower(arguments: Sequence[Vector], type: AttributeType) -> Vector:
    return Vector(AttributeType.STRING, pc.utf8_lower(arguments[0].values))


SCALARS: dict[str, PureFunction] = {
    "coalesce": _coalesce,
    "default": _coalesce,
    "ifthenelse": _if_then_else,
    "maximum": _maximum,
    "minimum": _minimum,
    "convert": _convert,
    "str:length": _length,
    "str:upper": _upper,
    "str:lower": _lower,
    "str:coalesce": _coalesce,
}


def _asking_nothing(function: PureFunction) -> Function:
    def apply(arguments: Sequence[Vector], type: AttributeType, rows: Rows) -> Vector:
        return function(arguments, type)

    return apply


FUNCTIONS: dict[str, Function] = {
    **{name: _asking_nothing(function) for name, function in SCALARS.items()},
    **engine.FUNCTIONS,
    **strings.FUNCTIONS,
    **mathematics.FUNCTIONS,
    **times.FUNCTIONS,
    **documents.FUNCTIONS,
    **containers.FUNCTIONS,
    **geometry.FUNCTIONS,
    **mathematics.UNIT_FUNCTIONS,
}

#: Mathematical functions over texts, which may be no numbers.
_READING = frozenset({"bin", "conv", "hex", "oct"} | {f"parse{kind}" for kind in _KINDS_READ})
#: Functions that give a value or null for all arguments: no row fails.
SURE_FUNCTIONS = frozenset(
    {*SCALARS, *mathematics.UNIT_FUNCTIONS, "currenttimemillis", "eventtimestamp", "uuid"}
    | {name for name in engine.FUNCTIONS if name.startswith("instanceof")}
    | {n for n in mathematics.FUNCTIONS if n.removeprefix("math:") not in _READING}
)
