"""Columns of values for the kernels: NumPy arrays, and Arrow arrays for strings.

NumPy's integers wrap like Java's and its doubles are IEEE's, so kernels over them have the
reference engine's results bit for bit.  Nulls are a separate mask.  A constant is a vector of
length 1 that broadcasts.

Properties of the evaluated rows that a function may read besides its arguments.

A row on which a function fails has no value; the other rows have one.  The function records the
reason and continues.  The caller that evaluates the expression handles the row (``@OnError``).

Bytes of the results of functions: a row whose result is too large fails, and others do not.

``rows.bounded`` is around every function that an expression calls.  Functions that may make much of
little compute the bytes before they take memory: ``check``, ``summed`` and ``joined``.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mesh.functions.objects import ValueSet, from_binary, object_array, to_binary
from mesh.model.types import AttributeType
from pyspark_nats.decode.result import USUAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark_nats.arrow import ArrowArray, ArrowChunks


Mask = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]

_DTYPES: dict[AttributeType, np.dtype[Any]] = {
    AttributeType.INT: np.dtype(np.int32),
    AttributeType.LONG: np.dtype(np.int64),
    AttributeType.FLOAT: np.dtype(np.float32),
    AttributeType.DOUBLE: np.dtype(np.float64),
    AttributeType.BOOL: np.dtype(np.bool_),
}


@dataclass(frozen=True, slots=True)
class Vector:
    """Values of one type, length n, or length 1 for a constant.

    ``values``: a NumPy array of the type's width; for strings an Arrow string array, which has its
    own nulls; for objects a NumPy array of Python values (``mesh.functions.objects``), None for
    null.  ``nulls``: bool, True where there is no value, or None when none is missing (always None
    for strings and objects).  The value under a null is undefined.
    """

    type: AttributeType
    values: Any
    nulls: Mask | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def null_mask(self) -> Mask:
        """Mask with True where there is no value, one for each value."""
        if self.type is AttributeType.STRING:
            return np.asarray(self.values.is_null().to_numpy(zero_copy_only=False))
        if self.type is AttributeType.OBJECT:
            missing = (value is None for value in self.values)
            return np.fromiter(missing, dtype=np.bool_, count=len(self.values))
        if self.nulls is None:
            return np.zeros(len(self.values), dtype=np.bool_)
        return self.nulls

    def take(self, indices: Indices) -> Vector:
        """The values at ``indices``; a constant stays one."""
        if len(self) == 1:
            return self
        if self.type is AttributeType.STRING:
            return Vector(self.type, self.values.take(pa.array(indices)))
        nulls = None if self.nulls is None else self.nulls.take(indices)
        return Vector(self.type, self.values.take(indices), nulls)

    def part(self, rows: slice) -> Vector:
        """The values of consecutive rows, which share memory with these."""
        nulls = None if self.nulls is None else self.nulls[rows]
        return Vector(self.type, self.values[rows], nulls)

    def to_arrow(self, length: int, type: AttributeType | None = None) -> ArrowArray:
        """An Arrow array of ``length`` values, of ``type`` (the vector's own by default)."""
        target = (type or self.type).arrow
        if len(self) != length:
            self = self.spread(length)
        array: ArrowArray = self.values
        if self.type is AttributeType.OBJECT:
            array = to_binary(self.values)
        elif self.type is not AttributeType.STRING:
            array = pa.array(self.values, mask=self.nulls)
        return array if array.type == target else array.cast(target, safe=False)

    def to_list(self, length: int) -> list[object]:
        """The ``length`` values, None for null, which are no objects."""
        values: list[Any] = self.values.tolist()
        if self.nulls is not None:
            nulls = self.nulls.tolist()
            values = [
                None if is_null else value for value, is_null in zip(values, nulls, strict=True)
            ]
        return values if len(values) == length else values * length

    def spread(self, length: int) -> Vector:
        """A constant repeated ``length`` times; other vectors have that length already."""
        if len(self) == length:
            return self
        assert len(self) == 1, "only a constant broadcasts"
        where = np.zeros(length, dtype=np.int64)
        if self.type is AttributeType.STRING:
            return Vector(self.type, self.values.take(pa.array(where)))
        nulls = None if self.nulls is None else self.nulls[where]
        return Vector(self.type, self.values[where], nulls)


def dtype_of(type: AttributeType) -> np.dtype[Any]:
    """The NumPy type of a column of ``type``; KeyError for string and object."""
    return _DTYPES[type]


def from_arrow(array: ArrowArray | ArrowChunks, type: AttributeType) -> Vector:
    """A column of a record batch as a vector, without a copy where there are no nulls."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if array.type != type.arrow:
        array = array.cast(type.arrow, safe=False)
    if type is AttributeType.STRING:
        return Vector(type, array)
    if type is AttributeType.OBJECT:
        return Vector(type, from_binary(array))
    if array.null_count == 0:
        return Vector(type, array.to_numpy(zero_copy_only=False))
    nulls = array.is_null().to_numpy(zero_copy_only=False)
    filler: Any = False if type is AttributeType.BOOL else 0
    return Vector(type, pc.fill_null(array, filler).to_numpy(zero_copy_only=False), nulls)


def from_list(values: list[object], type: AttributeType) -> Vector:
    """A column of few rows as a vector; None for null.  No column of objects has this form."""
    if type is AttributeType.STRING:
        return Vector(type, pa.array(values, pa.string()))
    if None not in values:
        return Vector(type, np.array(values, _DTYPES[type]))
    filled = [0 if value is None else value for value in values]
    nulls = np.array([value is None for value in values])
    return Vector(type, np.array(filled, _DTYPES[type]), nulls)


def constant(value: str | int | float | bool | None, type: AttributeType | None) -> Vector:
    """One value that broadcasts; a bare ``null`` is a bool without a value."""
    if type is AttributeType.STRING:
        return Vector(type, pa.array([value], pa.string()))
    if type is AttributeType.OBJECT:
        return Vector(type, object_array([value]))
    kind = type or AttributeType.BOOL
    values = np.array([0 if value is None else value]).astype(dtype_of(kind))
    return Vector(kind, values, np.ones(1, dtype=np.bool_) if value is None else None)


def either_null(*vectors: Vector) -> Mask | None:
    """Mask with True where any of ``vectors`` (numbers or bools) is null; None if none is.

    The length is that of results over the vectors: a null constant gives a mask for all.
    """
    mask: Mask | None = None
    for vector in vectors:
        if vector.nulls is not None:
            mask = vector.nulls if mask is None else mask | vector.nulls
    if mask is None:
        return None
    length = common_length(vectors)
    return mask if len(mask) == length else np.broadcast_to(mask, length)


def common_length(vectors: Sequence[Vector]) -> int:
    """The length that constants broadcast to."""
    return next((len(v) for v in vectors if len(v) != 1), 1)


class Rows(Protocol):
    """The n evaluated events; ``failures`` maps the number of each failed row to the reason."""

    failures: dict[int, str]

    @property
    def length(self) -> int:
        """The number of rows, n."""
        ...

    @property
    def time_ms(self) -> Indices:
        """int64[n], the events' own times."""
        ...

    @property
    def clock_ms(self) -> Indices:
        """int64[n], the clock at the arrival of each event."""
        ...

    @property
    def numbers(self) -> Indices:
        """int64[n], a number for each event that is unique across events and attempts."""
        ...


#: Signature of an implementation: arguments of length n or 1, the result's type, the rows.
Function = Callable[[Sequence[Vector], AttributeType, Rows], Vector]
#: A function that can't fail and depends on its arguments alone.
PureFunction = Callable[[Sequence[Vector], AttributeType], Vector]


def fail(rows: Rows, where: Mask, message: str) -> None:
    """Record that the rows fail where ``where`` (of length n, or 1 for all) holds."""
    mask = np.broadcast_to(where, rows.length) if len(where) == 1 else where
    for row in np.flatnonzero(mask).tolist():
        rows.failures.setdefault(row, message)


def python_values(vector: Vector) -> list[Any]:
    """The values as plain Python values, None for null; an int as ``int``, a float as ``float``."""
    if vector.type is AttributeType.STRING:
        return list(vector.values.to_pylist())
    if vector.type is AttributeType.OBJECT:
        return list(vector.values)
    values: list[Any] = vector.values.tolist()
    if vector.nulls is None:
        return values
    return [None if null else v for v, null in zip(values, vector.nulls.tolist(), strict=True)]


def object_values(vector: Vector) -> list[object]:
    """The values as objects: an int's as ``np.int32``, a float's as ``np.float32``."""
    if vector.type not in (AttributeType.INT, AttributeType.FLOAT):
        return python_values(vector)
    kind = np.int32 if vector.type is AttributeType.INT else np.float32
    nulls = vector.null_mask
    return [None if null else kind(v) for v, null in zip(vector.values, nulls, strict=True)]


def from_values(values: Iterable[object], type: AttributeType) -> Vector:
    """Python values as a vector; numbers wrap or are rounded to ``type``."""
    items = list(values)
    if type is AttributeType.STRING:
        return Vector(type, pa.array(items, pa.string()))
    if type is AttributeType.OBJECT:
        return Vector(type, object_array(items))
    nulls = np.fromiter((v is None for v in items), dtype=np.bool_, count=len(items))
    filled = [0 if v is None else v for v in items]
    with np.errstate(over="ignore"):
        array = np.array(filled, dtype=dtype_of(type)) if filled else np.empty(0, dtype_of(type))
    return Vector(type, array, nulls if nulls.any() else None)


def each_row(function: Callable[..., object], *, takes_null: bool = False) -> Function:
    """A function over vectors that calls ``function`` for each row, once if all are constant.

    A null argument gives null unless ``takes_null``.  An exception of ``function`` fails the row.
    """

    def apply(arguments: Sequence[Vector], type: AttributeType, rows: Rows) -> Vector:
        length = common_length(arguments) if arguments else 1
        codes = None
        changing = [i for i, a in enumerate(arguments) if len(a) == length] if length > 1 else []
        if len(changing) == 1 and arguments[changing[0]].type is AttributeType.STRING:
            # Texts repeat, so each distinct text is processed once.  One more entry represents
            # null.
            coded = arguments[changing[0]].values.dictionary_encode()
            values = [*coded.dictionary.to_pylist(), None]
            codes = coded.indices.fill_null(len(values) - 1).to_numpy(zero_copy_only=False)
            columns = [
                values if i == changing[0] else object_values(argument) * len(values)
                for i, argument in enumerate(arguments)
            ]
        else:
            inputs = map(object_values, arguments)
            columns = [one if len(one) == length else one * length for one in inputs]
        counts: list[int] | None = None
        if type in SIZED and codes is not None:
            counts = np.bincount(codes, minlength=len(columns[0])).tolist()
        elif type in SIZED:
            counts = [rows.length] if length == 1 else [1] * length
        results, failed = _called(function, columns, counts, takes_null=takes_null)
        result = from_values(results, type)
        if failed:
            # A constant argument fails on all rows.
            places = range(rows.length) if codes is None else codes.tolist()
            for row, place in enumerate(places):
                why = failed.get(place if length > 1 else 0)
                if why is not None:
                    rows.failures.setdefault(row, why)
        return result if codes is None else result.take(codes)

    return apply


def _called(
    function: Callable[..., object],
    columns: list[list[object]],
    counts: list[int] | None,
    *,
    takes_null: bool,
) -> tuple[list[object], dict[int, str]]:
    """The results of ``function`` for the rows of ``columns``, and the reasons of failed rows.

    ``counts``: how often each result occurs; None for results that are small in any case.
    """
    results: list[Any] = []
    failed: dict[int, str] = {}
    room = Room()
    value_rows = zip(*columns, strict=True) if columns else [()]
    for row, values in enumerate(value_rows):
        if not takes_null and None in values:
            results.append(None)
            continue
        try:
            results.append(function(*values))
        except Exception as error:
            results.append(None)
            failed[row] = reason(error)
            continue
        if counts is not None:
            room.keep(results, failed, counts[row])
    return results, failed


def reason(error: Exception) -> str:
    """The message of an exception for a user."""
    text = str(error)
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}"


