"""``cron('..')``: the events since the last time of a schedule are emitted as a batch.

The batch expires when the next one is emitted.  The schedule begins with the window: if it contains
that second, an event that arrives within it is emitted at once.

Source: observed on Siddhi 5.1.7, live.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.operators.base import CURRENT, EXPIRED
from mesh.operators.windows.contents import encoded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mesh.functions.cron import Cron
    from mesh.model.values import Json, Row
    from mesh.operators.windows.contents import Emitter


class CronBatch:
    """The batch that is gathered, and the one before it, of one instance."""

    def __init__(self, schedule: Cron) -> None:
        self._schedule = schedule
        #: (row, time) each.
        self._current: list[tuple[int, int]] = []
        self._expires: list[tuple[int, int]] = []
        self._batch = 1

    def take(self, row: int, time_ms: int, now_ms: int, values: Row, to: Emitter) -> None:
        """Add one event; it waits for the batch."""
        if not self._current:
            after = self._schedule.first_from if to.begins else self._schedule.after
            due = after(now_ms)
            if due is not None:
                to.alarms.append(due)
        self._current.append((row, time_ms))

    def fire(self, due_ms: int, now_ms: int, to: Emitter) -> None:
        """Emit the batch."""
        for row, _ in self._expires:
            to.emit(row, EXPIRED, now_ms)
        for row, time_ms in self._current:
            to.emit(row, CURRENT, time_ms)
        self._expires, self._current = self._current, []
        self._batch += 1

    def finish(self, to: Emitter) -> None:
        """Nothing follows the events of a chunk."""

    def rows(self) -> Iterable[int]:
        """The rows in it."""
        return [row for row, _ in (*self._expires, *self._current)]

    def join_rows(self) -> Sequence[tuple[int, int]]:
        """The rows that a join finds: the batch that was emitted last."""
        return self._expires

    def lists(self) -> Iterable[tuple[int, Sequence[tuple[int, int]]]]:
        """Both batches; each keeps its number when it is emitted."""
        return [
            (self._batch, self._current),
            (self._batch - 1, self._expires),
        ]

    def parts(self) -> Iterable[tuple[int, str]]:
        """The number of the batch that is gathered."""
        return [(0, encoded(self._batch))]

    def load(
        self, parts: Mapping[int, Json], lists: Mapping[int, Sequence[tuple[int, int]]]
    ) -> None:
        """Restore what ``parts`` and ``lists`` returned."""
        self._batch = parts[0]
        self._current, self._expires = (list(lists.get(self._batch - n, ())) for n in range(2))
