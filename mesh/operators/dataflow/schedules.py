"""Schedules of triggers: at the start, at an interval from then on, or by a cron expression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.functions.cron import Cron

if TYPE_CHECKING:
    from mesh.plan.bound import BoundTrigger


class TriggerSchedule:
    """The times of one trigger, milliseconds since 1970."""

    def __init__(self, trigger: BoundTrigger) -> None:
        text = trigger.schedule
        self._every_ms = trigger.every_ms
        self._at_start = text is not None and text.lower() == "start"
        self._cron = Cron(text) if text is not None and not self._at_start else None

    @property
    def is_cron(self) -> bool:
        """Whether the schedule is a cron expression."""
        return self._cron is not None

    def first(self, start_ms: int) -> int | None:
        """The first time, when it starts at ``start_ms``; None if there is none."""
        if self._at_start:
            return start_ms
        if self._cron is not None:
            return self._cron.first_from(start_ms)
        assert self._every_ms is not None, "a trigger has a time or a text"
        return start_ms + self._every_ms

    def after(self, time_ms: int) -> int | None:
        """The time after ``time_ms``, which is one; None if it is the last."""
        if self._at_start:
            return None
        if self._cron is not None:
            return self._cron.after(time_ms)
        assert self._every_ms is not None, "a trigger has a time or a text"
        return time_ms + max(1, self._every_ms)

    def due(self, next_ms: int | None, now_ms: int, most: int) -> list[int]:
        """The times from ``next_ms``, one of them, up to ``now_ms``; no more than ``most``."""
        times: list[int] = []
        while next_ms is not None and next_ms <= now_ms and len(times) < most:
            times.append(next_ms)
            next_ms = self.after(next_ms)
        return times
