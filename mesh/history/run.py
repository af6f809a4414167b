"""Past events through the groups of an app, without channels, Spark and sinks.

Rows go from a group straight to the groups that read it, divided by key where its channel is.  The
operators are those of an instance, and their result depends on nothing but events and times; so the
states are those that instances would have after these events.  A group's output positions are
counted in its state: instances continue with the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.model.app import Format, GroupKind, Strategy
from mesh.model.cluster import Assignment
from mesh.model.history import HistoryState
from mesh.operators.executor import Executor, InputRun
from mesh.operators.failures import FAILED
from mesh.operators.on_demand import as_chunk
from mesh.plan.history import entrances
from mesh.spark.instance_io import InstanceIO, js_stream_of
from mesh.spark.live_partition import Partition
from mesh.spark.local_state import LocalState, Manifest, Position
from mesh.spark.partitioning import restrict_to_partition, split_by_partition
from mesh.spark.routes import bound_group
from mesh.spark.snapshot_migration import sign_manifest
from mesh.spark.stream_clock import StreamClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from mesh.model.app import Channel, GroupSpec
    from mesh.model.history import HistoryTask

    Longs = npt.NDArray[np.int64]


@dataclass
class _Group:
    """A group that computes: one executor for each virtual partition."""

    io: InstanceIO
    _parts: dict[int, Partition] = field(default_factory=dict)
    _seen: dict[int, int] = field(default_factory=dict)

    @property
    def numbers(self) -> range:
        return range(self.io.partition_count)

    def part(self, number: int) -> Partition:
        """The state of a virtual partition."""
        if number not in self._parts:
            group = self.io.group
            outputs = dict.fromkeys(c.stream.name for c in group.outputs)
            app = restrict_to_partition(bound_group(group), number, self.io.partition_count)
            executor = Executor(app, [*outputs, FAILED], salt=self.io.producer(str(number)))
            clocks = {i.channel.stream.name: StreamClock() for i in group.inputs}
            self._parts[number] = Partition(executor, clocks)
        return self._parts[number]

    def run(self, number: int, rows: pa.RecordBatch, time_ms: Longs) -> Iterator[Any]:
        """The output of a virtual partition for its next events, n > 0 of them."""
        part = self.part(number)
        channel = self.io.group.inputs[0].channel
        name = channel.stream.name
        begin = self._seen.get(number, 0)
        self._seen[number] = begin + rows.num_rows
        # Each row is a message of its own; the numbers say no more than that.
        sequence = np.arange(begin, begin + rows.num_rows)
        part.clocks[name].take(time_ms, last_is_own=True)
        chunk = sequence if channel.format is Format.JSON else None
        run = InputRun(name, sequence, time_ms, rows, chunk)
        yield from part.executor.run([run], part.times(), is_by_events=True)


@dataclass
class HistoryRun:
    """The groups of an app between its past events and its first live one."""

    task: HistoryTask
    #: Events that left groups; events on which a query failed.
    emitted: int = 0
    failed: int = 0
    _groups: dict[str, _Group] = field(init=False)
    _readers: dict[tuple[str, str], list[GroupSpec]] = field(init=False)
    _entrances: tuple[Channel, ...] = field(init=False)

    def __post_init__(self) -> None:
        spec, chosen = self.task.spec, set(self.task.groups)
        groups = [g for g in spec.groups if g.name in chosen]
        self._groups = {
            g.name: _Group(_io(g, self.task.incarnation))
            for g in groups
            if g.kind is not GroupKind.PARTITIONER
        }
        self._readers = {}
        for group in groups:
            for one in group.inputs:
                self._readers.setdefault(one.channel.id, []).append(group)
        self._entrances = entrances(spec, self.task.stream)
        for made in self._groups.values():
            # A part that can't be made is found before hours of work.
            for number in made.numbers:
                made.part(number)

    @property
    def schema(self) -> pa.Schema:
        """Of the stream whose events are past."""
        return self._entrances[0].stream.arrow

    def take(self, rows: pa.RecordBatch, time_ms: Longs) -> None:
        """Run the next past events, n of them, through all groups."""
        for channel in self._entrances:
            self._place(channel, "", rows, time_ms)

    def _place(self, channel: Channel, text: str, rows: pa.RecordBatch, time_ms: Longs) -> None:
        """Give the rows of a channel to its readers, each to its partition."""
        readers = self._readers.get(channel.id, ())
        if not readers or not rows.num_rows:
            return
        if not channel.is_keyed:
            for group in readers:
                self._run(group, 0, rows, time_ms)
            return

        def events() -> Any:
            return as_chunk(rows, time_ms, int(time_ms[-1]))

        for number, chosen in split_by_partition(channel, text, rows, events):
            at: Any = pa.array(chosen)
            part, times = rows.take(at), time_ms[chosen]
            for group in readers:
                self._run(group, number, part, times)

    def _run(self, group: GroupSpec, number: int, rows: pa.RecordBatch, time_ms: Longs) -> None:
        if group.kind is GroupKind.PARTITIONER:
            for output in group.outputs:
                self._place(output, group.text, rows, time_ms)
            return
        one = self._groups[group.name]
        for made in one.run(number if group.inputs[0].strategy is Strategy.BY_KEY else 0, rows,
                            time_ms):  # fmt: skip
            if made.stream == FAILED:
                self.failed += made.rows.num_rows
                continue
            self.emitted += made.rows.num_rows
            for output in one.io.outputs(made.stream):
                self._place(output, group.text, made.rows, made.time_ms)

    def states(self) -> Iterator[HistoryState]:
        """Write the state of each part of the groups with state to its directory."""
        top = Path(self.task.directory)
        for name, one in self._groups.items():
            for number in one.numbers if one.io.group.stateful else ():
                local = LocalState(top / name / str(number))
                manifest = self._stored(one, number, local)
                pieces = {n: str(local.piece_path(n)) for n in manifest.pieces}
                data = sign_manifest(manifest, one.io.group).to_bytes().decode()
                yield HistoryState(name, one.io.part(number), data, pieces)

    def _stored(self, group: _Group, number: int, local: LocalState) -> Manifest:
        part = group.part(number)
        state = part.executor.snapshot()
        local.put_pieces(state)
        streams = [js_stream_of(i, number) for i in group.io.group.inputs]
        at = {s: {"sequence": self.task.cuts.get(s, 0), "time_ms": 0} for s in streams}
        position = Position.of(at, at)
        return Manifest(position, part.stored_clocks(), dict(state.scalars), tuple(state.pieces))


def _io(group: GroupSpec, incarnation: str) -> InstanceIO:
    name = group.instances[0]
    return InstanceIO(group, Assignment(name, group.app, group.name, 1, incarnation, "", 0, 0))
