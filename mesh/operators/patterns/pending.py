"""Partial matches that wait at one step of a pattern, and how they are stored.

Partial matches come at the end and go from anywhere.  They are stored in chunks by serial number:
the place in the row of those that came to the step.  A chunk that lost or gained one gets another
name, made of the number of events that the pattern had seen then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.operators.base import Longs, State, concat

if TYPE_CHECKING:
    from mesh.functions.vectors import Mask

#: Serial numbers in one chunk.
CHUNK = 4096
_START = "#start_ms"
_SERIAL = "#serial"


@dataclass(frozen=True, slots=True)
class Pending:
    """Partial matches, in the order in which they came to wait.

    ``start_ms``: the time of the first event of each; ``since``: the event of the batch since which
    each waits, -1 from before; ``dead``: the event of the batch that drops it, past the end if
    none;
    ``rows``: the attributes of the steps so far.
    """

    start_ms: Longs
    since: Longs
    dead: Longs
    rows: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.start_ms)

    def join(self, later: Pending) -> Pending:
        """These, and behind them ``later``."""
        if not len(later):
            return self
        if not len(self):
            return later
        return Pending(
            np.concatenate([self.start_ms, later.start_ms]),
            np.concatenate([self.since, later.since]),
            np.concatenate([self.dead, later.dead]),
            concat([self.rows, later.rows]),
        )


class PendingStore:
    """What waits between batches, oldest first."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._start_ms: Longs = np.empty(0, dtype=np.int64)
        #: Grows along the rows; its chunk is serial // CHUNK.
        self._serial: Longs = np.empty(0, dtype=np.int64)
        self._rows = pa.RecordBatch.from_pylist([], schema)
        #: Serial numbers given since they were last begun anew, at event ``_epoch``.
        self._next_serial = 0
        self._epoch = 0
        #: By chunk, the number of events seen when it last changed.
        self._versions: dict[int, int] = {}

    @property
    def start_ms(self) -> Longs:
        """The time of the first event of each that waits."""
        return self._start_ms

    def waiting(self, dead: Longs) -> Pending:
        """Everything that waits; ``put`` says afterwards what still does."""
        since = np.full(len(self._start_ms), -1, dtype=np.int64)
        return Pending(self._start_ms, since, dead, self._rows)

    def put(self, waiting: Pending, stays: Mask, carried: int, seen: int) -> None:
        """Keep those of ``waiting`` that ``stays`` marks.

        The first ``carried`` were here before; ``seen`` events the pattern has seen by now.
        """
        came = len(waiting) - carried
        serial = np.concatenate(
            [self._serial, np.arange(self._next_serial, self._next_serial + came)]
        )
        self._next_serial += came
        changed = np.concatenate([~stays[:carried], stays[carried:]])
        if not changed.any():
            return
        touched = set((serial[changed] // CHUNK).tolist())
        self._serial = serial[stays]
        self._start_ms = waiting.start_ms[stays]
        self._rows = waiting.rows.take(np.flatnonzero(stays))
        if self._is_sparse():
            # Old chunks with few rows left would make ever more small pieces.
            self._serial = np.arange(len(self._serial))
            self._next_serial, self._epoch = len(self._serial), seen
            self._versions = {}
            touched = set((self._serial // CHUNK).tolist())
        present = set((self._serial // CHUNK).tolist())
        self._versions |= dict.fromkeys(touched, seen)
        self._versions = {c: v for c, v in self._versions.items() if c in present}

    def _is_sparse(self) -> bool:
        chunks = len(np.unique(self._serial // CHUNK))
        return chunks > 16 + 4 * len(self._serial) // CHUNK

    def _name(self, chunk: int, version: int) -> str:
        return f"{self._epoch}-{chunk}-{version}"

    def snapshot(self) -> State:
        """A piece for each chunk."""
        pieces = {}
        chunks = self._serial // CHUNK
        for chunk, version in sorted(self._versions.items()):
            start, stop = np.searchsorted(chunks, [chunk, chunk + 1]).tolist()
            piece = self._rows.slice(start, stop - start)
            piece = piece.append_column(_START, pa.array(self._start_ms[start:stop]))
            pieces[self._name(chunk, version)] = piece.append_column(
                _SERIAL, pa.array(self._serial[start:stop])
            )
        scalars = {
            "next": self._next_serial,
            "epoch": self._epoch,
            "versions": [[chunk, version] for chunk, version in sorted(self._versions.items())],
        }
        return State(pieces, scalars)

    def restore(self, state: State) -> None:
        """Take over chunks and numbers."""
        scalars: Any = state.scalars
        self._next_serial = scalars["next"]
        self._epoch = scalars["epoch"]
        self._versions = dict(scalars["versions"])
        pieces = [state.pieces[self._name(*named)] for named in scalars["versions"]]
        if not pieces:
            return
        together = concat(pieces)
        self._start_ms = together.column(_START).to_numpy()
        self._serial = together.column(_SERIAL).to_numpy()
        self._rows = together.select(self._schema.names)
