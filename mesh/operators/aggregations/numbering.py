"""Numbers of cells by their keys, in the order of their first event.

Native loops of aggregations: the cell of each event, and values added to cells.

A cell is the values of one (arrival bucket, event bucket, group); cells are numbered from 0 in the
order of their first event.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

import numpy as np

from mesh.operators.native import BOOL1, LONG1, LONG2, READ1, native, types
from mesh.operators.select.hashing import SEED, more_rows, scatter

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


#: Ways of adding a value to the value of its cell.
SUM, MIN, MAX = range(3)
#: The columns of a cell's key.
ARRIVAL, BUCKET, GROUP = range(3)
#: Entries of the state of ``number_cells``: the present arrival bucket, and its first cell.
S_ARRIVAL, S_FIRST = range(2)
#: Entries of the state of ``number_in_order``: the bucket of the last event, and its mark.
S_BUCKET, S_MARK = range(2)
_LOW = 0xFFFFFFFF
#: Rows whose slots stay in the processor's cache.
_BLOCK = 512

_nulls1 = types.Array(types.boolean, 1, "C", readonly=True)
_double1 = types.Array(types.float64, 1, "C")
_doubles = types.Array(types.float64, 1, "C", readonly=True)


@native(
    types.int64(
        READ1,
        READ1,
        READ1,
        types.uint64,
        LONG1,
        LONG2,
        types.int64,
        LONG1,
        LONG1,
        LONG1,
    )
)
def number_cells(arrival, bucket, group, seed, slots, keys, count, state, hashes, out):
    """Fill ``out`` with the cell of each row, and return the number of cells.

    Arrivals never fall, so only the cells of the present one are looked for.  ``slots``: an open
    hash table of them: the upper half of the key's hash, and the cell plus one, in one number.  A
    cell of an earlier arrival counts as an empty slot.  ``hashes``: scratch, as long as ``out``.
    """
    mask = np.uint64(len(slots) - 1)
    for start in range(0, len(out), _BLOCK):
        stop = min(start + _BLOCK, len(out))
        # Loads that don't depend on each other wait for memory together.
        for row in range(start, stop):
            hashed = scatter(np.uint64(bucket[row]) + scatter(np.uint64(group[row]) + seed))
            hashes[row] = np.int64(hashed)
            out[row] = slots[hashed & mask]
        for row in range(start, stop):
            entry, cell = out[row], (out[row] & _LOW) - 1
            is_same = cell >= 0 and entry >> 32 == hashes[row] >> 32
            if is_same and keys[cell, BUCKET] == bucket[row] and keys[cell, GROUP] == group[row]:
                out[row] = cell
            else:
                out[row] = -1
        for row in range(start, stop):
            a, b, g = arrival[row], bucket[row], group[row]
            if a != state[S_ARRIVAL]:
                state[S_ARRIVAL], state[S_FIRST] = a, count
            if out[row] >= state[S_FIRST]:
                continue
            slot, tag = np.uint64(hashes[row]) & mask, hashes[row] >> 32
            while True:
                entry = slots[slot]
                cell = (entry & _LOW) - 1
                if cell < state[S_FIRST]:
                    cell = count
                    count += 1
                    slots[slot] = (tag << 32) | (cell + 1)
                    keys[cell, ARRIVAL], keys[cell, BUCKET], keys[cell, GROUP] = a, b, g
                    break
                if entry >> 32 == tag and keys[cell, BUCKET] == b and keys[cell, GROUP] == g:
                    break
                slot = (slot + np.uint64(1)) & mask
            out[row] = cell
    return count


@native(types.int64(READ1, READ1, LONG2, types.int64, LONG2, LONG1, LONG1))
def number_in_order(bucket, group, keys, count, near, state, out):
    """As ``number_cells`` where arrival and bucket are one: no table is needed.

    ``near``: by group, a mark and the cell of the group in the bucket of the last row, if the mark
    is that of ``state``.
    """
    for row in range(len(out)):
        b, g = bucket[row], group[row]
        if b != state[S_BUCKET]:
            state[S_BUCKET] = b
            state[S_MARK] += 1
        elif near[g, 0] == state[S_MARK]:
            out[row] = near[g, 1]
            continue
        keys[count, ARRIVAL], keys[count, BUCKET], keys[count, GROUP] = b, b, g
        near[g, 0], near[g, 1] = state[S_MARK], count
        out[row] = count
        count += 1
    return count


@native(types.void(LONG2, types.int64, types.int64, LONG1, LONG1))
def chain_groups(keys, start, stop, last, before):
    """Link the cells from ``start`` to below ``stop``, each to the one before of its group.

    ``last``: by group its last cell, ``before``: by cell the one before; -1 for none.
    """
    for cell in range(start, stop):
        group = keys[cell, GROUP]
        before[cell] = last[group]
        last[group] = cell


@native(types.void(READ1, LONG1))
def count_rows(cells, counts):
    """Count the rows of each cell."""
    for row in range(len(cells)):
        counts[cells[row]] += 1


@native(types.void(READ1, READ1, LONG1))
def add_counts(cells, numbers, counts):
    """Add a number to that of each cell."""
    for row in range(len(cells)):
        counts[cells[row]] += numbers[row]


@native(
    [
        types.void(types.int64, READ1, READ1, _nulls1, LONG1, BOOL1),
        types.void(types.int64, READ1, _doubles, _nulls1, _double1, BOOL1),
    ]
)
def add_values(how, cells, values, nulls, total, seen):
    """Add each value that is not null to that of its cell; sums of whole numbers wrap.

    An extreme is no number where the first value is none, as in the engine.
    """
    has_nulls = len(nulls) > 0
    for row in range(len(cells)):
        if has_nulls and nulls[row]:
            continue
        cell, value = cells[row], values[row]
        if how == SUM:
            total[cell] += value
        elif (
            not seen[cell] or (how == MIN and value < total[cell])
            or (how == MAX and value > total[cell])
        ):  # fmt: skip
            total[cell] = value
        seen[cell] = True


@native(types.int64(READ1, READ1, LONG1, BOOL1, LONG1, LONG1))
def latest_rows(cells, times, last, seen, row_of, touched):
    """Find the latest row of each cell that is not earlier than its value; the later one of equals.

    ``last``: by cell, the time of its value, which is set.  ``row_of``: by cell the row, -1 before.
    ``touched``: filled with the cells that have a row; returns their number.
    """
    count = 0
    for row in range(len(cells)):
        cell = cells[row]
        if seen[cell] and times[row] < last[cell]:
            continue
        if row_of[cell] < 0:
            touched[count] = cell
            count += 1
        seen[cell] = True
        last[cell] = times[row]
        row_of[cell] = row
    return count
