"""Checkpoints of a running history: its states after a batch of rows, and where its inputs are.

A checkpoint is of one history: another app, other inputs or other rows in them have another mark,
and are run from the beginning.  Between two checkpoints most pieces of a state are the same files.
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import mesh
from mesh.model import codec
from mesh.model.history import HistoryCheckpoint

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from mesh.history.reader import PastReader
    from mesh.history.run import HistoryRun
    from mesh.model.history import HistoryReport, HistoryTask

#: Part of the time that goes into checkpoints at most.
_SHARE: Final = 0.05


def mark_of(task: HistoryTask, readers: Sequence[PastReader]) -> str:
    """The digest of a history."""
    digest = hashlib.sha256(mesh.__version__.encode())
    for one in (task.spec, *task.inputs):
        digest.update(codec.encode(one) + b"\0")
    for reader in readers:
        digest.update(reader.contents().encode() + b"\0")
    return digest.hexdigest()


class Checkpoints:
    """The checkpoints of one process.

    Args:
        task: its order.
        mark: of the history, by ``mark_of``.
        is_pending: set here when one is made, until the manager has stored it.
    """

    def __init__(self, task: HistoryTask, mark: str, is_pending: threading.Event) -> None:
        checkpoint = task.checkpoint
        #: Where the process begins; None for the beginning.
        self.begun = checkpoint if checkpoint is not None and checkpoint.mark == mark else None
        self._task, self._mark, self._is_pending = task, mark, is_pending
        self._due_s = time.monotonic() + task.checkpoint_s

    def is_due(self, at_s: float) -> bool:
        """Whether it is time for one, and the manager no longer reads files of the one before."""
        return at_s >= self._due_s and not self._is_pending.is_set()

    def create(
        self, history: HistoryRun, now: HistoryReport, places: Sequence[tuple[int, int]]
    ) -> HistoryCheckpoint:
        """A checkpoint, when one is due, in the place of the one before.

        Args:
            history: as far as it was run.
            now: its counts.
            places: that of the reader, and the highest time, of each input.
        """
        self._is_pending.set()
        began_s = time.monotonic()
        states = tuple(history.states(of_all=True))
        self._drop_old({path for state in states for path in state.pieces.values()})
        ended_s = time.monotonic()
        self._due_s = ended_s + max(self._task.checkpoint_s, (ended_s - began_s) / _SHARE)
        return HistoryCheckpoint(
            self._mark, now.rows, now.later, history.emitted, history.failed,
            tuple(place for place, _ in places), tuple(ms for _, ms in places),
            history.watermarks_ms(), history.seen(), states, now.unreadable,
        )  # fmt: skip

    def _drop_old(self, named: set[str]) -> None:
        """Remove files that this checkpoint does not name."""
        for path in Path(self._task.directory).glob("*/*/*.arrow"):
            if str(path) not in named:
                path.unlink()
