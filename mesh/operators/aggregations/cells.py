"""Cells: the base values of (arrival bucket, event bucket, group), found by hash.

A store has the cells of one duration: those that are running, of which the arrival bucket is not
over, or those that are closed, of which the arrival bucket does not matter and is 0.  Cells are
numbered in the order of their first event, so those of earlier arrival buckets come first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.functions.vectors import Vector, from_arrow
from mesh.operators.aggregations.numbering import (
    ARRIVAL,
    BUCKET,
    GROUP,
    CellNumbers,
    CellOrder,
    chain_groups,
    latest_rows,
)
from mesh.operators.aggregations.values import (
    BaseKind,
    BaseValue,
    CountColumn,
    base_column,
    type_of_column,
)
from mesh.operators.base import State
from mesh.operators.select.hashing import RowNumbers, more_rows
from mesh.operators.state.range_pieces import PagedPieces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.operators.base import Bools, Longs
    from pyspark_nats.arrow import ArrowArray

_KEYS = ("arrival", "bucket", "group")
_LAST = "last"
#: A cell and the number of a value.
_PAIR = 2


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells outside of a store, n of them, or events to be added: each is a cell of one event.

    ``arrival``, ``bucket``, ``group``: int64[n].  ``last``: int64[n], the time of the latest
    values; empty without any.  ``values``: by number of the base value its values; none for sets,
    and none for counts of events.  ``sets``: by number of the base value the places of cells
    and the numbers of the values in their sets.
    """

    arrival: Longs
    bucket: Longs
    group: Longs
    last: Longs
    values: Mapping[int, Vector]
    sets: Mapping[int, tuple[Longs, Longs]]

    def __len__(self) -> int:
        return len(self.group)

    def part(self, start: int, stop: int) -> Cells:
        """The cells from ``start`` to below ``stop``."""
        if start <= 0 and stop >= len(self):
            return self
        rows = slice(start, stop)
        sets = {}
        for number, (places, values) in self.sets.items():
            chosen = (places >= start) & (places < stop)
            sets[number] = places[chosen] - start, values[chosen]
        vectors = {n: vector.spread(len(self)).part(rows) for n, vector in self.values.items()}
        return Cells(
            self.arrival[rows], self.bucket[rows], self.group[rows], self.last[rows], vectors, sets
        )

    def where(self, mask: Bools) -> Cells:
        """The cells for which ``mask`` holds."""
        chosen = np.flatnonzero(mask)
        place = np.cumsum(mask) - 1
        sets = {}
        for number, (places, values) in self.sets.items():
            pair_mask = mask[places]
            sets[number] = place[places[pair_mask]], values[pair_mask]
        return Cells(
            self.arrival[chosen],
            self.bucket[chosen],
            self.group[chosen],
            self.last[chosen] if len(self.last) else self.last,
            {number: vector.take(chosen) for number, vector in self.values.items()},
            sets,
        )


