"""``#reorder:kslack(time, timeout, max.k, discard)``: events in the order of an attribute.

K is how late an event has been so far.  When an event has the greatest time of all, those that are
K or more older than it are emitted in order; the others wait, at most for the timeout.

Source: API documentation of siddhi-execution-reorder 5.0.
"""

from __future__ import annotations

from bisect import insort
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from mesh.operators.base import CURRENT
from mesh.operators.windows.contents import BoundedContents

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mesh.operators.windows.contents import Emitter


class Slack(BoundedContents):
    """The events of one instance that wait; ``timeout_ms`` and ``slack_max``: None without one."""

    def __init__(
        self, timeout_ms: int | None, slack_max: int | None, *, discards: bool = False
    ) -> None:
        self._timeout_ms = timeout_ms
        self._slack_max = slack_max
        self._discards = discards
        #: Ordering time, number, row and time of each event, in order.
        self._waiting: list[tuple[int, int, int, int]] = []
        self._came = 0
        self._slack = 0
        self._greatest: int | None = None
        self._sent: int | None = None
        #: The least ordering time since there was a new greatest one.
        self._least: int | None = None
        self._due_ms: int | None = None

    def take(
        self, row: int, time_ms: int, now_ms: int, values: tuple[Any, ...], to: Emitter
    ) -> None:
        """Add one event; it may let others go.  One without an ordering time passes at once."""
        at: int | None = values[0]
        if at is None:
            to.emit(row, CURRENT, time_ms)
            return
        at = int(at)
        if self._discards and self._sent is not None and at < self._sent:
            return
        self._came += 1
        insort(self._waiting, (at, self._came, row, time_ms), key=itemgetter(0, 1))
        self._least = at if self._least is None else min(self._least, at)
        if self._greatest is None or at > self._greatest:
            self._greatest = at
            late = max(self._slack, at - self._least)
            self._slack = late if self._slack_max is None else min(late, self._slack_max)
            self._least = None
            self._emit_until(at - self._slack, to)
        if self._waiting and self._timeout_ms is not None and self._due_ms is None:
            self._due_ms = now_ms + self._timeout_ms
            to.alarms.append(self._due_ms)

    def fire(self, due_ms: int, now_ms: int, to: Emitter) -> None:
        """Let all events go."""
        self._due_ms = None
        if self._waiting:
            self._emit_until(self._waiting[-1][0], to)

    def _emit_until(self, last: int, to: Emitter) -> None:
        count = 0
        for at, _, row, time_ms in self._waiting:
            if at > last:
                break
            to.emit(row, CURRENT, time_ms)
            self._sent = at
            count += 1
        del self._waiting[:count]

    def rows(self) -> Iterable[int]:
        """The rows in it."""
        return [row for _, _, row, _ in self._waiting]

    def found(self) -> Sequence[tuple[int, int]]:
        """No join reads it."""
        return ()

    def dump(self) -> Any:
        """Its state as JSON."""
        times = [self._slack, self._greatest, self._sent, self._least, self._due_ms]
        return [self._came, self._waiting, times]

    def load_dump(self, state: Any) -> None:
        """Restore what ``dump`` returned."""
        self._came, waiting, times = state
        self._waiting = [(at, number, row, time_ms) for at, number, row, time_ms in waiting]
        self._slack, self._greatest, self._sent, self._least, self._due_ms = times
