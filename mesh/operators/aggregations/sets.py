"""Sets of values of cells, for ``distinctCount``: pairs of a cell and the number of a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.operators.select.hashing import RowNumbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.operators.base import Longs

#: A cell and the number of a value.
_PAIR = 2


class PairSet:
    """Different pairs, numbered from 0 in the order of their first event."""

    def __init__(self) -> None:
        self._rows = RowNumbers(_PAIR)

    def __len__(self) -> int:
        return self._rows.count

    @property
    def pairs(self) -> Longs:
        """int64[n, 2], the cells and their values."""
        return self._rows.keys[: self._rows.count]

    def add(self, cells: Longs, values: Longs) -> None:
        """Add pairs; those that are there already change nothing."""
        pairs = np.ascontiguousarray(np.stack([cells, values], axis=1))
        self._rows.number(pairs, np.zeros(len(cells), dtype=np.bool_))

    def of(self, cells: Longs, count: int) -> tuple[Longs, Longs]:
        """The pairs of some of ``count`` cells: the places in ``cells``, and the values."""
        place = np.full(count, -1, dtype=np.int64)
        place[cells] = np.arange(len(cells))
        pairs = self.pairs
        places = place[pairs[:, 0]]
        is_chosen = places >= 0
        return places[is_chosen], pairs[is_chosen, 1]

    def sizes(self, count: int) -> Longs:
        """int64[count], the number of values of each cell."""
        return np.bincount(self.pairs[:, 0], minlength=count).astype(np.int64)

    def keep(self, cells: Longs, count: int) -> None:
        """Drop the pairs of all but some of ``count`` cells, which are numbered from 0 then."""
        places, values = self.of(cells, count)
        self.replace(places, values)

    def replace(self, cells: Longs, values: Longs) -> None:
        """Replace all pairs by others, which are different."""
        self._rows = RowNumbers(_PAIR)
        if len(cells):
            self.add(cells, values)

    def piece(self, start: int, stop: int) -> pa.RecordBatch:
        """The pairs numbered ``start`` to below ``stop``."""
        part = self.pairs[start:stop]
        columns = [pa.array(part[:, column].copy()) for column in range(_PAIR)]
        return pa.RecordBatch.from_arrays(columns, names=["cell", "value"])

    def restore(self, pieces: Sequence[pa.RecordBatch]) -> None:
        """Restore what ``piece`` returned, in order."""
        self._rows = RowNumbers(_PAIR)
        for piece in pieces:
            self.add(*(piece.column(name).to_numpy() for name in ("cell", "value")))
