"""Rows that a writer is given, and their order; those that a database refuses, found by halving.

Which statements write them is the caller's.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from mesh.model.stored import StoredTable
    from mesh.model.values import Row

    #: Writes rows, by number: all of them, or none; then it returns the reason.
    Attempt = Callable[[Sequence[int]], str | None]


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


def write_most(rows: Sequence[int], attempt: Attempt) -> dict[int, str]:
    """Write all rows but those that are refused by themselves; these by number, with reasons.

    One refused row of n costs some 2 log n attempts.  A row that is refused only beside an old row
    is written once the other has changed: what is refused is tried again, until that changes
    nothing.
    """
    refused = _halved(rows, attempt)
    while 0 < len(refused) < len(rows):
        rows = sorted(refused)
        refused = _halved(rows, attempt)
    return refused


def _halved(rows: Sequence[int], attempt: Attempt) -> dict[int, str]:
    refused: dict[int, str] = {}
    parts = [rows] if rows else []
    while parts:
        part = parts.pop()
        reason = attempt(part)
        if reason is None:
            continue
        if len(part) == 1:
            refused[part[0]] = reason
            continue
        middle = len(part) // 2
        # The earlier half first: of two rows that exclude each other, the earlier one is written.
        parts += [part[middle:], part[:middle]]
    return refused
