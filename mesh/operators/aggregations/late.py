"""Closed cells in any order: those of one key are merged from time to time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from mesh.operators.aggregations.cells import Cells, CellStore
from mesh.operators.aggregations.loops import BUCKET, GROUP
from mesh.operators.aggregations.numbering import CellNumbers, CellOrder
from mesh.operators.base import State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.operators.aggregations.values import BaseValue
    from mesh.operators.base import Longs

#: Cells that are appended, at least, before those of one key are merged.
_LATE_MIN: Final = 262_144
#: Cells are put into the columns when they are read, or after this many additions.
_WAITING_MAX: Final = 256
#: Cells are left as they are if there are more different ones than this part of them.
_MERGED_PART: Final = 0.75


class LateCellStore(CellStore):
    """The closed cells of one duration, to which those of earlier buckets may come.

    Cells wait as they are until they are read, and are appended to the columns then: so these
    grow in large steps.
    """

    def __init__(self, plan: Sequence[BaseValue]) -> None:
        super().__init__(plan, CellOrder.LATE)
        self._waiting: list[Cells] = []
        self._waiting_count = 0
        #: Number of cells at which those of one key are merged.
        self._limit = _LATE_MIN

    @property
    def count(self) -> int:
        """Number of cells."""
        return super().count + self._waiting_count

    @property
    def _keys(self) -> Longs:
        self._settle()
        return super()._keys

    def add(self, cells: Cells, version: str) -> None:
        """See ``CellStore``."""
        # Places of merging that do not depend on how the cells are cut.
        while self.count + len(cells) > self._limit:
            room = self._limit - self.count
            self._wait(cells.part(0, room), version)
            cells = cells.part(room, len(cells))
            self._merge(version)
        self._wait(cells, version)

    def _wait(self, cells: Cells, version: str) -> None:
        if not len(cells):
            return
        if self._sets:
            super().add(cells, version)
            return
        self._pages.touch_added(self.count, self.count + len(cells), version)
        self._waiting.append(cells)
        self._waiting_count += len(cells)
        if len(self._waiting) > _WAITING_MAX:
            self._settle()

    def _settle(self) -> None:
        """Put cells that wait into the columns."""
        room = self.count
        waiting, self._waiting, self._waiting_count = self._waiting, [], 0
        for cells in waiting:
            self._put(cells, room)

    def _put(self, cells: Cells, room: int) -> Longs:
        if room > self._numbers.room:
            # They grow for long: fewer copies.
            room = max(room, min(4 * room, self._limit))
        return super()._put(cells, room)

    def _merge(self, version: str) -> None:
        """Merge the cells with the same keys, if they are many."""
        if self._has_many_keys_twice():
            merged = CellStore(self._plan)
            merged.add(self.take(slice(0, self.count)), version)
            self._columns, self._sets = merged._columns, merged._sets
            self._last, self._has_last = merged._last, merged._has_last
            merged._numbers.become(self._order)
            self._numbers = merged._numbers
            self._last_of, self._chained = self._last_of[:0], 0
            self._touch_from(0, version)
        self._limit = _limit_after(self.count)

    def _has_many_keys_twice(self) -> bool:
        keys = self._numbers.keys
        bucket = np.concatenate([keys[:, BUCKET], *(cells.bucket for cells in self._waiting)])
        group = np.concatenate([keys[:, GROUP], *(cells.group for cells in self._waiting)])
        # An eighth of all keys, with all of their cells.
        sample = np.flatnonzero((bucket // 1000 + group) % 8 == 0)
        if 16 * len(sample) < self.count:
            sample = np.arange(self.count)
        numbers = CellNumbers(CellOrder.ANY)
        # Closed cells have one arrival.
        numbers.number(np.zeros(len(sample), dtype=np.int64), bucket[sample], group[sample])
        return numbers.count < _MERGED_PART * len(sample)

    def keep(self, cells: Longs, version: str) -> None:
        """See ``CellStore``."""
        self._settle()
        super().keep(cells, version)
        self._limit = _limit_after(self.count)

    def renumber(self, groups: Longs | None, values: Mapping[int, Longs], version: str) -> None:
        """See ``CellStore``."""
        self._settle()
        super().renumber(groups, values, version)

    def snapshot(self) -> State:
        """See ``CellStore``."""
        state = super().snapshot()
        return State(state.pieces, {**state.scalars, "limit": self._limit})

    def restore(self, state: State) -> None:
        """See ``CellStore``."""
        super().restore(state)
        limit = state.scalars.get("limit", _limit_after(self.count))
        self._limit = limit


def _limit_after(count: int) -> int:
    """The number of cells at which they are merged next, of ``count`` now."""
    return 2 * count + _LATE_MIN
