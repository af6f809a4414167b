"""Rows with numbers, in pieces by ranges of numbers: a change rewrites few of them.

A piece holds the rows with numbers in one range.  The range begins at a multiple of its length, a
power of two; it is the longest that has no more than a given number of rows.  So where rows are
removed the neighbouring pieces stay unchanged, and where many are removed pieces are merged.  A
piece's content determines its name.

Rows in pages of a fixed size: a batch that changes few rows changes few pieces of state.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from mesh.operators.base import concat

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mesh.operators.base import Longs, State
    from pyspark_nats.arrow import ArrowArray


#: The column of a row's number.
NUMBER: Final = "#"
#: Rows of a piece, at most.
_MOST: Final = 1024

#: Rows in one piece of state; a power of two, of which these are the bits.
_PAGE_BITS = 12
_PAGE = 1 << _PAGE_BITS
#: The position in the input at which a page changed; a text where groups were released before.
Version = int | str


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


def _pages_of(rows: Longs) -> list[int]:
    """The pages of ``rows``; a number below 0 has none."""
    last = int(rows.max(initial=-1)) >> _PAGE_BITS
    if last < 1:
        return [0] if last == 0 else []
    touched = np.zeros(last + 2, dtype=np.bool_)
    touched[rows >> _PAGE_BITS] = True
    return np.flatnonzero(touched[:-1]).tolist()


class PagedPieces:
    """Pieces of state, one for each page of rows; a page that changed gets a new piece."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._versions: dict[int, Version] = {}
        self._pieces: dict[int, pa.RecordBatch] = {}

    def touch(self, rows: Longs, version: Version) -> None:
        """Mark the pages of ``rows`` as changed at ``version``."""
        self._mark(_pages_of(rows), version)

    def touch_added(self, first: int, count: int, version: Version) -> None:
        """Mark the pages of rows added from ``first`` on; there are ``count`` rows now."""
        self._mark(range(first >> _PAGE_BITS, -(-count // _PAGE)), version)

    def touch_from(self, row: int, count: int, version: Version) -> None:
        """Mark the pages of all rows from ``row`` on as changed; there are ``count`` rows now."""
        for page in range(row >> _PAGE_BITS, len(self._versions)):
            del self._versions[page]
            self._pieces.pop(page, None)
        self.touch_added(row, count, version)

    def _mark(self, pages: Iterable[int], version: Version) -> None:
        for page in pages:
            self._versions[page] = version
            self._pieces.pop(page, None)

    def pieces(self, make: Any, length: int) -> dict[str, pa.RecordBatch]:
        """All pieces by name; ``make(start, stop)`` makes one."""
        for page in self._versions:
            if page not in self._pieces:
                self._pieces[page] = make(page * _PAGE, min((page + 1) * _PAGE, length))
        return {self._piece(page): piece for page, piece in self._pieces.items()}

    def _piece(self, page: int) -> str:
        return f"{self._name}-{page}-{self._versions[page]}"

    @property
    def names(self) -> list[str]:
        """The names of the pieces in order, of rows of which each has been marked."""
        return [self._piece(page) for page in range(len(self._versions))]

    def restore_named(
        self, names: Sequence[str], pieces: Mapping[str, pa.RecordBatch]
    ) -> list[pa.RecordBatch]:
        """Restore the pieces with these ``names``; returns them in order."""
        self._versions = {
            page: name.removeprefix(f"{self._name}-{page}-") for page, name in enumerate(names)
        }
        self._pieces = {page: pieces[name] for page, name in enumerate(names)}
        return list(self._pieces.values())

    def versions(self) -> dict[str, Version]:
        """The versions of the pages, from which ``restore`` knows the names of the pieces."""
        return {str(page): version for page, version in self._versions.items()}

    def restore(self, versions: Any, state: State) -> dict[int, pa.RecordBatch]:
        """Restore the pieces of ``state``; returns each by the number of its first row."""
        self._versions = {int(page): version for page, version in versions.items()}
        self._pieces = {page: state.pieces[self._piece(page)] for page in sorted(self._versions)}
        return {page * _PAGE: piece for page, piece in self._pieces.items()}
