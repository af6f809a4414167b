"""Entries in order of arrival, stored in runs that never change.

A run is a record batch of entries with rising numbers, beside a mask of the entries that still
wait.  The entries since the last snapshot are a new run.  The last runs are merged as soon as one
is not much larger than the next.  So there are few of them, and each entry is written a few times
at most.  A run of which less than half still waits is rewritten without the rest.

A run's content determines the name of its piece: runs with the same name are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from mesh.operators.base import concat
from mesh.operators.state.range_pieces import NUMBER, named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.operators.base import Bools, Longs

#: Approximate limit of entries in a run; a run of this size is not merged with others.
_FULL: Final = 8192
#: A run that is so many times the next is not merged.
_MUCH: Final = 2


@dataclass(slots=True)
class _Run:
    rows: pa.RecordBatch
    numbers: Longs
    waits: Bools
    #: By ``named``; empty until requested.
    _name: str = ""

    @property
    def name(self) -> str:
        """The name of its piece."""
        if not self._name:
            self._name = named("run", self.rows)
        return self._name

    @property
    def count(self) -> int:
        """Number of its waiting entries."""
        return int(np.count_nonzero(self.waits))

    def waiting(self) -> pa.RecordBatch:
        """Those that wait, in memory of their own."""
        return self.rows.take(np.flatnonzero(self.waits))


def _run(rows: pa.RecordBatch) -> _Run:
    numbers = rows.column(NUMBER).to_numpy()
    return _Run(rows, numbers, np.ones(rows.num_rows, dtype=np.bool_))


class Runs:
    """All entries that wait, and some that no longer do."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []

    def enter(self, rows: pa.RecordBatch) -> None:
        """Add entries with numbers beyond the earlier ones."""
        for start in range(0, rows.num_rows, _FULL):
            places = np.arange(start, min(start + _FULL, rows.num_rows))
            self._runs.append(_run(rows.take(places) if rows.num_rows > _FULL else rows))

    def leave(self, numbers: Longs) -> None:
        """Entries no longer wait; numbers that are in no run are passed over."""
        if not self._runs or not len(numbers):
            return
        numbers = np.sort(numbers)
        firsts = np.array([int(run.numbers[0]) for run in self._runs])
        cuts = [*np.searchsorted(numbers, firsts).tolist(), len(numbers)]
        for run, start, stop in zip(self._runs, cuts, cuts[1:], strict=False):
            mine = numbers[start:stop]
            if len(mine):
                places = np.minimum(np.searchsorted(run.numbers, mine), len(run.numbers) - 1)
                run.waits[places[run.numbers[places] == mine]] = False

    def settle(self) -> None:
        """Merge runs, and rewrite those with few waiting entries."""
        runs: list[_Run] = []
        for run in self._runs:
            count = run.count
            if not count:
                continue
            if 2 * count < len(run.waits):
                run = _run(run.waiting())
            runs.append(run)
        while len(runs) > 1:
            last, before = len(runs[-1].waits), len(runs[-2].waits)
            if before >= _FULL or before > _MUCH * last:
                break
            rows = concat([runs[-2].waiting(), runs[-1].waiting()])
            runs[-2:] = [_run(rows)]
        self._runs = runs

    def pieces(self) -> dict[str, pa.RecordBatch]:
        """A piece for each run, and one with the masks of waiting entries."""
        by_name = {run.name: run.rows for run in self._runs}
        bits = np.packbits(np.concatenate([np.empty(0, np.bool_), *(r.waits for r in self._runs)]))
        waits = pa.record_batch({"bits": pa.array(bits)})
        return {**by_name, named("waits", waits): waits}

    def names(self) -> list[str]:
        """The names of the runs, in order."""
        return [run.name for run in self._runs]

    def restore(self, names: Sequence[str], pieces: Mapping[str, pa.RecordBatch]) -> None:
        """Restore from the result of ``pieces``, with the names from ``names``."""
        (waits,) = (rows for name, rows in pieces.items() if name.startswith("waits-"))
        bits = np.unpackbits(waits.column("bits").to_numpy()).astype(np.bool_)
        self._runs = []
        at = 0
        for name in names:
            rows = pieces[name]
            mask = bits[at : at + rows.num_rows].copy()
            self._runs.append(_Run(rows, rows.column(NUMBER).to_numpy(), mask, name))
            at += rows.num_rows

    def waiting(self, schema: pa.Schema) -> pa.RecordBatch:
        """All entries that wait, by number."""
        parts = [run.waiting() for run in self._runs]
        return concat(parts) if parts else pa.RecordBatch.from_pylist([], schema)
