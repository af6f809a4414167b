"""Triggers: events that only time causes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.operators.base import CURRENT, LOCAL_TIMER, WHOLE, EventBatch, State
from mesh.operators.dataflow.schedules import TriggerSchedule

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
        scalars: Any = state.scalars
        self._is_started, self._next_ms = scalars["started"], scalars["next_ms"]
