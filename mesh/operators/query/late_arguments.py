"""Groups and aggregate arguments of the rows in a window, by row number.

A row passes a query's aggregates twice, when it arrives and when it expires.  Its group and the
arguments of the aggregates are computed once, on arrival, and kept here as numbers.  The snapshot
does not hold them: they are computed again from the window's rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mesh.functions.vectors import Vector, dtype_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.model.types import AttributeType
    from mesh.operators.base import Longs
    from mesh.operators.select.aggregates import Array

#: Expired rows that are kept before the others are compacted.
_SPARE = 65_536


class RowArguments:
    """Groups, and vectors of ``types``, of rows with growing numbers."""

    def __init__(self, types: Sequence[AttributeType]) -> None:
        self._types = tuple(types)
        self.clear()

    def clear(self) -> None:
        """Remove all rows."""
        #: Numbers of the oldest rows, growing, where they are not consecutive; they are
        #: stored before all others, which begin with number ``_first``.
        self._apart: Longs = np.empty(0, dtype=np.int64)
        self._first = 0
        self._count = 0
        self._groups: Array = np.empty(0, dtype=np.int32)
        self._values: list[Array] = [np.empty(0, dtype=dtype_of(type)) for type in self._types]
        #: By vector, bool[n] or, as long as there was no null, None.
        self._nulls: list[Array | None] = [None] * len(self._types)

    def __len__(self) -> int:
        return self._count

    def enter(self, first: int, groups: Longs, vectors: Sequence[Vector]) -> None:
        """Add rows from number ``first`` on, which is after all earlier ones.

        ``vectors``: of each type one, of the length of ``groups`` or 1.
        """
        if not self._count:
            self._first = first
        start = first - self._first + len(self._apart)
        stop = start + len(groups)
        self._room(stop)
        self._groups[start:stop] = groups
        for at, vector in enumerate(vectors):
            self._values[at][start:stop] = vector.values
            nulls = self._nulls[at]
            if vector.nulls is not None and nulls is None:
                nulls = self._nulls[at] = np.zeros(len(self._groups), dtype=np.bool_)
            if nulls is not None:
                nulls[start:stop] = False if vector.nulls is None else vector.nulls
        self._count = stop

    @property
    def next(self) -> int:
        """The number that the next row has where rows follow each other."""
        return self._first + self._count - len(self._apart)

    def renumber(self, numbers: Longs, next_number: int) -> None:
        """Set the present rows, with growing numbers; ``next_number``: that of the next one."""
        assert len(numbers) == self._count, "every row has a number"
        self._apart, self._first = numbers, next_number
        if len(numbers) and next_number - int(numbers[0]) == len(numbers):
            self._apart, self._first = numbers[:0], int(numbers[0])

    def _room(self, need: int) -> None:
        have = len(self._groups)
        if need <= have:
            return
        # In place where the system can: copying ten million rows would be noticeable.
        size = max(need, have + have // 8)
        for array in (self._groups, *self._values, *self._nulls):
            if array is not None:
                array.resize(size, refcheck=False)

    def at(self, rows: Longs) -> tuple[Longs, list[Vector]]:
        """Groups and vectors of the rows numbered ``rows``; undefined for numbers less than 0."""
        if not self._count:
            none = np.zeros(len(rows), dtype=np.int64)
            return none, [Vector(type, none.astype(dtype_of(type))) for type in self._types]
        where = rows - (self._first - len(self._apart))
        if len(self._apart):
            old = np.flatnonzero(rows < self._first)
            where[old] = np.searchsorted(self._apart, rows[old])
        # A number less than 0 means no row, and reads any row from the end.
        groups = self._groups.take(where, mode="wrap").astype(np.int64)
        vectors = []
        for type, values, nulls in zip(self._types, self._values, self._nulls, strict=True):
            missing = None if nulls is None else nulls.take(where, mode="wrap")
            vectors.append(Vector(type, values.take(where, mode="wrap"), missing))
        return groups, vectors

    def groups_of(self, rows: Longs) -> Longs:
        """The groups of the rows numbered ``rows``, which grow."""
        return self.at(rows)[0]

    def release_below(self, number: int) -> None:
        """Forget rows with smaller numbers, once they are as many as the others."""
        gone = min(number, self.next) - self._first
        if gone <= 0 or 2 * gone < len(self._groups):
            return
        start = len(self._apart) + gone
        self._shift(slice(start, self._count), self._count - start)
        self._apart = self._apart[:0]
        self._first += gone

    def is_sparse(self, live: int) -> bool:
        """True if most rows have expired; ``live``: rows in the window."""
        return self._count > 2 * live + _SPARE

    def keep(self, numbers: Longs) -> None:
        """Forget all rows but those with ``numbers``, which grow."""
        where = numbers - (self._first - len(self._apart))
        old = np.flatnonzero(numbers < self._first)
        where[old] = np.searchsorted(self._apart, numbers[old])
        stop = self.next
        self._shift(where, len(where))
        self._apart, self._first = numbers.copy(), stop

    def _shift(self, where: slice | Longs, count: int) -> None:
        """Put the rows at ``where`` to the front."""
        for array in (self._groups, *self._values, *self._nulls):
            if array is not None:
                array[:count] = array[where]
        self._count = count