def fail_rows(rows: Rows, failed: dict[int, str], *, of_all: bool = False) -> None:
    """Record failures; ``of_all``: the only one is of a constant, and so of all rows."""
    for row, why in failed.items():
        for place in range(rows.length) if of_all else (row,):
            rows.failures.setdefault(place, why)


def bounded(name: str, function: Function) -> Function:
    """``function``, whose results of any size fail their rows when they are too large."""

    def apply(arguments: Sequence[Vector], type: AttributeType, rows: Rows) -> Vector:
        before = frozenset(rows.failures)
        result = _within(function(arguments, type, rows), rows)
        if len(rows.failures) > len(before):
            for row, why in rows.failures.items():
                if row not in before and why.startswith(TOO_LARGE):
                    rows.failures[row] = f"{name}: {why}"
        return result

    return apply


def _within(result: Vector, rows: Rows) -> Vector:
    """Null where a text is too large; objects have been measured one by one."""
    if result.type is not AttributeType.STRING:
        return result
    count = rows.length if len(result) == 1 else 1
    if result.values.nbytes <= RESULT_BYTES_MAX // max(1, count):
        return result
    nbytes = text_sizes([result.values], len(result))
    failed = Room().add(0, int(nbytes[0]), count) if count > 1 else excess(nbytes)
    fail_rows(rows, failed, of_all=count > 1)
    return without(result, failed)