class CellStore:
    """The cells of one duration, with the base values ``plan``."""

    def __init__(self, plan: Sequence[BaseValue], order: CellOrder = CellOrder.ANY) -> None:
        self._plan = tuple(plan)
        self._order = order
        kinds = [value.kind for value in plan]
        self._columns = {
            number: base_column(value)
            for number, value in enumerate(plan)
            if value.kind is not BaseKind.SET
        }
        self._latest = [n for n, kind in enumerate(kinds) if kind is BaseKind.LATEST]
        self._sets = {n: _PairSet() for n, kind in enumerate(kinds) if kind is BaseKind.SET}
        self._numbers = CellNumbers(order)
        self._pages = PagedPieces("cells")
        self._set_pages = {number: PagedPieces(f"set{number}") for number in self._sets}
        self._last: Longs = np.zeros(0, dtype=np.int64)
        self._has_last = np.zeros(0, dtype=np.bool_)
        self._row_of: Longs = np.zeros(0, dtype=np.int64)
        #: See ``chain_groups``, and the number of cells that are linked.
        self._last_of: Longs = np.zeros(0, dtype=np.int64)
        self._before: Longs = np.zeros(0, dtype=np.int64)
        self._chained = 0

    def __len__(self) -> int:
        return self.count

    @property
    def count(self) -> int:
        """Number of cells."""
        return self._numbers.count

    @property
    def arrivals(self) -> Longs:
        """int64[count], the arrival buckets, which never fall in a store of running cells."""
        return self._keys[:, ARRIVAL]

    @property
    def buckets(self) -> Longs:
        """int64[count], the event buckets."""
        return self._keys[:, BUCKET]

    @property
    def groups(self) -> Longs:
        """int64[count], the numbers of the groups."""
        return self._keys[:, GROUP]

    @property
    def _keys(self) -> Longs:
        return self._numbers.keys

    # Changing

    def add(self, cells: Cells, version: str) -> None:
        """Add the values of cells, in order, to the cells with the same keys.

        ``version``: of the whole state after the change, here and below.
        """
        if not len(cells):
            return
        first = self.count
        numbers = self._put(cells, self.count + len(cells))
        for number, pairs in self._sets.items():
            places, values_of = cells.sets[number]
            before = len(pairs)
            pairs.add(numbers[places], values_of)
            if len(pairs) > before:
                self._set_pages[number].touch_added(before, len(pairs), version)
        if self._order.appends:
            self._pages.touch_added(first, self.count, version)
        else:
            self._pages.touch(numbers, version)

    def _put(self, cells: Cells, room: int) -> Longs:
        """Put all but their sets into the columns, and return their numbers."""
        first = self.count
        numbers = self._numbers.number(cells.arrival, cells.bucket, cells.group, room)
        for number, column in self._columns.items():
            column.grow(self._numbers.room)
            if number in self._latest and not self._order.appends:
                continue
            values = cells.values.get(number)
            if isinstance(column, CountColumn) and values is None:
                column.count(numbers)
                continue
            assert values is not None, "base values but sets and counts of events have values"
            if self._order.appends:
                column.append(first, values.spread(len(cells)))
            else:
                column.add(numbers, values.spread(len(cells)))
        if self._latest:
            self._add_latest(numbers, cells)
        return numbers

    def _add_latest(self, numbers: Longs, cells: Cells) -> None:
        self._last = more_rows(self._last, self.count)
        self._has_last = more_rows(self._has_last, self.count)
        if self._order.appends:
            self._last[numbers], self._has_last[numbers] = cells.last, True
            return
        if len(self._row_of) < self.count:
            self._row_of = np.full(2 * self.count, -1, dtype=np.int64)
        touched = np.empty(min(len(cells), self.count), dtype=np.int64)
        count = latest_rows(numbers, cells.last, self._last, self._has_last, self._row_of, touched)
        touched = touched[:count]
        rows = self._row_of[touched]
        self._row_of[touched] = -1
        for number in self._latest:
            values = cells.values[number].spread(len(cells))
            self._columns[number].add(touched, values.take(rows) if len(cells) > 1 else values)

    def keep(self, cells: Longs, version: str) -> None:
        """Drop all but ``cells``, which are numbered from 0 then, in this order.

        They rise, but in a store of any order.
        """
        for column in self._columns.values():
            column.grow(self.count)
            column.keep(cells)
        for pairs in self._sets.values():
            pairs.keep(cells, self.count)
        if self._latest:
            self._last = self._last[: self.count][cells]
            self._has_last = self._has_last[: self.count][cells]
        moved = np.flatnonzero(cells != np.arange(len(cells)))
        self._numbers.keep(cells)
        self._last_of, self._chained = self._last_of[:0], 0
        self._touch_from(int(moved[0]) if len(moved) else self.count, version)

    def renumber(self, groups: Longs | None, values: Mapping[int, Longs], version: str) -> None:
        """Give groups and values of sets other numbers, by their present ones."""
        if groups is not None:
            self._numbers.renumber(groups)
            self._last_of, self._chained = self._last_of[:0], 0
        for number, new in values.items():
            pairs = self._sets[number].pairs
            self._sets[number].replace(pairs[:, 0].copy(), new[pairs[:, 1]])
        self._touch_from(0, version)

    def _touch_from(self, cell: int, version: str) -> None:
        self._pages.touch_from(cell, self.count, version)
        for number, pairs in self._sets.items():
            self._set_pages[number].touch_from(0, len(pairs), version)

    # Reading

    def cells_of(self, group: int) -> Longs:
        """The cells of a group, rising; the index is made, or extended, on request."""
        if self._chained < self.count:
            groups = int(self.groups[self._chained :].max()) + 1
            self._last_of = more_rows(self._last_of, groups, -1)
            self._before = more_rows(self._before, self.count)
            chain_groups(self._keys, self._chained, self.count, self._last_of, self._before)
            self._chained = self.count
        cells = []
        cell = int(self._last_of[group]) if group < len(self._last_of) else -1
        while cell >= 0:
            cells.append(cell)
            cell = int(self._before[cell])
        return np.array(cells[::-1], dtype=np.int64)

    def take_first(self, count: int, version: str) -> Cells:
        """Remove the first cells, and return them."""
        taken = self.take(slice(0, count))
        if count < self.count:
            self.keep(np.arange(count, self.count), version)
            return taken
        self._clear(version)
        return taken

    def _clear(self, version: str) -> None:
        """Drop all cells; the room for them stays: the next bucket needs about as much."""
        count, room = self.count, self._numbers.room
        nothing = np.empty(0, dtype=np.int64)
        for pairs in self._sets.values():
            pairs.replace(nothing, nothing)
        self._numbers.clear()
        self._last_of, self._chained = self._last_of[:0], 0
        self._touch_from(0, version)
        if self._numbers.room < room:
            for column in self._columns.values():
                column.keep(nothing)
            self._last, self._has_last = self._last[:0], self._has_last[:0]
            return
        for column in self._columns.values():
            column.clear(count)
        self._has_last[:count] = False

    def take(self, cells: Longs | slice) -> Cells:
        """Some cells, which are different; a copy."""
        keys = self._keys[cells]
        numbers = np.arange(cells.stop) if isinstance(cells, slice) else cells
        return Cells(
            keys[:, ARRIVAL].copy(),
            keys[:, BUCKET].copy(),
            keys[:, GROUP].copy(),
            self._last[cells].copy() if self._latest else numbers[:0],
            {number: column.take(cells) for number, column in self._columns.items()},
            {number: pairs.of(numbers, self.count) for number, pairs in self._sets.items()},
        )

    def set_sizes(self, number: int) -> Longs:
        """int64[count], by cell the number of values of a set."""
        return self._sets[number].sizes(self.count)

    def values_used(self, number: int) -> Longs:
        """The numbers of the values of a set, with repetitions."""
        return self._sets[number].pairs[:, 1]

    # State

    def snapshot(self) -> State:
        """All cells."""
        pieces = self._pages.pieces(self._piece, self.count)
        names: dict[str, object] = {"cells": self._pages.names}
        for number, pairs in self._sets.items():
            pages = self._set_pages[number]
            pieces |= pages.pieces(pairs.piece, len(pairs))
            names[f"set{number}"] = pages.names
        return State(pieces, names)

    def _piece(self, start: int, stop: int) -> pa.RecordBatch:
        part = slice(start, stop)
        keys = self._keys[part]
        columns: dict[str, ArrowArray] = {
            name: pa.array(keys[:, column].copy()) for column, name in enumerate(_KEYS)
        }
        if self._latest:
            columns[_LAST] = pa.array(self._last[part].copy())
        for number, column in self._columns.items():
            columns[str(number)] = column.take(part).to_arrow(stop - start)
        return pa.RecordBatch.from_pydict(columns)

    def restore(self, state: State) -> None:
        """Restore an empty store from ``snapshot``."""
        names = state.scalars
        for number, pairs in self._sets.items():
            pairs.restore(
                self._set_pages[number].restore_named(names[f"set{number}"], state.pieces)
            )
        pages = PagedPieces("cells")
        for piece in pages.restore_named(names["cells"], state.pieces):
            CellStore.add(self, self._stored(piece), "")
        self._pages = pages

    def _stored(self, piece: pa.RecordBatch) -> Cells:
        arrival, bucket, group = (piece.column(name).to_numpy() for name in _KEYS)
        none = np.empty(0, dtype=np.int64)
        values = {
            number: from_arrow(array, type_of_column(self._plan[number]))
            for number in self._columns
            for array in (piece.column(str(number)),)
        }
        last = piece.column(_LAST).to_numpy() if self._latest else none
        return Cells(arrival, bucket, group, last, values, dict.fromkeys(self._sets, (none, none)))


