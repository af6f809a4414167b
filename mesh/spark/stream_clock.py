"""Clock of an input stream: event times or the broker's time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


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