#: Most bytes of one result: as of a message when decoded.
RESULT_BYTES_MAX: Final = USUAL.bytes_max
#: Most bytes of the results of one call for a batch; Arrow's arrays of texts end at 2 GiB.
BATCH_BYTES_MAX: Final = 2 * USUAL.batch_bytes_max
#: Types whose values have any size.
SIZED: Final = frozenset({AttributeType.STRING, AttributeType.OBJECT})
#: Bytes of a number, and of a list or map besides what is in it.
_PLAIN: Final = 9
#: Begins the reason of a row that fails for its size.
TOO_LARGE: Final = "too large a result: "


class TooLargeError(ValueError):
    """A result is larger than one may be."""


def check(size: int) -> None:
    """Refuse a result of ``size`` bytes that is too large.

    Raises:
        TooLargeError: it is.
    """
    if size > RESULT_BYTES_MAX:
        raise TooLargeError(f"{TOO_LARGE}{size} bytes, more than {RESULT_BYTES_MAX}")


def summed(texts: Iterable[str]) -> Iterator[str]:
    """The texts, as long as they are not too large together; as ``check`` otherwise."""
    total = 0
    for text in texts:
        total += _text_size(text)
        if total > RESULT_BYTES_MAX:
            raise TooLargeError(f"{TOO_LARGE}more than {RESULT_BYTES_MAX} bytes")
        yield text


