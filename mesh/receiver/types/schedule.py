"""Times at which a source looks for news: an interval after the last look, or those of cron."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from mesh.clock import SystemClock
from mesh.functions.cron import Cron

if TYPE_CHECKING:
    from mesh.clock import Clock

#: Longest wait at a time, so that a clock that is set is noticed, seconds.
_WAIT_S: Final = 1.0


class Schedule:
    """Due times of looks.  One look may bring many batches; it ends when there are no more.

    A wall clock that is set neither delays nor hastens an interval.  One that is set back leads to
    the next time of cron from there.
    """

    def __init__(self, interval_ms: int, cron: str | None, clock: Clock | None = None) -> None:
        self._interval_s = interval_ms / 1000
        self._cron = Cron(cron) if cron else None
        self._clock = clock or SystemClock()
        #: When the last look ended, and when an interval ends on the monotonic clock.
        self._ended_ms = self._clock.wall_ms()
        self._due_s = self._clock.monotonic_s()
        self._due_ms = self._cron.first_from(self._ended_ms) if self._cron else None

    @property
    def is_due(self) -> bool:
        """Whether a look may begin or continue."""
        rest_s = self._rest_s()
        return rest_s is not None and rest_s <= 0

    def end_look(self) -> None:
        """Note that there are no more news."""
        self._ended_ms = self._clock.wall_ms()
        self._due_s = self._clock.monotonic_s() + self._interval_s
        self._due_ms = self._cron.after(self._ended_ms) if self._cron else None

    async def rest(self) -> None:
        """Wait until the next look is due, or for a while."""
        rest_s = self._rest_s()
        await asyncio.sleep(_WAIT_S if rest_s is None else min(max(rest_s, 0.0), _WAIT_S))

    def _rest_s(self) -> float | None:
        """Seconds until the next look; None if there is none."""
        if self._cron is None:
            return self._due_s - self._clock.monotonic_s()
        now_ms = self._clock.wall_ms()
        if now_ms < self._ended_ms:
            self._ended_ms, self._due_ms = now_ms, self._cron.after(now_ms)
        return None if self._due_ms is None else (self._due_ms - now_ms) / 1000