class _PairSet:
    """Sets of values of cells, for ``distinctCount``: pairs of a cell and the number of a value.

    They are different, and numbered from 0 in the order of their first event.
    """

    def __init__(self) -> None:
        self._rows = RowNumbers(_PAIR)

    def __len__(self) -> int:
        return self._rows.count

    @property
    def pairs(self) -> Longs:
        """int64[n, 2], the cells and their values."""
        return self._rows.keys[: self._rows.count]

    def add(self, cells: Longs, values: Longs) -> None:
        """Add pairs; those that are there already change nothing."""
        pairs = np.ascontiguousarray(np.stack([cells, values], axis=1))
        self._rows.number(pairs, np.zeros(len(cells), dtype=np.bool_))

    def of(self, cells: Longs, count: int) -> tuple[Longs, Longs]:
        """The pairs of some of ``count`` cells: the places in ``cells``, and the values."""
        place = np.full(count, -1, dtype=np.int64)
        place[cells] = np.arange(len(cells))
        pairs = self.pairs
        places = place[pairs[:, 0]]
        is_chosen = places >= 0
        return places[is_chosen], pairs[is_chosen, 1]

    def sizes(self, count: int) -> Longs:
        """int64[count], the number of values of each cell."""
        return np.bincount(self.pairs[:, 0], minlength=count).astype(np.int64)

    def keep(self, cells: Longs, count: int) -> None:
        """Drop the pairs of all but some of ``count`` cells, which are numbered from 0 then."""
        places, values = self.of(cells, count)
        self.replace(places, values)

    def replace(self, cells: Longs, values: Longs) -> None:
        """Replace all pairs by others, which are different."""
        self._rows = RowNumbers(_PAIR)
        if len(cells):
            self.add(cells, values)

    def piece(self, start: int, stop: int) -> pa.RecordBatch:
        """The pairs numbered ``start`` to below ``stop``."""
        part = self.pairs[start:stop]
        columns = [pa.array(part[:, column].copy()) for column in range(_PAIR)]
        return pa.RecordBatch.from_arrays(columns, names=["cell", "value"])

    def restore(self, pieces: Sequence[pa.RecordBatch]) -> None:
        """Restore what ``piece`` returned, in order."""
        self._rows = RowNumbers(_PAIR)
        for piece in pieces:
            self.add(*(piece.column(name).to_numpy() for name in ("cell", "value")))