def joined(texts: Iterable[str]) -> str:
    """The texts as one; as ``summed``."""
    return "".join(summed(texts))


def size_of(value: object) -> int:
    """Bytes of a value as it is stored, about; no more is counted once it is too large."""
    if isinstance(value, str):
        return _text_size(value)
    total, waiting = 0, [value]
    while waiting and total <= RESULT_BYTES_MAX:
        one = waiting.pop()
        total += _PLAIN
        if isinstance(one, str):
            total += _text_size(one)
        elif isinstance(one, dict):
            waiting += one
            waiting += one.values()
        elif isinstance(one, list | tuple | ValueSet):
            waiting += one
    return total


def _text_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


class Room:
    """Bytes of one call's results; of results that are too large together the largest fail."""

    def __init__(self, result_max: int | None = None) -> None:
        self._result_max = RESULT_BYTES_MAX if result_max is None else result_max
        self._total = 0
        self._largest: list[tuple[int, int]] = []

    def add(self, row: int, size: int, count: int = 1) -> dict[int, str]:
        """The rows that fail now, with the reasons.

        Args:
            row: number of the result.
            size: its bytes.
            count: how often it occurs.
        """
        if size > self._result_max:
            return {row: f"{TOO_LARGE}{size} bytes, more than {self._result_max}"}
        self._total += size * count
        heapq.heappush(self._largest, (-size * count, row))
        failed: dict[int, str] = {}
        while self._total > BATCH_BYTES_MAX:
            negative, place = heapq.heappop(self._largest)
            self._total += negative
            failed[place] = f"{TOO_LARGE}those of a batch have more than {BATCH_BYTES_MAX} bytes"
        return failed

    def keep(self, results: list[object], failed: dict[int, str], count: int = 1) -> None:
        """Add the last of ``results``; those that fail become None in it."""
        row = len(results) - 1
        for large, why in self.add(row, size_of(results[row]), count).items():
            results[large], failed[large] = None, why


def excess(sizes: Indices) -> dict[int, str]:
    """The rows that fail, with the reasons, by the bytes of each row's result."""
    if not len(sizes) or (sizes.max() <= RESULT_BYTES_MAX and sizes.sum() <= BATCH_BYTES_MAX):
        return {}
    room = Room()
    failed: dict[int, str] = {}
    for row, size in enumerate(sizes.tolist()):
        failed |= room.add(row, size)
    return failed


def text_sizes(texts: Sequence[Any], length: int) -> Indices:
    """int64[length], bytes of the row in all columns of texts or octets together."""
    total = np.zeros(length, dtype=np.int64)
    for column in texts:
        sizes = pc.fill_null(pc.binary_length(column), 0).cast(pa.int64())
        total += sizes.to_numpy(zero_copy_only=False)
    return total


def row_sizes(rows: pa.RecordBatch) -> Indices:
    """int64[n], bytes of each row."""
    sized = [c for c in rows.columns if pa.types.is_string(c.type) or pa.types.is_binary(c.type)]
    return text_sizes(sized, rows.num_rows) + _PLAIN * rows.num_columns


def without(texts: Vector, failed: dict[int, str]) -> Vector:
    """Texts with null in failed rows."""
    if not failed:
        return texts
    is_good = np.ones(len(texts), dtype=np.bool_)
    is_good[list(failed)] = False
    return Vector(texts.type, pc.if_else(pa.array(is_good), texts.values, None))
