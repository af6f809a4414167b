"""Base values of cells: sums, counts, extremes, latest values.

A base value is a growing column, one entry a cell.  ``add`` folds events into cells, and equally
the base values of other cells: their sums are summed, their counts too, the latest of their latest
values wins.  So the same four work for running values, for stored ones, and for an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.functions.vectors import Vector, dtype_of
from mesh.model.types import AttributeType
from mesh.operators.aggregations.numbering import MAX, MIN, SUM, add_counts, add_values, count_rows
from mesh.operators.select.hashing import more_rows

if TYPE_CHECKING:
    from mesh.operators.base import Bools, Longs

_NO_NULLS = np.zeros(0, dtype=np.bool_)
_PYTHON = (AttributeType.STRING, AttributeType.OBJECT)


class BaseKind(Enum):
    """Kind of a base value: the function of the events of its cell."""

    SUM = auto()
    COUNT = auto()
    MIN = auto()
    MAX = auto()
    LATEST = auto()
    #: The set of values, of which ``distinctCount`` is the number; see ``cells``.
    SET = auto()


_HOW = {BaseKind.SUM: SUM, BaseKind.MIN: MIN, BaseKind.MAX: MAX}


@dataclass(frozen=True, slots=True)
class BaseValue:
    """A base value: ``kind`` of values of ``type``; the values of a count don't matter."""

    kind: BaseKind
    type: AttributeType


def type_of_column(value: BaseValue) -> AttributeType:
    """The type of a column of base values: sums are long or double."""
    match value.kind:
        case BaseKind.COUNT | BaseKind.SET:
            return AttributeType.LONG
        case BaseKind.SUM:
            is_whole = value.type in (AttributeType.INT, AttributeType.LONG)
            return AttributeType.LONG if is_whole else AttributeType.DOUBLE
        case _:
            return value.type


class NumberColumn:
    """A sum or an extreme: null without a value that is not null."""

    def __init__(self, value: BaseValue) -> None:
        self._how = _HOW[value.kind]
        self._type = type_of_column(value)
        is_whole = self._type in (AttributeType.INT, AttributeType.LONG)
        wide = AttributeType.LONG if is_whole else AttributeType.DOUBLE
        self._values: Any = np.zeros(0, dtype=dtype_of(wide))
        self._seen: Bools = np.zeros(0, dtype=np.bool_)

    def grow(self, count: int) -> None:
        """Have room for ``count`` cells; new ones have no value."""
        self._values = more_rows(self._values, count)
        self._seen = more_rows(self._seen, count)

    def add(self, cells: Longs, values: Vector) -> None:
        """Add a value to each of ``cells``, in order; ``values`` has as many."""
        inputs = np.ascontiguousarray(values.values, dtype=self._values.dtype)
        nulls = _NO_NULLS if values.nulls is None else np.ascontiguousarray(values.nulls)
        add_values(self._how, cells, inputs, nulls, self._values, self._seen)

    def append(self, first: int, values: Vector) -> None:
        """Set the values of the cells from ``first`` on, which have none yet."""
        cells = slice(first, first + len(values.values))
        self._values[cells], self._seen[cells] = values.values, True
        if values.nulls is not None:
            nulls = np.flatnonzero(values.nulls) + first
            self._values[nulls], self._seen[nulls] = 0, False

    def take(self, cells: Longs | slice) -> Vector:
        """The values of ``cells``, null where there is none; a copy."""
        values = self._values[cells].astype(dtype_of(self._type))
        seen = self._seen[cells]
        return Vector(self._type, values, None if seen.all() else ~seen)

    def keep(self, cells: Longs) -> None:
        """Drop all but ``cells``, which are numbered from 0 then."""
        self._values, self._seen = self._values[cells], self._seen[cells]

    def clear(self, count: int) -> None:
        """Drop the first ``count`` cells, which are all; the room for them stays."""
        self._values[:count], self._seen[:count] = 0, False


class CountColumn:
    """A number of events; it is never null."""

    def __init__(self) -> None:
        self._counts: Longs = np.zeros(0, dtype=np.int64)

    def grow(self, count: int) -> None:
        """See ``NumberColumn``."""
        self._counts = more_rows(self._counts, count)

    def count(self, cells: Longs) -> None:
        """Count an event of each of ``cells``."""
        count_rows(cells, self._counts)

    def add(self, cells: Longs, values: Vector) -> None:
        """See ``NumberColumn``."""
        add_counts(cells, values.values, self._counts)

    def append(self, first: int, values: Vector) -> None:
        """See ``NumberColumn``."""
        self._counts[first : first + len(values.values)] = values.values

    def take(self, cells: Longs | slice) -> Vector:
        """See ``NumberColumn``."""
        return Vector(AttributeType.LONG, self._counts[cells].copy())

    def keep(self, cells: Longs) -> None:
        """See ``NumberColumn``."""
        self._counts = self._counts[cells]

    def clear(self, count: int) -> None:
        """See ``NumberColumn``."""
        self._counts[:count] = 0


class LatestColumn:
    """The value of the latest event; ``add`` is given that event's alone."""

    def __init__(self, type: AttributeType) -> None:
        self._type = type
        dtype = np.dtype(object) if type in _PYTHON else dtype_of(type)
        self._values: Any = np.zeros(0, dtype=dtype)
        self._nulls: Bools = np.zeros(0, dtype=np.bool_)

    def grow(self, count: int) -> None:
        """See ``NumberColumn``."""
        self._values = more_rows(self._values, count)
        self._nulls = more_rows(self._nulls, count)

    def add(self, cells: Longs, values: Vector) -> None:
        """See ``NumberColumn``; ``cells`` are different."""
        inputs = values.values
        if self._type is AttributeType.STRING:
            inputs = inputs.to_numpy(zero_copy_only=False)
        self._values[cells] = inputs
        self._nulls[cells] = values.null_mask

    def append(self, first: int, values: Vector) -> None:
        """See ``NumberColumn``."""
        self.add(np.arange(first, first + len(values.values)), values)

    def take(self, cells: Longs | slice) -> Vector:
        """See ``NumberColumn``."""
        values, nulls = self._values[cells].copy(), self._nulls[cells]
        if self._type in _PYTHON:
            values[nulls] = None
        if self._type is AttributeType.STRING:
            return Vector(self._type, pa.array(values, pa.string()))
        is_full = self._type is AttributeType.OBJECT or not nulls.any()
        return Vector(self._type, values, None if is_full else nulls.copy())

    def keep(self, cells: Longs) -> None:
        """See ``NumberColumn``."""
        self._values, self._nulls = self._values[cells], self._nulls[cells]

    def clear(self, count: int) -> None:
        """See ``NumberColumn``."""
        self._values[:count] = None if self._type in _PYTHON else 0
        self._nulls[:count] = False


#: The base values of all cells of a store; ``NumberColumn`` documents what all of them do.
BaseColumn = NumberColumn | CountColumn | LatestColumn


def base_column(value: BaseValue) -> BaseColumn:
    """An empty column of base values."""
    match value.kind:
        case BaseKind.COUNT:
            return CountColumn()
        case BaseKind.LATEST:
            return LatestColumn(value.type)
        case _:
            return NumberColumn(value)
