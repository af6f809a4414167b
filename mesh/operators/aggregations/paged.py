"""Pages of numbered rows as pieces of state: a batch that changes few rows changes few pieces.

A piece is named after the version of the whole state at which its page changed last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from mesh.operators.base import Longs

_PAGE_BITS: Final = 12
_PAGE: Final = 1 << _PAGE_BITS


class Pages:
    """The pages of rows that are added at the end and changed anywhere."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._names: list[str] = []
        self._pieces: dict[int, pa.RecordBatch] = {}

    def touch(self, rows: Longs, version: str) -> None:
        """Mark the pages of ``rows`` as changed; there is at least one."""
        self._extend(int(rows.max()) + 1, version)
        is_touched = np.zeros(len(self._names), dtype=np.bool_)
        is_touched[rows >> _PAGE_BITS] = True
        for page in np.flatnonzero(is_touched).tolist():
            self._change(page, version)

    def touch_added(self, first: int, count: int, version: str) -> None:
        """Mark the pages of rows added from ``first`` on; there are ``count`` rows now."""
        if first & (_PAGE - 1) and len(self._names) > first >> _PAGE_BITS:
            self._change(first >> _PAGE_BITS, version)
        self._extend(count, version)

    def touch_from(self, row: int, count: int, version: str) -> None:
        """Mark the pages of all rows from ``row`` on as changed; there are ``count`` rows now."""
        first = row >> _PAGE_BITS
        for page in range(first, len(self._names)):
            self._pieces.pop(page, None)
        del self._names[first:]
        self._extend(count, version)

    def _extend(self, count: int, version: str) -> None:
        for page in range(len(self._names), -(-count // _PAGE)):
            self._names.append("")
            self._change(page, version)

    def _change(self, page: int, version: str) -> None:
        self._names[page] = f"{self._name}-{page}-{version}"
        self._pieces.pop(page, None)

    @property
    def names(self) -> list[str]:
        """The names of the pieces, in order."""
        return list(self._names)

    def pieces(
        self, count: int, make: Callable[[int, int], pa.RecordBatch]
    ) -> dict[str, pa.RecordBatch]:
        """The pieces of ``count`` rows by name; ``make(start, stop)`` makes one."""
        for page in range(len(self._names)):
            if page not in self._pieces:
                start = page << _PAGE_BITS
                self._pieces[page] = make(start, min(start + _PAGE, count))
        return {name: self._pieces[page] for page, name in enumerate(self._names)}

    def restore(
        self, names: Sequence[str], pieces: Mapping[str, pa.RecordBatch]
    ) -> list[pa.RecordBatch]:
        """Continue with stored pages; returns them in order."""
        self._names = list(names)
        self._pieces = {page: pieces[name] for page, name in enumerate(names)}
        return list(self._pieces.values())
