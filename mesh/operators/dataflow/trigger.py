"""Triggers: events that only time causes, and the schedules of these."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.functions.cron import Cron
from mesh.operators.base import CURRENT, LOCAL_TIMER, WHOLE, EventBatch, State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.operators.base import Timeline
    from mesh.operators.dataflow.graph import Outputs
    from mesh.plan.bound import BoundTrigger


class TriggerNode:
    """``define trigger T at ..``; the app starts with the first call."""

    def __init__(self, trigger: BoundTrigger) -> None:
        self._trigger = trigger
        self._schema = trigger.schema.arrow
        self._schedule = TriggerSchedule(trigger)
        self._is_started = False
        self._next_ms: int | None = None

    def process(self, inputs: Mapping[str, Sequence[EventBatch]], timeline: Timeline) -> Outputs:
        """An event for each time that is due."""
        if not self._is_started:
            self._is_started = True
            self._next_ms = self._schedule.first(timeline.now_ms)
            if self._schedule.is_cron:
                # The engine has a separate scheduler for these, which begins when time first moves.
                return []
        due: list[int] = []
        while self._next_ms is not None and self._next_ms <= timeline.now_ms:
            due.append(self._next_ms)
            self._next_ms = self._schedule.after(self._next_ms)
        if not due:
            return []
        times = np.array(due, dtype=np.int64)
        count = len(times)
        events = EventBatch(
            times,
            times,
            timeline.timer_order(times),
            np.full(count, LOCAL_TIMER, dtype=np.int64),
            np.zeros(count, dtype=np.int64),
            np.full(count, CURRENT, dtype=np.int8),
            np.full(count, WHOLE, dtype=np.int64),
            pa.RecordBatch.from_arrays([pa.array(times)], schema=self._schema),
        )
        return [(self._trigger.schema.name, events)]

    def next_time(self) -> int | None:
        """Due time of the next event."""
        return self._next_ms

    def snapshot(self) -> State:
        """Snapshot of the next due time."""
        return State({}, {"started": self._is_started, "next_ms": self._next_ms})

    def restore(self, state: State) -> None:
        """Restore the next due time."""
        scalars = state.scalars
        self._is_started, self._next_ms = scalars["started"], scalars["next_ms"]


class TriggerSchedule:
    """The times of one trigger, milliseconds since 1970.

    They are the start, those at an interval from then on, or those of a cron expression.
    """

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
