"""Rows in pages of a fixed size: a batch that changes few rows changes few pieces of state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from mesh.operators.base import Longs, State

#: Rows in one piece of state; a power of two, of which these are the bits.
_PAGE_BITS = 12
_PAGE = 1 << _PAGE_BITS
#: The position in the input at which a page changed; a text where groups were released before.
Version = int | str


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
