"""The state of a fork's group, run on to the place where the app's group has drained.

    fork's snapshot ──▶ its text, over the messages up to there ──▶ state, with the app's count

Its rows are dropped: the app has emitted those up to there, with its earlier text.

The streams are those that the app reads.  Without a snapshot of the fork over the same streams, the
text is run from the first message.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mesh.jetstream import log_reader
from mesh.language.parser import parse
from mesh.lineage.bases import outputs, reached
from mesh.lineage.reading import subject_of
from mesh.lineage.replay import events_of
from mesh.model.app import Format
from mesh.model.cluster import Assignment
from mesh.operators.executor import InputRun
from mesh.operators.state_migration import remap
from mesh.plan.bind import bind
from mesh.spark.instance_io import InstanceIO
from mesh.spark.live_partition import LivePartition, executor_of
from mesh.spark.local_state import LocalState, Manifest
from mesh.spark.snapshot_migration import sign_manifest
from mesh.spark.stream_clock import StreamClock

if TYPE_CHECKING:
    from nats.aio.client import Client

    from mesh.jetstream.log_reader import LogMessage
    from mesh.lineage.replay import ReplayedEvents
    from mesh.model.app import Channel, GroupSpec
    from mesh.model.cluster import AppRecord
    from mesh.operators.base import State

#: Messages of one run.
_RUN: Final = 10_000


async def adopted(
    client: Client, record: AppRecord, group: str, number: int, base: str, end: str, files: Path
) -> str:
    """The manifest of a state with which a part of a group continues.

    Args:
        client: the connection.
        record: the app, with the text that the state is for.
        group: the group.
        number: of the virtual partition.
        base: the manifest of the fork's state, whose pieces are in ``files``; empty for none.
        end: the manifest of the app's state: its position, its clocks and its number of rows.
        files: where the pieces are written.
    """
    spec = record.spec.group(group)
    assert spec is not None, "it is one of the app's"
    assignment = Assignment(
        spec.instances[0], spec.app, group, 1, record.incarnation, "", 0, 0, skips=record.skips
    )
    io = InstanceIO(spec, assignment)
    executor = executor_of(io, number)
    clocks = {one.channel.stream.name: StreamClock() for one in spec.inputs}
    partition, local = LivePartition(executor, clocks), LocalState(files)
    begun = dict.fromkeys(io.input_streams(number), 0)
    if base:
        manifest = Manifest.from_bytes(base.encode())
        executor.restore(_state(local, manifest, spec))
        partition.restore_clocks(manifest.clocks)
        begun = reached(manifest)
    last = Manifest.from_bytes(end.encode())
    for js_stream, one in io.input_streams(number).items():
        await _run(client, partition, io, js_stream, one.channel, begun.get(js_stream, 0),
                   reached(last).get(js_stream, 0))  # fmt: skip
    for name, (now_ms, by_events, is_started) in last.clocks.items():
        if name in clocks:
            now_ms = max(now_ms, clocks[name].now_ms)
            clocks[name] = StreamClock(now_ms, by_events, is_started)
    executor.run([], partition.times(), is_by_events=_is_by_events(partition))
    executor.count_from(outputs(last))
    state = executor.snapshot()
    local.put_pieces(state)
    result = replace(
        last, clocks=partition.stored_clocks(), scalars=dict(state.scalars),
        pieces=tuple(state.pieces),
    )  # fmt: skip
    return sign_manifest(result, spec).to_bytes().decode()


def _state(local: LocalState, manifest: Manifest, group: GroupSpec) -> State:
    """The fork's state for the group of the app; their texts may differ in more than the name."""
    state = local.load(manifest)
    if manifest.text.partition("\n")[2] == group.text.partition("\n")[2]:
        return state
    return remap(state, bind(parse(manifest.text)), bind(parse(group.text)))


async def _run(
    client: Client, partition: LivePartition, io: InstanceIO, js_stream: str, channel: Channel,
    after: int, to: int,
) -> None:  # fmt: skip
    some: list[LogMessage] = []
    async for one in log_reader.read(client, js_stream, after + 1, to, subject_of(channel)):
        if any(begin < one.sequence <= end for begin, end in io.skips(js_stream)):
            continue
        some.append(one)
        if len(some) == _RUN:
            _take(partition, events_of(js_stream, channel, some))
            some = []
    if some:
        _take(partition, events_of(js_stream, channel, some))


def _take(partition: LivePartition, events: ReplayedEvents) -> None:
    if not len(events):
        return
    name = events.channel.stream.name
    clock = partition.clocks[name]
    clock.take(events.time_ms, bool(events.has_event_time[-1]))
    chunk = events.sequence if events.channel.format is Format.JSON else None
    run = InputRun(name, events.sequence, events.time_ms, events.rows, chunk)
    partition.executor.run([run], partition.times(), is_by_events=_is_by_events(partition))


def _is_by_events(partition: LivePartition) -> bool:
    by_events = any(clock.by_events for clock in partition.clocks.values())
    return by_events or partition.executor.plays_back
