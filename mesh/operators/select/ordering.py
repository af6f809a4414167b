"""``order by``, ``limit`` and ``offset``, each over the events emitted at once: a chunk.

Successive current events, or expired ones, are sorted among themselves: ``ranks`` has the order of
values.  ``offset`` drops the first of a chunk; then ``limit`` passes that many, and of the others
those that expire.

With ``group by``, and no batch window, only ``limit`` applies, and to expired events as well.

Source: observed on Siddhi 5.1.7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mesh.operators.base import CURRENT, RESET
from mesh.operators.select.ranks import sort_columns
from mesh.operators.total_order import instance_chunk_begins

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.functions.vectors import Vector
    from mesh.language.syntax import Direction
    from mesh.operators.base import Bools, EventBatch, Longs


def in_order(events: EventBatch, keys: Sequence[tuple[Vector, Direction]]) -> Longs:
    """The indices of ``events`` in the order of ``keys``, the first of which counts most."""
    breaks = instance_chunk_begins(events)
    breaks[1:] |= events.kind[1:] != events.kind[:-1]
    if breaks.all():
        return np.arange(len(events.order))
    sort_keys = [(vector.spread(len(events.order)), direction) for vector, direction in keys]
    columns = [np.cumsum(breaks), *sort_columns(sort_keys)]
    return np.lexsort(columns[::-1])


def places(events: EventBatch) -> Longs:
    """int64[n], the number of events before each in its chunk."""
    first = np.flatnonzero(instance_chunk_begins(events))
    lengths = np.diff(np.append(first, len(events.order)))
    return np.arange(len(events.order)) - np.repeat(first, lengths)


def limited(events: EventBatch, limit: int | None, offset: int | None) -> Bools:
    """bool[n], the ``events`` to emit; resets of aggregates are emitted, and not counted."""
    resets = events.kind == RESET
    place = places(events) - (offset or 0)
    if resets.any():
        before = np.cumsum(resets) - resets
        place -= before - np.maximum.accumulate(np.where(instance_chunk_begins(events), before, 0))
    going: Bools = (place >= 0) | resets
    if limit is not None:
        going &= (place < limit) | (events.kind != CURRENT)
    return going
