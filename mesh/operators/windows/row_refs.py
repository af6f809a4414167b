"""Output of a window as row numbers and kinds: see ``mesh.operators.query.late_selection``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from mesh.operators.base import EventBatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from mesh.operators.base import Kinds, Longs


def _none() -> Longs:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class RowRefs:
    """Arrivals, expiries and resets, m lines in order.

    ``row``: int64[m], the row that arrived or expired; undefined for a reset, or less than 0.
    ``kind``: int8[m].
    ``going``: of a sliding window the events that arrived: each is current in one of the lines, in
    their order.  Of a batch window, a function that returns the events at current lines.
    ``instance``, ``piece``: int64[m], of a batch window: the partition instance, and
    a number that changes where another chunk begins.
    """

    row: Longs
    kind: Kinds
    going: EventBatch | Callable[[Longs], EventBatch]
    instance: Longs = field(default_factory=_none)
    piece: Longs = field(default_factory=_none)

    def __len__(self) -> int:
        return len(self.row)

    def events(self, at: Longs) -> EventBatch:
        """The events at lines that are current; of a sliding window at all of those."""
        return self.going if isinstance(self.going, EventBatch) else self.going(at)
