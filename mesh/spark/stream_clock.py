"""Clock of an input stream: event times or the broker's time.

``@App:playback(idle.time, increment)``: the clock of events advances while none come.

The time without events is the broker's, so it follows from the log alone: whatever ranges an
instance reads in, the clock is advanced between the same messages.

    message at 12:00:00.0, idle.time 1 sec      ticks at 12:00:01.0, 12:00:02.0
    next message at 12:00:02.5                  its idle time begins here
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mesh.language.syntax import find
from mesh.plan.annotations import playback_times

if TYPE_CHECKING:
    import numpy.typing as npt

    from mesh.plan.bound import BoundApp


@dataclass(slots=True)
class IdleTime:
    """Counts the ticks of one partition."""

    #: Broker's time without an event after which the clock ticks, and what it advances then.
    idle_ms: int
    increment_ms: int
    #: Broker's time of the last event or tick; None before the first event.
    since_ms: int | None = None

    @classmethod
    def of(cls, app: BoundApp) -> IdleTime | None:
        """As the app says; None if its clock stands still without events."""
        annotation = find(app.annotations, "app:playback")
        times = None if annotation is None else playback_times(annotation)
        return None if times is None or min(times) <= 0 else cls(*times)

    def passed(self, until_ms: int) -> int:
        """Count the ticks up to the broker's time ``until_ms``; by how much the clock advances."""
        if self.since_ms is None or until_ms < self.since_ms:
            return 0
        ticks = (until_ms - self.since_ms) // self.idle_ms
        self.since_ms += ticks * self.idle_ms
        return ticks * self.increment_ms

    def pauses(self, broker_ms: npt.NDArray[np.int64]) -> list[int]:
        """The events, by number, before which the clock ticks; ``broker_ms``: of each event.

        The first is among them, since it depends on the events before.
        """
        gaps = np.flatnonzero(np.diff(broker_ms) >= self.idle_ms) + 1
        return [0, *gaps.tolist()] if len(broker_ms) else []

    def due_ms(self, after_ms: int) -> int | None:
        """The broker's time at which the clock has advanced by ``after_ms``, if no event comes.

        None before the first event.
        """
        ticks = max(1, -(-after_ms // self.increment_ms))
        return None if self.since_ms is None else self.since_ms + ticks * self.idle_ms


@dataclass(slots=True)
class StreamClock:
    """Clock of one input stream.

    If the last event had its own time, event times drive the clock; otherwise the broker's clock
    does, also while idle.  Before the first event neither is known to apply.  The broker's clock is
    then used as a bound: an event without a time of its own is later than that.
    """

    #: Time up to which the stream is known to be complete, milliseconds since 1970.
    now_ms: int = 0
    by_events: bool = False
    is_started: bool = False

    def take(self, times: npt.NDArray[np.int64], last_has_time: bool) -> None:
        """Advance the clock to events with these times."""
        if len(times):
            latest_ms = int(times.max())
            self.now_ms = max(self.now_ms, latest_ms) if self.is_started else latest_ms
            self.by_events = last_has_time
            self.is_started = True

    def broker_reached(self, time_ms: int) -> None:
        """Record that the stream is complete up to the broker's time ``time_ms``."""
        if not self.by_events:
            self.now_ms = max(self.now_ms, time_ms)
