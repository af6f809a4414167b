"""Resets of aggregates by batch windows: a group starts again at its first row after a reset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.operators.base import RESET, State
from mesh.operators.native import njit
from mesh.operators.select.aggregates import GroupColumns
from mesh.operators.state.paged_pieces import PagedPieces

if TYPE_CHECKING:
    from mesh.operators.base import Bools, EventBatch, Longs
    from mesh.operators.state.paged_pieces import Version
    from mesh.operators.windows.row_refs import RowRefs


@njit
def _freshen(
    groups: Longs, reset: Bools, instance: Longs, resets: Longs, seen: Longs, fresh: Bools
) -> None:
    """Mark rows with a group that had no other row since its instance was reset.

    ``resets``: how often each instance has been reset; ``seen``: that count at the last row of the
    group.
    """
    for row in range(len(groups)):
        of = instance[row]
        if reset[row]:
            resets[of] += 1
        elif groups[row] >= 0:
            group = groups[row]
            fresh[row] = seen[group] != resets[of]
            seen[group] = resets[of]


class GroupResets:
    """The number of resets of each instance, and the number that each group saw last."""

    def __init__(self) -> None:
        self.resets = GroupColumns(resets=np.int64)
        self.seen = GroupColumns(seen=np.int64)
        self.pages = PagedPieces("resets")
        self.ever = False

    def fresh(
        self, groups: Longs, events: EventBatch | RowRefs, reached: Bools | None, version: Version
    ) -> Bools:
        """bool[n], where a group's instance has been reset since the last row of the group.

        ``reached``: which events count at all, None for all of them.
        """
        fresh = np.zeros(len(events), dtype=np.bool_)
        resets = events.kind == RESET
        if reached is not None:
            resets &= reached
        if self.ever or resets.any():
            self.ever = True
            self.resets.grow(int(events.instance.max(initial=-1)) + 1)
            _freshen(
                groups, resets, events.instance, self.resets["resets"], self.seen["seen"], fresh
            )
            self.pages.touch(events.instance[resets], version)
        return fresh

    def are_stale(self, instance_of: Longs) -> Bools:
        """bool[n], the groups of the instances ``instance_of`` that will be reset."""
        resets = np.zeros(max(int(instance_of.max(initial=0)) + 1, len(self.resets["resets"])))
        resets[: len(self.resets["resets"])] = self.resets["resets"]
        stale: Bools = self.seen["seen"][: len(instance_of)] != resets[instance_of]
        return stale

    def forget(self, instances: Longs, groups: Longs, version: Version) -> None:
        """Reset ``instances`` and ``groups`` to the initial state."""
        self.seen.forget(groups)
        existing = instances[instances < len(self.resets["resets"])]
        self.resets.forget(existing)
        self.pages.touch(existing, version)

    def pieces(self) -> dict[str, pa.RecordBatch]:
        """A piece for each page of instances."""
        return self.pages.pieces(self._page, len(self.resets["resets"]))

    def _page(self, start: int, stop: int) -> pa.RecordBatch:
        # The room after the last of them depends on how the input was cut.
        resets = np.trim_zeros(self.resets["resets"][start:stop], "b")
        return pa.RecordBatch.from_pydict({"resets": resets.copy()})

    def restore(self, versions: object, state: State) -> None:
        """Restore from the pieces; ``seen`` is in the pages of groups."""
        self.ever = False
        self.resets.clear()
        for start, piece in self.pages.restore(versions, state).items():
            self.ever = True
            self.resets.grow(start + len(piece))
            self.resets["resets"][start : start + len(piece)] = piece.column(0).to_numpy()
