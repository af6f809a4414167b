"""Past events through the groups of an app, without channels, Spark and sinks.

Rows go from a group straight to the groups that read it, divided by key where its channel is.  The
operators are those of an instance, and their result depends on nothing but events and times; so the
states are those that instances would have after these events.  A group's output positions are
counted in its state: instances continue with the next one.

A group of several streams merges them by time, and events wait until every stream is known beyond
their time.  A stream of past events is known as far as its rows were read, in all partitions.  At
the end all is known, so that no past event waits in a state and is emitted later.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mesh.history.rows import PastRows
from mesh.model.app import Format, GroupKind, Strategy
from mesh.model.cluster import Assignment
from mesh.model.history import HistoryState
from mesh.operators.executor import InputRun
from mesh.operators.failures import FAILED
from mesh.operators.on_demand import as_chunk
from mesh.plan.history import entrances
from mesh.spark.instance_io import InputPosition, InstanceIO, LocalState, Manifest, js_stream_of
from mesh.spark.live_partition import LivePartition, StreamClock, executor_of
from mesh.spark.partitioning import split_by_partition
from mesh.spark.snapshot_migration import sign_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mesh.model.app import Channel, GroupSpec
    from mesh.model.history import HistoryCheckpoint, HistoryTask
    from mesh.operators.executor import OutputRun


@dataclass
class _Group:
    """A group that computes: one executor for each virtual partition."""

    io: InstanceIO
    #: By stream of past events that it reads, directly or by key: the time up to which it is known.
    watermarks_ms: dict[str, int]
    #: By virtual partition.
    parts: dict[int, LivePartition] = field(default_factory=dict)
    #: By virtual partition and stream: the number of messages so far.
    seen: dict[int, dict[str, int]] = field(default_factory=dict)

    @property
    def numbers(self) -> range:
        return range(self.io.partition_count)

    def numbers_of(self, channel: Channel, number: int) -> Sequence[int]:
        """The virtual partitions that read a partition of a channel."""
        one = next(i for i in self.io.group.inputs if i.channel.id == channel.id)
        return (number,) if one.strategy is Strategy.BY_KEY else self.numbers

    def part(self, number: int) -> LivePartition:
        """The state of a virtual partition."""
        if number not in self.parts:
            clocks = {i.channel.stream.name: StreamClock() for i in self.io.group.inputs}
            self.parts[number] = LivePartition(executor_of(self.io, number), clocks)
        return self.parts[number]

    def run(self, number: int, channel: Channel, past: PastRows) -> Iterator[OutputRun]:
        """The output of a virtual partition for its next events, n > 0 of them."""
        part = self.part(number)
        name = channel.stream.name
        seen = self.seen.setdefault(number, {})
        # The numbers say no more than which events are one message.
        sequence = seen.get(name, 0) + past.message_numbers()
        seen[name] = int(sequence[-1]) + 1
        part.clocks[name].take(past.time_ms, last_has_time=True)
        chunk = sequence if channel.format is Format.JSON else None
        run = InputRun(name, sequence, past.time_ms, past.rows, chunk)
        yield from self._advance(part, [run])

    def pass_time(self, stream: str, watermark_ms: int) -> Iterator[OutputRun]:
        """The output of all partitions after a stream of past events is known up to a time."""
        self.watermarks_ms[stream] = watermark_ms
        for number in self.numbers if len(self.io.group.inputs) > 1 else ():
            yield from self._advance(self.part(number), [])

    def finish(self, end_ms: int) -> Iterator[OutputRun]:
        """The output for events that wait for others, none of which is to come."""
        for number in self.numbers if len(self.io.group.inputs) > 1 else ():
            part = self.part(number)
            for clock in part.clocks.values():
                clock.take(np.array([end_ms + 1]), last_has_time=True)
            yield from self._advance(part, [])

    def _advance(self, part: LivePartition, runs: Sequence[InputRun]) -> Iterator[OutputRun]:
        if len(part.clocks) > 1:
            self._bring_forward(part.clocks)
        yield from part.executor.run(runs, part.times(), is_by_events=True)

    def _bring_forward(self, clocks: Mapping[str, StreamClock]) -> None:
        """Set the clocks of streams to what is known of them beside their own events."""
        reached = max(clock.now_ms for clock in clocks.values())
        for name, clock in clocks.items():
            watermark_ms = self.watermarks_ms.get(name)
            if watermark_ms is not None:
                clock.take(
                    np.array([watermark_ms]) if watermark_ms else np.empty(0, np.int64), True
                )
            elif not clock.is_started:
                # As live, where the broker's clock is ahead: see ``LivePartition.times``.
                clock.broker_reached(reached)


@dataclass
class HistoryRun:
    """The groups of an app between its past events and its first live one."""

    task: HistoryTask
    #: Events that left groups; events on which a query failed.
    emitted: int = 0
    failed: int = 0
    _groups: dict[str, _Group] = field(init=False)
    _readers: dict[tuple[str, str], list[GroupSpec]] = field(init=False)
    _entrances: dict[str, tuple[Channel, ...]] = field(init=False)

    def __post_init__(self) -> None:
        spec, order = self.task.spec, {name: n for n, name in enumerate(self.task.groups)}
        groups = sorted(
            (g for g in spec.groups if g.name in order), key=lambda group: order[group.name]
        )
        past = {one.stream for one in self.task.inputs}
        self._groups = {
            g.name: _Group(
                _io(g, self.task.incarnation),
                {name: 0 for i in g.inputs if (name := i.channel.stream.name) in past},
            )
            for g in groups
            if g.kind is not GroupKind.PARTITIONER
        }
        self._readers = {}
        # A group is after its writers, so that it has what they make of a row before the row.
        for group in groups:
            for one in group.inputs:
                self._readers.setdefault(one.channel.id, []).append(group)
        self._entrances = {name: entrances(spec, name) for name in past}
        for runner in self._groups.values():
            # A part that can't be made is found before hours of work.
            for number in runner.numbers:
                runner.part(number)

    def entrances(self, stream: str) -> tuple[Channel, ...]:
        """The channels by which events of a stream enter that are past."""
        return self._entrances[stream]

    def take(self, stream: str, past: PastRows) -> None:
        """Run the next past events of a stream, n > 0 of them, through all groups."""
        for channel in self._entrances[stream]:
            self._place(channel, "", past)

    def pass_time(self, stream: str, watermark_ms: int) -> None:
        """No event of a stream that is still to come is earlier than this."""
        for name, group in self._groups.items():
            if stream in group.watermarks_ms:
                self._emit(group, self.task.spec.group(name), group.pass_time(stream, watermark_ms))

    def finish(self, end_ms: int) -> None:
        """Run the events that wait for others; ``end_ms``: the time of the last past event."""
        for name, group in self._groups.items():
            self._emit(group, self.task.spec.group(name), group.finish(end_ms))

    def _place(self, channel: Channel, text: str, past: PastRows) -> None:
        """Give the rows of a channel to its readers, each to its partition."""
        readers = self._readers.get(channel.id, ())
        if not readers or not len(past):
            return
        if not channel.is_keyed:
            for group in readers:
                self._run(group, channel, 0, past)
            return

        def events() -> Any:
            return as_chunk(past.rows, past.time_ms, int(past.time_ms[-1]))

        for number, chosen in split_by_partition(channel, text, past.rows, events):
            part = past.take(chosen)
            for group in readers:
                self._run(group, channel, number, part)

    def _run(self, group: GroupSpec, channel: Channel, number: int, past: PastRows) -> None:
        if group.kind is GroupKind.PARTITIONER:
            # It publishes each event alone.
            alone = PastRows(past.rows, past.time_ms)
            for output in group.outputs:
                self._place(output, group.text, alone)
            return
        one = self._groups[group.name]
        for part in one.numbers_of(channel, number):
            self._emit(one, group, one.run(part, channel, past))

    def _emit(self, one: _Group, group: GroupSpec | None, runs: Iterable[OutputRun]) -> None:
        assert group is not None
        for run in runs:
            if run.stream == FAILED:
                self.failed += run.rows.num_rows
                continue
            self.emitted += run.rows.num_rows
            for output in one.io.outputs(run.stream):
                self._place(output, group.text, PastRows(run.rows, run.time_ms))

    def states(self, *, of_all: bool = False) -> Iterator[HistoryState]:
        """Write the state of each part to its directory: of groups with state, or ``of_all``."""
        for name, one in self._groups.items():
            for number in one.numbers if one.io.group.stateful or of_all else ():
                local = self._local(name, number)
                manifest = self._stored(one, number, local)
                pieces = {n: str(local.piece_path(n)) for n in manifest.pieces}
                data = sign_manifest(manifest, one.io.group).to_bytes().decode()
                yield HistoryState(name, one.io.part(number), data, pieces)

    def watermarks_ms(self) -> dict[str, dict[str, int]]:
        """By group and stream: the time up to which the group knows the stream."""
        return {name: dict(group.watermarks_ms) for name, group in self._groups.items()}

    def seen(self) -> dict[str, dict[str, dict[str, int]]]:
        """By group, part and stream: the number of its messages so far."""
        return {
            name: {one.io.part(number): dict(seen) for number, seen in one.seen.items()}
            for name, one in self._groups.items()
        }

    def restore(self, checkpoint: HistoryCheckpoint) -> None:
        """Continue from a checkpoint, whose files are in the directory."""
        self.emitted, self.failed = checkpoint.emitted, checkpoint.failed
        for name, one in self._groups.items():
            one.watermarks_ms.update(checkpoint.known.get(name, {}))
            numbers = {one.io.part(number): number for number in one.numbers}
            for part, seen in checkpoint.seen.get(name, {}).items():
                one.seen[numbers[part]] = dict(seen)
            for state in (s for s in checkpoint.states if s.group == name):
                number = numbers[state.part]
                manifest = Manifest.from_bytes(state.manifest.encode())
                one.part(number).executor.restore(self._local(name, number).load(manifest))
                one.part(number).restore_clocks(manifest.clocks)

    def _local(self, group: str, number: int) -> LocalState:
        return LocalState(Path(self.task.directory) / group / str(number))

    def _stored(self, group: _Group, number: int, local: LocalState) -> Manifest:
        part = group.part(number)
        state = part.executor.snapshot()
        local.put_pieces(state)
        streams = [js_stream_of(i, number) for i in group.io.group.inputs]
        at = {s: {"sequence": self.task.cuts.get(s, 0), "time_ms": 0} for s in streams}
        position = InputPosition.of(at, at)
        return Manifest(position, part.stored_clocks(), dict(state.scalars), tuple(state.pieces))


def _io(group: GroupSpec, incarnation: str) -> InstanceIO:
    name = group.instances[0]
    return InstanceIO(group, Assignment(name, group.app, group.name, 1, incarnation, "", 0, 0))
