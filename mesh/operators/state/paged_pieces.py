"""Rows in pages of a fixed size: a batch that changes few rows changes few pieces of state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
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
    found: list[int] = np.flatnonzero(touched[:-1]).tolist()
    return found


class PagedPieces:
    """Pieces of state, one for each page of rows; a page that changed gets a new piece."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._versions: dict[int, Version] = {}
        self._pieces: dict[int, pa.RecordBatch] = {}

    def touch(self, rows: Longs, version: Version) -> None:
        """Mark the pages of ``rows`` as changed at ``version``."""
        for page in _pages_of(rows):
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

    def versions(self) -> dict[str, Version]:
        """The versions of the pages, from which ``restore`` knows the names of the pieces."""
        return {str(page): version for page, version in self._versions.items()}

    def restore(self, versions: Any, state: State) -> dict[int, pa.RecordBatch]:
        """Restore the pieces of ``state``; returns each by the number of its first row."""
        self._versions = {int(page): version for page, version in versions.items()}
        self._pieces = {page: state.pieces[self._piece(page)] for page in sorted(self._versions)}
        return {page * _PAGE: piece for page, piece in self._pieces.items()}
