"""Live state of one partition of a stateful group, and the time at which it is due next."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mesh.operators.executor import Executor
from mesh.operators.failures import FAILED
from mesh.plan.bind.apps import bind_group
from mesh.spark.partitioning import restrict_to_partition
from mesh.spark.stream_clock import StreamClock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.model.values import JsonMapping, JsonObject
    from mesh.spark.instance_io import InstanceIO
    from mesh.spark.store_output import StoreOutput
    from mesh.spark.stream_clock import IdleTime

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
