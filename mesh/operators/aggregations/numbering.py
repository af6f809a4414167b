"""Numbers of cells by their keys, in the order of their first event."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

import numpy as np

from mesh.operators.aggregations.loops import (
    ARRIVAL,
    BUCKET,
    GROUP,
    S_ARRIVAL,
    S_BUCKET,
    S_FIRST,
    S_MARK,
    number_cells,
    number_in_order,
)
from mesh.operators.select.hashing import SEED, more_rows

if TYPE_CHECKING:
    from mesh.operators.base import Longs

_KEY = 3
_SLOTS_MIN = 1024
#: Room, in cells, that is kept when all of them have left, whatever their number.
_ROOM_MIN = 65_536


class CellOrder(Enum):
    """Order of the cells that are added to a store, as far as it is known."""

    #: Arrivals never fall: cells of the present one are found by hash.
    ANY = auto()
    #: Arrival and bucket are one, and never fall.
    RISING = auto()
    #: None of them is there already.
    NEW = auto()
    #: Each is appended; those of one key are merged from time to time.
    LATE = auto()

    @property
    def appends(self) -> bool:
        """Whether each cell that is added is a new one."""
        return self in (CellOrder.NEW, CellOrder.LATE)


class CellNumbers:
    """The keys of cells by number; an arrival that ended is never met again."""

    def __init__(self, order: CellOrder) -> None:
        self._order = order
        self.count = 0
        self._keys: Longs = np.zeros((0, _KEY), dtype=np.int64)
        #: See ``number_cells``.
        self._slots = _slots_for(0)
        #: See ``number_in_order``; marks begin at 1.
        self._near: Longs = np.zeros((0, 2), dtype=np.int64)
        self._state: Longs = np.array([0, 1 if order is CellOrder.RISING else 0], dtype=np.int64)

    @property
    def keys(self) -> Longs:
        """int64[count, 3], by cell its arrival bucket, event bucket and group."""
        return self._keys[: self.count]

    @property
    def room(self) -> int:
        """Number of cells that there is room for."""
        return len(self._keys)

    def number(self, arrival: Longs, bucket: Longs, group: Longs, room: int = 0) -> Longs:
        """int64[n], the number of each cell; new ones are numbered from ``count`` on.

        ``room``: for how many cells there shall be room at least.
        """
        first, needed = self.count, self.count + len(group)
        self._keys = more_rows(self._keys, max(needed, room))
        if self._order.appends:
            for column, values in enumerate((arrival, bucket, group)):
                self._keys[first:needed, column] = values
            self.count = needed
            return np.arange(first, needed)
        numbers = np.empty(len(group), dtype=np.int64)
        if self._order is CellOrder.RISING:
            self._near = more_rows(self._near, int(group.max()) + 1)
            self.count = number_in_order(
                bucket, group, self._keys, self.count, self._near, self._state, numbers
            )
            return numbers
        present = self.count - int(self._state[S_FIRST])
        most = present + _longest_run(arrival)
        if len(self._slots) < _slot_count(most):
            # Twice of what is there: a table that grows is filled once more each time.
            self._slots = _slots_for(max(most, 2 * present))
            self._enter()
        self._find(arrival, bucket, group, numbers)
        return numbers

    def become(self, order: CellOrder) -> None:
        """Take further cells in another order, of those that append."""
        assert order.appends, "the others need tables"
        self._order, self._slots = order, _slots_for(0)

    def _find(self, arrival: Longs, bucket: Longs, group: Longs, numbers: Longs) -> None:
        self.count = number_cells(
            arrival, bucket, group, SEED, self._slots, self._keys, self.count, self._state,
            np.empty_like(numbers), numbers,
        )  # fmt: skip

    def keep(self, cells: Longs) -> None:
        """Drop all but ``cells``, which are numbered from 0 then."""
        self._keys = self._keys[cells]
        self.count = len(cells)
        self.rebuild()

    def renumber(self, groups: Longs) -> None:
        """Give groups other numbers, by their present ones."""
        self._keys[: self.count, GROUP] = groups[self.keys[:, GROUP]]
        self.rebuild()

    def clear(self) -> None:
        """Drop all cells; the room for them stays if about as many may come again."""
        if self.room > max(_ROOM_MIN, 4 * self.count):
            self._keys = self._keys[:0]
            self._slots = _slots_for(0)
        self.count = 0
        self.rebuild()

    def rebuild(self) -> None:
        """Make the cells of the present arrival known by their present keys."""
        if self._order is CellOrder.RISING:
            self._state[S_MARK] += 1
            if self.count:
                bucket = int(self._keys[self.count - 1, BUCKET])
                first = int(np.searchsorted(self.keys[:, BUCKET], bucket))
                groups = self.keys[first:, GROUP]
                self._near = more_rows(self._near, int(groups.max()) + 1)
                self._near[groups, 0] = self._state[S_MARK]
                self._near[groups, 1] = np.arange(first, self.count)
                self._state[S_BUCKET] = bucket
        elif self._order is CellOrder.ANY:
            arrivals = self.keys[:, ARRIVAL]
            first = int(np.searchsorted(arrivals, arrivals[-1])) if self.count else 0
            self._state[S_ARRIVAL] = arrivals[-1] if self.count else 0
            self._state[S_FIRST] = first
            self._slots[:] = 0
            if len(self._slots) < _slot_count(self.count - first):
                self._slots = _slots_for(self.count - first)
            self._enter()

    def _enter(self) -> None:
        """Put the cells of the present arrival into an empty table."""
        first, stop = int(self._state[S_FIRST]), self.count
        if first == stop:
            return
        present = self._keys[first:stop]
        arrival, bucket, group = (present[:, column].copy() for column in range(_KEY))
        self.count = first
        self._find(arrival, bucket, group, np.empty_like(group))


def _slot_count(count: int) -> int:
    """The length of a table for ``count`` cells, of which two thirds are used at most."""
    length = _SLOTS_MIN
    while 2 * length < 3 * count:
        length *= 2
    return length


def _slots_for(count: int) -> Longs:
    """An empty table for ``count`` cells of one arrival."""
    return np.zeros(_slot_count(count), dtype=np.int64)


def _longest_run(arrival: Longs) -> int:
    """The largest number of rows with one arrival; they never fall, and there is one at least."""
    count = len(arrival)
    if arrival[0] == arrival[-1]:
        return count
    ends = np.flatnonzero(arrival[1:] != arrival[:-1])
    return int(np.diff(ends, prepend=-1, append=count - 1).max())
