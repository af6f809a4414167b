"""Rows with numbers, in pieces by ranges of numbers: a change rewrites few of them.

A piece holds the rows with numbers in one range.  The range begins at a multiple of its length, a
power of two; it is the longest that has no more than a given number of rows.  So where rows are
removed the neighbouring pieces stay unchanged, and where many are removed pieces are merged.  A
piece's content determines its name.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from mesh.operators.base import concat

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mesh.operators.base import Longs
    from pyspark_nats.arrow import ArrowArray

#: The column of a row's number.
NUMBER: Final = "#"
#: Rows of a piece, at most.
_MOST: Final = 1024


def named(name: str, rows: pa.RecordBatch) -> str:
    """A name that identifies the content of a piece; ``rows`` are not a slice of others."""
    digest = blake2b(rows.num_rows.to_bytes(8), digest_size=12)
    for column in rows.columns:
        for buffer in column.buffers():
            digest.update(b"-" if buffer is None else buffer)
    return f"{name}-{digest.hexdigest()}"


def table(numbers: Longs | Sequence[int], columns: Mapping[str, ArrowArray]) -> pa.RecordBatch:
    """Rows with these numbers, as ``cut`` expects them."""
    arrays = [pa.array(numbers, pa.int64()), *columns.values()]
    return pa.RecordBatch.from_arrays(arrays, names=[NUMBER, *columns])


def cut(name: str, rows: pa.RecordBatch) -> dict[str, pa.RecordBatch]:
    """The pieces of ``rows``, whose column ``NUMBER`` rises and is never negative."""
    numbers = rows.column(NUMBER).to_numpy()
    parts = [rows.take(np.arange(*part)) for part in _parts(numbers)]
    return {named(name, part): part for part in parts}


def pieces_of(name: str, pieces: Mapping[str, pa.RecordBatch]) -> dict[str, pa.RecordBatch]:
    """Those of ``pieces`` with names from ``cut``."""
    return {key: piece for key, piece in pieces.items() if key.rpartition("-")[0] == name}


def joined(pieces: Mapping[str, pa.RecordBatch]) -> pa.RecordBatch:
    """The rows that ``cut`` cut, of one piece at least."""
    parts = sorted(pieces.values(), key=lambda part: part.column(0)[0].as_py() if len(part) else 0)
    return concat(parts)


def stored(name: str, pieces: Mapping[str, pa.RecordBatch]) -> pa.RecordBatch | None:
    """The rows that ``cut`` cut under this name; None where there were none."""
    parts = pieces_of(name, pieces)
    return joined(parts) if parts else None


def _parts(numbers: Longs) -> Iterator[tuple[int, int]]:
    """The first row of each piece and the end of it."""
    if not len(numbers):
        return
    pending = [(0, 1 << int(numbers[-1]).bit_length(), 0, len(numbers))]
    while pending:
        first, length, start, stop = pending.pop()
        if stop - start <= _MOST:
            if stop > start:
                yield start, stop
            continue
        middle = first + length // 2
        cut_at = start + int(np.searchsorted(numbers[start:stop], middle))
        pending += [(middle, length // 2, cut_at, stop), (first, length // 2, start, cut_at)]
