"""Times at which a source looks for news: an interval after the last look, or those of cron."""

from __future__ import annotations

import asyncio
from typing import Final

from mesh.clock import SystemClock
from mesh.functions.cron import Cron

#: Longest wait at a time, so that a clock that is set is noticed, seconds.
_WAIT_S: Final = 1.0


class Schedule:
    """Due times of looks.  One look may bring many batches; it ends when there are no more."""

    def __init__(self, interval_ms: int, cron: str | None) -> None:
        self._interval_ms = interval_ms
        self._cron = Cron(cron) if cron else None
        self._clock = SystemClock()
        now_ms = self._clock.wall_ms()
        self._due_ms: int | None = self._cron.first_from(now_ms) if self._cron else now_ms

    @property
    def is_due(self) -> bool:
        """Whether a look may begin or continue."""
        return self._due_ms is not None and self._clock.wall_ms() >= self._due_ms

    def end_look(self) -> None:
        """Note that there are no more news."""
        now_ms = self._clock.wall_ms()
        self._due_ms = self._cron.after(now_ms) if self._cron else now_ms + self._interval_ms

    async def rest(self) -> None:
        """Wait until the next look is due, or for a while."""
        due_ms = self._due_ms
        rest_s = _WAIT_S if due_ms is None else (due_ms - self._clock.wall_ms()) / 1000
        await asyncio.sleep(min(max(rest_s, 0.0), _WAIT_S))
