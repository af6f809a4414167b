"""A growing column of a table: values at numbered slots, changed in place.

Numbers and bools are NumPy arrays of the type's width with a mask of nulls beside them.  Strings
and objects are Python values; the Arrow array that kernels need for a string column is made on
request, and kept until the column changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.functions.vectors import Vector, dtype_of
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from mesh.operators.base import Bools, Longs

_PYTHON = (AttributeType.STRING, AttributeType.OBJECT)
_CAPACITY = 16


class TableColumn:
    """The values of one attribute, of slots 0 to below ``length``."""

    def __init__(self, type: AttributeType) -> None:
        self.type = type
        self.length = 0
        self._values: Any = np.empty(_CAPACITY, self._dtype)
        self._nulls: Bools = np.zeros(_CAPACITY, dtype=np.bool_)
        self._whole: Vector | None = None

    @property
    def _dtype(self) -> np.dtype[Any]:
        return np.dtype(object) if self.type in _PYTHON else dtype_of(self.type)

    def append(self, vector: Vector, count: int) -> None:
        """Append ``count`` further values, of this type."""
        start, stop = self.length, self.length + count
        if stop > len(self._values):
            self._grow(stop)
        values, nulls = _plain(vector.spread(count))
        self._values[start:stop] = values
        self._nulls[start:stop] = nulls
        self.length = stop
        self._whole = None

    def _grow(self, least: int) -> None:
        size = max(2 * len(self._values), least)
        values = np.empty(size, self._dtype)
        nulls = np.zeros(size, dtype=np.bool_)
        values[: self.length] = self._values[: self.length]
        nulls[: self.length] = self._nulls[: self.length]
        self._values, self._nulls = values, nulls

    def set(self, slots: Longs, vector: Vector) -> None:
        """Put values into ``slots``: one for each, or the same into all."""
        values, nulls = _plain(vector.spread(len(slots)))
        self._values[slots] = values
        self._nulls[slots] = nulls
        self._whole = None

    def get(self, slot: int) -> Any:
        """The value at ``slot`` as a Python value."""
        if self._nulls[slot]:
            return None
        value = self._values[slot]
        return value if self.type in _PYTHON else value.item()

    def whole(self) -> Vector:
        """The values of all slots; those of free slots have no meaning."""
        if self._whole is None:
            self._whole = self._vector(slice(0, self.length))
        return self._whole

    def take(self, slots: Longs) -> Vector:
        """The values at ``slots``."""
        return self._vector(slots)

    def _vector(self, at: Any) -> Vector:
        # A copy: a returned array does not change when the table does.
        values, nulls = self._values[at].copy(), self._nulls[at]
        if self.type is AttributeType.STRING:
            return Vector(self.type, pa.array(values, pa.string()))
        return Vector(self.type, values, nulls.copy() if nulls.any() else None)

    def keep(self, slots: Longs) -> None:
        """Forget all but ``slots``, which are numbered from 0 then."""
        self._values = self._values[slots]
        self._nulls = self._nulls[slots]
        self.length = len(slots)
        self._whole = None


def _plain(vector: Vector) -> tuple[Any, Bools]:
    """Values as this module keeps them, and a mask of the missing ones."""
    values = vector.values
    if vector.type is AttributeType.STRING:
        values = values.to_numpy(zero_copy_only=False)
    return values, vector.null_mask


def python_value(vector: Vector, at: int = 0) -> object:
    """The value at ``at``; a vector of length 1 has the same everywhere."""
    at = at if len(vector) > 1 else 0
    if bool(vector.null_mask[at]):
        return None
    value = vector.values[at]
    if isinstance(value, pa.Scalar):
        return value.as_py()
    return value.item() if isinstance(value, np.generic) else value
