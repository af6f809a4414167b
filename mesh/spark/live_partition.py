"""Live state of one partition of a stateful group, and the time at which it is due next.

Clock of an input stream: event times or the broker's time.

``@App:playback(idle.time, increment)``: the clock of events advances while none come.

The time without events is the broker's, so it follows from the log alone: whatever ranges an
instance reads in, the clock is advanced between the same messages.

    message at 12:00:00.0, idle.time 1 sec      ticks at 12:00:01.0, 12:00:02.0
    next message at 12:00:02.5                  its idle time begins here
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from mesh.language.syntax import find
from mesh.operators.executor import Executor
from mesh.operators.failures import FAILED
from mesh.plan.annotations import playback_times
from mesh.plan.bind.apps import bind_group
from mesh.spark.partitioning import restrict_to_partition

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from mesh.model.values import JsonMapping, JsonObject
    from mesh.plan.bound import BoundApp
    from mesh.spark.instance_io import InstanceIO
    from mesh.spark.store_output import StoreOutput


#: Name of the idle time among the stored clocks; no stream has it.
_IDLE: Final = "#idle"


def executor_of(io: InstanceIO, number: int, shard: str = "") -> Executor:
    """The operators of one virtual partition of a group, without state."""
    app = restrict_to_partition(bind_group(io.group), number, io.partition_count)
    outputs = dict.fromkeys(channel.stream.name for channel in io.group.outputs)
    return Executor(app, [*outputs, FAILED], salt=io.producer(str(number)), shard=shard)


@dataclass(slots=True)
class LivePartition:
    """The live state of one partition at one position."""

    executor: Executor
    #: Clocks by input stream of the app.
    clocks: dict[str, StreamClock] = field(default_factory=dict)
    #: Last sequence processed, for JetStream streams in which the restored state is ahead of the
    #: start of the batch.
    ahead: Mapping[str, int] = field(default_factory=dict)
    #: Of playback whose clock advances without events.
    idle: IdleTime | None = None
    #: Writers of its tables in databases; None without such tables.
    stores: StoreOutput | None = None

    def close(self) -> None:
        """Close connections to databases."""
        if self.stores is not None:
            self.stores.close()

    def times(self) -> dict[str, int]:
        """Time up to which each stream is known.

        No time passes before the first event of all.  A stream without events has the broker's
        time, limited by the other streams' times.  So their events precede its first one in the
        order, however batches are divided.
        """
        started = [clock.now_ms for clock in self.clocks.values() if clock.is_started]
        reached = min(started, default=0)
        return {
            name: clock.now_ms if clock.is_started else min(clock.now_ms, reached)
            for name, clock in self.clocks.items()
        }

    def wakeup_ms(self) -> int | None:
        """The time at which a batch is due without messages; None if time alone changes nothing."""
        if self.idle is not None:
            timer_ms = self.executor.next_time()
            return None if timer_ms is None else self.idle.due_ms(timer_ms - self.executor.now_ms)
        due = self.executor.wakeup_time()
        if due is None or any(c.by_events and c.now_ms < due for c in self.clocks.values()):
            return None
        return due

    def stored_clocks(self) -> JsonObject:
        """The clocks as they are stored with the state."""
        clocks: JsonObject = {
            name: (c.now_ms, c.by_events, c.is_started) for name, c in self.clocks.items()
        }
        return clocks if self.idle is None else {**clocks, _IDLE: self.idle.since_ms}

    def restore_clocks(self, stored: JsonMapping) -> None:
        """Restore ``stored_clocks``."""
        for name, values in stored.items():
            if name != _IDLE:
                self.clocks[name] = StreamClock(*values)
            elif self.idle is not None:
                self.idle.since_ms = values


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
