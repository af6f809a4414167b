"""Rows that a writer is given, and their order."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from mesh.model.stored import StoredTable
    from mesh.model.values import Row


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows for a database, n of them, on a channel of ``mesh.model.stored``.

    ``position``: int64[n], growing.
    """

    channel: str
    position: Any
    rows: pa.RecordBatch


def keys_of(table: StoredTable, rows: pa.RecordBatch) -> list[Row]:
    """The key of each row of a table."""
    return list(zip(*(rows.column(c.name).to_pylist() for c in table.keys), strict=True))


def after(batch: StoredRows, position: int) -> StoredRows:
    """The rows after a position."""
    first = int(np.searchsorted(batch.position, position, side="right"))
    if not first:
        return batch
    return StoredRows(batch.channel, batch.position[first:], batch.rows.slice(first))


def in_order(batches: Sequence[StoredRows]) -> Iterator[StoredRows]:
    """Batches of several channels, cut at purges: rows and purges of a table keep their order."""
    purges = sorted(
        int(position)
        for batch in batches
        if batch.channel.startswith("@purge")
        for position in batch.position
    )
    if not purges:
        yield from batches
        return
    bounds = [0, *purges, np.iinfo(np.int64).max]
    for start, stop in pairwise(bounds):
        for batch in batches:
            first, end = np.searchsorted(batch.position, [start, stop], side="right")
            if end > first:
                yield StoredRows(
                    batch.channel, batch.position[first:end], batch.rows.slice(first, end - first)
                )
