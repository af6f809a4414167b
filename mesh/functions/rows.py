"""What a function may ask of the rows that it is evaluated for, besides its arguments.

A row on which a function fails has no value, and the others have: the function notes why, goes on,
and whoever evaluates the expression decides what becomes of the row (``@OnError``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from mesh.functions.objects import object_array
from mesh.functions.vectors import Indices, Mask, Vector, common_length, dtype_of
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from collections.abc import Iterable


class Rows(Protocol):
    """n events; ``failures`` says of each row that failed, by its number, why."""

    failures: dict[int, str]

    @property
    def length(self) -> int:
        """How many there are, n."""
        ...

    @property
    def time_ms(self) -> Indices:
        """int64[n], the events' own times."""
        ...

    @property
    def clock_ms(self) -> Indices:
        """int64[n], the times it was when the events came."""
        ...

    @property
    def numbers(self) -> Indices:
        """int64[n], a number for each event that no other event and no other try has."""
        ...


#: A function as it is computed: arguments of length n or 1, the result's type, the rows.
Function = Callable[[Sequence[Vector], AttributeType, Rows], Vector]
#: One that can't fail and depends on its arguments alone.
PureFunction = Callable[[Sequence[Vector], AttributeType], Vector]


def fail(rows: Rows, where: Mask, message: str) -> None:
    """Note that the rows fail where ``where`` (of length n, or 1 for all) holds."""
    found = np.broadcast_to(where, rows.length) if len(where) == 1 else where
    for row in np.flatnonzero(found).tolist():
        rows.failures.setdefault(row, message)


def python_values(vector: Vector) -> list[Any]:
    """The values as Python has them, None for null; an int's as ``int``, a float's as ``float``."""
    if vector.type is AttributeType.STRING:
        return list(vector.values.to_pylist())
    if vector.type is AttributeType.OBJECT:
        return list(vector.values)
    found: list[Any] = vector.values.tolist()
    if vector.nulls is None:
        return found
    return [None if null else v for v, null in zip(found, vector.nulls.tolist(), strict=True)]


def object_values(vector: Vector) -> list[Any]:
    """The values as objects: an int's as ``np.int32``, a float's as ``np.float32``."""
    if vector.type not in (AttributeType.INT, AttributeType.FLOAT):
        return python_values(vector)
    kind = np.int32 if vector.type is AttributeType.INT else np.float32
    nulls = vector.null_mask
    return [None if null else kind(v) for v, null in zip(vector.values, nulls, strict=True)]


def from_values(values: Iterable[Any], type: AttributeType) -> Vector:
    """Python values as a vector; numbers wrap and are rounded to what ``type`` holds."""
    found = list(values)
    if type is AttributeType.STRING:
        return Vector(type, pa.array(found, pa.string()))
    if type is AttributeType.OBJECT:
        return Vector(type, object_array(found))
    nulls = np.fromiter((v is None for v in found), dtype=np.bool_, count=len(found))
    filled = [0 if v is None else v for v in found]
    with np.errstate(over="ignore"):
        array = np.array(filled, dtype=dtype_of(type)) if filled else np.empty(0, dtype_of(type))
    return Vector(type, array, nulls if nulls.any() else None)


def each_row(
    function: Callable[..., Any],
    *,
    takes_null: bool = False,
    read: Callable[[Vector], list[Any]] = object_values,
) -> Function:
    """A function over vectors that calls ``function`` for each row, once where all is constant.

    A null argument gives null unless ``takes_null``.  What ``function`` raises fails the row.
    """

    def apply(arguments: Sequence[Vector], type: AttributeType, rows: Rows) -> Vector:
        length = common_length(arguments) if arguments else 1
        changing = [a for a in arguments if len(a) == length] if length > 1 else []
        if len(changing) == 1 and changing[0].type is AttributeType.STRING:
            return _each_distinct(apply, arguments, type, rows)
        columns = [read(a) if len(a) == length else read(a) * length for a in arguments]
        results: list[Any] = []
        given = zip(*columns, strict=True) if columns else [()]
        for row, values in enumerate(given):
            if not takes_null and any(value is None for value in values):
                results.append(None)
                continue
            try:
                results.append(function(*values))
            except Exception as error:
                results.append(None)
                where = np.zeros(length, dtype=np.bool_)
                where[row] = True
                fail(rows, where, reason(error))
        return from_values(results, type)

    return apply


class _Distinct:
    """Rows of distinct values, which stand for those in which they are."""

    def __init__(self, length: int) -> None:
        self.length, self.failures = length, dict[int, str]()

    @property
    def time_ms(self) -> Indices:
        raise AssertionError("functions of each row don't ask for times")

    clock_ms = numbers = time_ms


def _each_distinct(
    function: Function, arguments: Sequence[Vector], type: AttributeType, rows: Rows
) -> Vector:
    """``function`` for each distinct value of the one argument that is no constant, a string."""
    place = next(i for i, a in enumerate(arguments) if len(a) > 1)
    coded = arguments[place].values.dictionary_encode()
    codes = coded.indices.fill_null(len(coded.dictionary)).to_numpy(zero_copy_only=False)
    # One more for null; a single value would count as a constant, and then stands for all.
    values = [*coded.dictionary.to_pylist(), None]
    results: list[Vector] = []
    failures: dict[int, str] = {}
    for index, value in enumerate(values):
        one = Vector(AttributeType.STRING, pa.array([value], pa.string()))
        alone = _Distinct(1)
        given = [one if i == place else argument for i, argument in enumerate(arguments)]
        results.append(function(given, type, alone))
        if alone.failures:
            failures[index] = alone.failures[0]
    if failures:
        for row, code in enumerate(codes.tolist()):
            if code in failures:
                rows.failures.setdefault(row, failures[code])
    joined = [object_values(result)[0] for result in results]
    return from_values(joined, type).take(codes)


def reason(error: Exception) -> str:
    """What an exception says, for a person."""
    text = str(error)
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}"
