"""Rows with numbers of their own, in pieces by ranges of numbers: a change rewrites few of them.

A piece holds the rows whose numbers are in one range, which begins at a multiple of its length, a
power of two; it is the longest that has no more than so many rows.  So where rows go the pieces
beside theirs stay as they are, and where many are gone pieces become one.  Pieces are named by what
is in them.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from mesh.operators.base import concat

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mesh.operators.base import Longs

#: The column of a row's number.
NUMBER: Final = "#"
#: Rows of a piece, at most.
_MOST: Final = 1024


def named(name: str, rows: pa.RecordBatch) -> str:
    """A name for a piece that says what is in it; ``rows`` are not a slice of others."""
    digest = blake2b(rows.num_rows.to_bytes(8), digest_size=12)
    for column in rows.columns:
        for buffer in column.buffers():
            digest.update(b"-" if buffer is None else buffer)
    return f"{name}-{digest.hexdigest()}"


def table(numbers: Longs | Sequence[int], columns: Mapping[str, pa.Array[Any]]) -> pa.RecordBatch:
    """Rows with these numbers, as ``cut`` takes them."""
    arrays = [pa.array(numbers, pa.int64()), *columns.values()]
    return pa.RecordBatch.from_arrays(arrays, names=[NUMBER, *columns])


def cut(name: str, rows: pa.RecordBatch) -> dict[str, pa.RecordBatch]:
    """The pieces of ``rows``, whose column ``NUMBER`` rises and is never negative."""
    numbers = rows.column(NUMBER).to_numpy()
    parts = [rows.take(np.arange(*part)) for part in _parts(numbers)]
    return {named(name, part): part for part in parts}


def pieces_of(name: str, pieces: Mapping[str, pa.RecordBatch]) -> dict[str, pa.RecordBatch]:
    """Those of ``pieces`` that ``cut`` gave this name."""
    return {key: piece for key, piece in pieces.items() if key.rpartition("-")[0] == name}


def joined(pieces: Mapping[str, pa.RecordBatch]) -> pa.RecordBatch:
    """The rows that ``cut`` cut, of one piece at least."""
    parts = sorted(pieces.values(), key=lambda part: part.column(0)[0].as_py() if len(part) else 0)
    return concat(parts)


def stored(name: str, pieces: Mapping[str, pa.RecordBatch]) -> pa.RecordBatch | None:
    """The rows that ``cut`` cut under this name; None where there were none."""
    found = pieces_of(name, pieces)
    return joined(found) if found else None


def _parts(numbers: Longs) -> Iterator[tuple[int, int]]:
    """The first row of each piece and the one behind it."""
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
