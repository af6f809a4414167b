"""Calls of the lineage process: a manager's answers that take time and memory.

A manager computes none of this itself: it would hold up the loop that renews the leader's lease.

The state of a fork's group, run on to the place where the app's group has drained.

    fork's snapshot ──▶ its text, over the messages up to there ──▶ state, with the app's count

Its rows are dropped: the app has emitted those up to there, with its earlier text.

The streams are those that the app reads.  Without a snapshot of the fork over the same streams, the
text is run from the first message.

Stored events of streams, the last of a range, in the order in which a group merges them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nats.errors import Error as NatsError
from nats.js.errors import NotFoundError

from mesh.errors import MeshError
from mesh.jetstream import channel_reader, connection, stream_positions
from mesh.jetstream.blob_store import open_blob_store
from mesh.jetstream.connection import connector_options
from mesh.language.parser import parse
from mesh.lineage.outputs import compare_apps
from mesh.lineage.replay import Bases, events_of, outputs, reached, subject_of
from mesh.lineage.why import Lineage
from mesh.model import codec, names
from mesh.model.app import Format
from mesh.model.cluster import Assignment
from mesh.operators.executor import InputRun
from mesh.operators.state_migration import remap
from mesh.plan.bind import bind
from mesh.spark.instance_io import InstanceIO, LocalState, Manifest
from mesh.spark.live_partition import LivePartition, StreamClock, executor_of
from mesh.spark.snapshot_migration import sign_manifest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from nats.aio.client import Client

    from mesh.jetstream.channel_reader import LogMessage
    from mesh.lineage.replay import ReplayedEvents
    from mesh.model.app import Channel, GroupSpec
    from mesh.model.begin import StartPosition
    from mesh.model.cluster import AppRecord
    from mesh.model.lineage import StoredStream
    from mesh.model.values import JsonObject
    from mesh.operators.base import State
    from mesh.settings import NatsSettings


#: Messages of one run.
_RUN: Final = 10_000

#: Messages that are read for each wanted event: a batch of an app ends with a marker.
_MESSAGES_EACH: Final = 2
#: Bytes of the events of all streams: a manager has them in its memory for a moment.
BYTES_MAX: Final = 8 << 20


def why(
    nats: NatsSettings, record: AppRecord, store: str, stream: str, sequence: int, index: int
) -> object:
    """The lineage of an event, as JSON values; see ``Lineage.why``.  ``store``: of backups."""

    async def answer() -> Any:
        async with _connected(nats) as client:
            pieces = open_blob_store(client.jetstream(), store, connector_options(nats))
            lineage = Lineage(client, record, bases=Bases(client, pieces, record))
            return codec.to_values(await lineage.why(stream, sequence, index))

    return asyncio.run(answer())


def compare(
    nats: NatsSettings,
    before: AppRecord,
    after: AppRecord,
    streams: Sequence[str],
    key: Sequence[str],
    ignored: Sequence[str],
) -> Any:
    """The comparison of two apps' outputs, as JSON values; see ``compare_apps``."""

    async def answer() -> Any:
        async with _connected(nats) as client:
            return await compare_apps(client, before, after, streams, key, ignored)

    return asyncio.run(answer())


def adopt(
    nats: NatsSettings, record: AppRecord, group: str, number: int, base: str, end: str, files: str
) -> str:
    """The state of a fork's group where the app's group is."""

    async def answer() -> str:
        async with _connected(nats) as client:
            return await adopted(client, record, group, number, base, end, Path(files))

    return asyncio.run(answer())


def stored(
    nats: NatsSettings,
    streams: Sequence[StoredStream],
    last: int,
    since: StartPosition | None,
    until: StartPosition | None,
) -> Any:
    """The last events of streams in a range, and notes; see ``stored_events``."""

    async def answer() -> Any:
        async with _connected(nats) as client:
            return await stored_events(client, streams, last, since, until)

    return asyncio.run(answer())


