"""``order by``, ``limit`` and ``offset``, each over the events emitted at once: a chunk.

Successive current events, or expired ones, are sorted among themselves.  ``offset`` drops the first
of a chunk; then ``limit`` passes that many, and of the others those that expire.

With ``group by``, and no batch window, only ``limit`` applies, and to expired events as well.

Source: observed on Siddhi 5.1.7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mesh.language.syntax import Direction
from mesh.model.types import AttributeType
from mesh.operators.base import CURRENT, RESET
from mesh.operators.total_order import instance_chunk_begins

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.functions.vectors import Vector
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


def sort_columns(keys: Sequence[tuple[Vector, Direction]]) -> list[Any]:
    """Columns of numbers that sort rows by ``keys``: the first counts most.

    NaN is more than every number, -0.0 less than 0.0, and texts compare by their UTF-16 units, as
    Java's do.  Nulls are last in both directions.

    Nulls are equal, with any value in their place: they keep their order.
    """
    columns: list[Any] = []
    for vector, direction in keys:
        ranks = np.where(vector.null_mask, 0, _ranks(vector))
        columns += [vector.null_mask, ~ranks if direction is Direction.DESCENDING else ranks]
    return columns


def _ranks(vector: Vector) -> Longs:
    """Whole numbers in the order of the values; any for null."""
    values = vector.values
    if vector.type is AttributeType.STRING:
        encoded = values.fill_null("").dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        order = sorted(range(len(texts)), key=lambda n: texts[n].encode("utf-16-be"))
        ranks = np.empty(len(texts), dtype=np.int64)
        ranks[order] = np.arange(len(texts))
        of_rows: Longs = ranks[encoded.indices.to_numpy()]
        return of_rows
    if vector.type is AttributeType.OBJECT:
        raise AssertionError("the planner refuses to order by objects")
    if values.dtype.kind != "f":
        longs: Longs = values.astype(np.int64)
        return longs
    bits: Longs = np.where(np.isnan(values), np.nan, values).astype(np.float64).view(np.int64)
    flipped: Longs = np.where(bits < 0, bits ^ np.int64(np.iinfo(np.int64).max), bits)
    return flipped
