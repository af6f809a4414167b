"""Columns of values for the kernels: NumPy arrays, and Arrow arrays for strings.

NumPy's integers wrap like Java's and its doubles are IEEE's, so kernels over them have the
reference engine's results bit for bit.  Nulls are a separate mask.  A constant is a vector of
length 1 that broadcasts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mesh.functions.objects import from_binary, object_array, to_binary
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def from_values(values: list[object], type: AttributeType) -> Vector:
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