@asynccontextmanager
async def _connected(nats: NatsSettings) -> AsyncIterator[Client]:
    client = await connection.connect(nats, "lineage")
    try:
        yield client
    except (NatsError, TimeoutError) as error:
        raise MeshError(
            "MESH-A503",
            "NATS did not answer",
            detail=f"{type(error).__name__}: {error}.",
            hint="Try again; 'nats server check jetstream' tells more.",
        ) from error
    finally:
        await connection.close(client)


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
    async for one in channel_reader.read(client, js_stream, after + 1, to, subject_of(channel)):
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


async def stored_events(
    client: Client,
    streams: Sequence[StoredStream],
    last: int,
    since: StartPosition | None,
    until: StartPosition | None,
) -> tuple[list[tuple[int, str, JsonObject]], list[str]]:
    """The last events of streams, and notes about what is left out.

    Args:
        client: the connection.
        streams: in the order in which events of one time are merged.
        last: most events of each stream.
        since: the first place that is read; None for the beginning.
        until: the place before which events are read; None for the end.

    Returns:
        Time, stream and values of each event.

    Raises:
        MeshError: MESH-A404 for a stream that is not there, MESH-C172 for too many bytes.
    """
    entries: list[tuple[int, int, tuple[int, str, JsonObject]]] = []
    notes: list[str] = []
    size = 0
    for rank, one in enumerate(streams):
        events: list[tuple[int, JsonObject]] = []
        unreadable = 0
        for js_stream, subject in one.places:
            messages = await _messages(client, js_stream, subject, last, since, until)
            batch = events_of(js_stream, one.channel, messages)
            unreadable += len(messages) - len(set(batch.sequence.tolist()))
            first = max(0, len(batch) - last)
            rows = batch.rows.slice(first)
            size += max(rows.nbytes, sum(len(message.data) for message in messages))
            if size > BYTES_MAX:
                raise MeshError(
                    "MESH-C172",
                    "the preview exceeds its limits",
                    detail=f"The stored events have more than {BYTES_MAX >> 20} MB.",
                    hint="Read fewer of them with --last.",
                )
            events += zip(batch.time_ms[first:].tolist(), rows.to_pylist(), strict=True)
        if len(one.places) > 1:
            events.sort(key=lambda event: event[0])
        latest_ms = 0
        for time_ms, values in events[-last:]:
            # A late event keeps its place in its stream.
            latest_ms = max(latest_ms, time_ms)
            entries.append((latest_ms, rank, (time_ms, one.stream, values)))
        if unreadable:
            notes.append(f'{unreadable} messages of stream "{one.stream}" can\'t be read')
    entries.sort(key=lambda event: event[:2])
    return [event for _, _, event in entries], notes


async def _messages(
    client: Client,
    js_stream: str,
    subject: str,
    last: int,
    since: StartPosition | None,
    until: StartPosition | None,
) -> list[LogMessage]:
    """The last messages of a range with events."""
    try:
        info = await client.jetstream().stream_info(js_stream)
    except NotFoundError as error:
        raise MeshError("MESH-A404", f'JetStream stream "{js_stream}" is not there') from error
    if not info.config.allow_direct:
        raise MeshError(
            "MESH-A422",
            f'JetStream stream "{js_stream}" can\'t be read for a preview',
            detail="It is without allow_direct.",
            hint=f"Give its events as text, or run 'nats stream edit {js_stream} --allow-direct'.",
        )
    state = info.state
    first, end = state.first_seq, state.last_seq
    if since is not None:
        skipped = await stream_positions.skipped_positions(client, [js_stream], since)
        first = max(first, skipped.get(js_stream, 0) + 1)
    if until is not None:
        skipped = await stream_positions.skipped_positions(client, [js_stream], until)
        end = skipped.get(js_stream, 0)
    first = max(first, end - _MESSAGES_EACH * last + 1)
    marker = f"{names.marker_subject(js_stream)}."
    messages: deque[LogMessage] = deque()
    size = 0
    async for message in channel_reader.read(client, js_stream, first, end, subject):
        if message.subject.startswith(marker):
            continue
        messages.append(message)
        size += len(message.data)
        if len(messages) > last:
            size -= len(messages.popleft().data)
        # The last ones may be smaller, but memory is bounded before they are known.
        if size > 2 * BYTES_MAX:
            break
    return list(messages)
