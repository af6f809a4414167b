"""Positions of JetStream streams with their producers' markers, read consistently; new markers.

Resolving where an app begins to read: a place in words to a sequence of each stream.

Sizes, replicas and snapshots of apps as JetStream has them, for the leader's metrics.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import orjson
from nats.js import api
from nats.js.errors import APIError, NotFoundError

from mesh.control.restoring import JetStreamState
from mesh.jetstream import channel_reader, channels
from mesh.jetstream.channel_reader import direct_get
from mesh.jetstream.connection import api_call
from mesh.model import names
from mesh.model.backup import StreamCut
from mesh.model.begin import StartPositionKind
from pyspark_nats.protocol.jetstream import TIME_MAX_MS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from mesh.model.begin import StartPosition
    from mesh.model.cluster import AppRecord
    from mesh.model.values import JsonMapping


#: No writer of the mesh has an epoch as high.
_NO_EPOCH: Final = 2**53
#: Time of the server to answer, seconds.
_ANSWER_S: Final = 5.0
#: Payload for a producer that has published nothing; a trigger's has a start.
_NO_MARKER: Final = '{"position":-1,"start_ms":0}'

#: The server's code for a stream without such a message.
_NO_MESSAGE = 10037


async def state(client: Client, js_stream: str) -> JetStreamState | None:
    """A stream as its leader knows it; None where there is none."""
    try:
        info = await client.jetstream().stream_info(js_stream)
    except NotFoundError:
        return None
    assert info.created is not None, "the server tells when a stream was made"
    created_ms = int(info.created.timestamp() * 1000)
    return JetStreamState(created_ms, info.state.first_seq, info.state.last_seq)


async def states(client: Client, js_streams: Iterable[str]) -> dict[str, JetStreamState]:
    """Streams by name, without those that are not there."""
    by_name = {name: await state(client, name) for name in js_streams}
    return {name: one for name, one in by_name.items() if one is not None}


async def cut(client: Client, js_stream: str, incarnation: str) -> StreamCut | None:
    """A stream's last sequence and the markers of an app's producers at it; None without a stream.

    The server looks all markers up at once, as of one sequence.
    """
    info = await state(client, js_stream)
    if info is None:
        return None
    sequence, payloads = info.last, dict[str, str]()
    while True:
        marked = await markers(client, js_stream)
        if marked is None:
            break
        # Another server than the leader may have answered, which is not as far yet.
        if marked[0] >= info.last:
            sequence, payloads = marked
            break
        await asyncio.sleep(0.05)
    prefix = f"{incarnation}-"
    app_markers = {
        name.removeprefix(prefix): m for name, m in payloads.items() if name.startswith(prefix)
    }
    return StreamCut(js_stream, info.created_ms, sequence, app_markers)


async def markers(client: Client, js_stream: str) -> tuple[int, dict[str, str]] | None:
    """Producer to the payload of its newest marker, as of a sequence; None where there is none.

    The position is that of the last row, also of one that is stored after the marker.

    Raises:
        NotFoundError: there is no such stream; others of NATS.

    Source:
        github.com/nats-io/nats-architecture-and-design, ADR-31, "multi last".
    """
    prefix = f"{names.marker_subject(js_stream)}."
    while True:
        request = {"multi_last": [f"{prefix}>"], "batch": 1024}
        marked, ended = await direct_get(client, js_stream, request)
        is_empty = ended["Status"] == "404"
        sequence = 0 if is_empty else int(ended["Nats-UpTo-Sequence"])
        subjects = ((one, (one.headers or {})["Nats-Subject"]) for one in marked)
        messages = {at.removeprefix(prefix): one for one, at in subjects}
        # A marker that was replaced between being looked up and being read is left out, and
        # another server than the leader may not have it yet.
        expected = await _count(client, js_stream, f"{prefix}>")
        if is_empty and not expected:
            return None
        if not (is_empty or int(ended.get("Nats-Num-Pending", 0))) and len(messages) == expected:
            return sequence, {
                name: await _advanced(client, js_stream, one, sequence)
                for name, one in messages.items()
            }
        await asyncio.sleep(0.05)


async def _advanced(client: Client, js_stream: str, stored: Msg, last: int) -> str:
    """Payload of a marker with the position of the last row that is stored up to ``last``."""
    # Only here: it brings Arrow along.
    from pyspark_nats.sink import messages_out

    payload = stored.data.decode()
    values = orjson.loads(payload)
    if not (batch := values.get("ingest")):
        return payload
    _, key, rows, since = batch
    since = since or int((stored.headers or {})["Nats-Sequence"])
    headers = [
        one.headers.get(messages_out.HEADER)
        async for one in channel_reader.read(client, js_stream, since + 1, last)
    ]
    last_row = messages_out.last_row(bytes.fromhex(key), rows, headers)
    if last_row is not None:
        values["position"] = last_row[1]
    return orjson.dumps(values).decode()


async def _count(client: Client, js_stream: str, subject: str) -> int:
    info = await client.jetstream().stream_info(js_stream, subjects_filter=subject)
    return len(info.state.subjects or {})


async def producers(client: Client, js_stream: str) -> dict[str, str]:
    """Names of the producers of a stream, by their hash in the headers of rows."""
    from pyspark_nats.sink import messages_out

    prefix = f"{names.marker_subject(js_stream)}."
    info = await client.jetstream().stream_info(js_stream, subjects_filter=f"{prefix}>")
    writers = [subject.removeprefix(prefix) for subject in info.state.subjects or {}]
    return {messages_out.producer_hash(name): name for name in writers}


async def end_producers(
    client: Client, js_stream: str, incarnation: str, producers: Collection[str]
) -> None:
    """Have the sink refuse whatever producers of this incarnation still try to write.

    Args:
        client: the connection.
        js_stream: that they write.
        incarnation: of their app.
        producers: those that may not have a marker yet: the first write of one would be accepted.
    """
    marked = await markers(client, js_stream)
    payloads = marked[1] if marked is not None else {}
    ended = {name: payloads[name] for name in payloads if name.startswith(f"{incarnation}-")}
    for producer, payload in {**dict.fromkeys(producers, _NO_MARKER), **ended}.items():
        await _put(client, js_stream, producer, payload, _NO_EPOCH)
        if batch := orjson.loads(payload).get("ingest"):
            await _end_batch(client, js_stream, producer, batch[0])


async def _end_batch(client: Client, js_stream: str, producer: str, batch_id: str) -> None:
    """End a batch to which rows may be added without a look at the marker.

    Raises:
        NatsTimeoutError: the server does not answer.
    """
    inbox = client.new_inbox()
    subscription = await client.subscribe(f"{inbox}.>")
    try:
        await client.publish(
            f"{names.marker_subject(js_stream)}.{producer}",
            # The number is beyond all of the batch: it is ended, and nothing is stored.
            reply=f"{inbox}.{batch_id}.1.fail.{1 << 40}.3.$FI",
        )
        await subscription.next_msg(_ANSWER_S)
    finally:
        await subscription.unsubscribe()


async def begin_producers(client: Client, cut_: StreamCut, incarnation: str) -> None:
    """Write markers from which the producers of a new incarnation continue after a cut."""
    for producer, payload in cut_.markers.items():
        await _put(client, cut_.js_stream, f"{incarnation}-{producer}", payload, -1)


async def _put(client: Client, js_stream: str, producer: str, payload: str, epoch: int) -> None:
    values = {**orjson.loads(payload), "epoch": epoch}
    values.pop("ingest", None)
    await client.jetstream().publish(
        f"{names.marker_subject(js_stream)}.{producer}",
        orjson.dumps(values),
    )


async def skipped_positions(
    client: Client, streams: Iterable[str], begin: StartPosition
) -> dict[str, int]:
    """The last sequence to skip of each JetStream stream; none for a stream that is read whole.

    A position before the first stored message means that message; one after the end, the end.
    """
    if begin.kind is StartPositionKind.EARLIEST:
        return {}
    positions = {}
    for stream in streams:
        try:
            state = (await client.jetstream().stream_info(stream)).state
        except NotFoundError:
            continue
        match begin.kind:
            case StartPositionKind.LATEST:
                place = state.last_seq
            case StartPositionKind.SEQUENCE:
                place = begin.sequence - 1
            case StartPositionKind.TIME:
                place = await _before(client, stream, begin.time_ms, state.last_seq)
        positions[stream] = min(max(place, state.first_seq - 1), state.last_seq)
    return {stream: place for stream, place in positions.items() if place > 0}


async def _before(client: Client, stream: str, time_ms: int, last: int) -> int:
    """The sequence just below that of the first message not older than ``time_ms``."""
    moment = datetime.fromtimestamp(min(time_ms, TIME_MAX_MS) / 1000, UTC).isoformat(
        timespec="milliseconds"
    )
    request = {"start_time": moment.replace("+00:00", "Z"), "next_by_subj": ">"}
    answer = await api_call(client, f"STREAM.MSG.GET.{stream}", request)
    if "message" in answer:
        return int(answer["message"]["seq"]) - 1
    if answer["error"].get("err_code") != _NO_MESSAGE:
        # As that JetStream is away for now: the app would skip all that is stored.
        APIError.from_error(answer["error"])
    return last


#: Time limit of one call, seconds.
CALL_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class ChannelSize:
    """One JetStream stream of an app."""

    app: str
    js_stream: str
    bytes: int
    #: Part of its bound in bytes that is used, 0 to 1; None without a bound.
    limit_ratio: float | None
    #: Operations by which its slowest replica is behind.
    replica_lag: int


@dataclass(frozen=True, slots=True)
class Surveyed:
    """Everything, as of one look."""

    channels: tuple[ChannelSize, ...] = ()
    #: By app and group: time at which its newest snapshot was stored, seconds since 1970.
    snapshots_s: Mapping[tuple[str, str], float] | None = None


async def survey(client: Client, apps: Iterable[AppRecord]) -> Surveyed:
    """Look at the streams and snapshots of these apps; errors of NATS pass."""
    records = list(apps)
    return Surveyed(await _channels(client, records), await _snapshots(client, records))


async def _channels(client: Client, apps: list[AppRecord]) -> tuple[ChannelSize, ...]:
    owner = {
        name: app.spec.name
        for app in apps
        for channel in app.spec.channels
        for name in channel.js_streams
    }
    owner |= {names.error_js_stream(app.spec.name): app.spec.name for app in apps}
    return tuple(
        [
            size_of(info, owner[info["config"]["name"]])
            async for info in channels.all_streams(client, CALL_S)
            if info["config"]["name"] in owner
        ]
    )


def size_of(info: JsonMapping, app: str) -> ChannelSize:
    """The size of a stream from the server's information about it."""
    size, most = info["state"]["bytes"], info["config"].get("max_bytes", -1)
    replicas = (info.get("cluster") or {}).get("replicas") or []
    lag = max((replica.get("lag", 0) for replica in replicas), default=0)
    ratio = size / most if most > 0 else None
    return ChannelSize(app, info["config"]["name"], size, ratio, lag)


async def _snapshots(client: Client, apps: list[AppRecord]) -> dict[tuple[str, str], float]:
    """By app and group, from the times of the manifests; their contents are not sent."""
    groups = {
        f"{app.incarnation}.{group.name}": (app.spec.name, group.name)
        for app in apps
        for group in app.spec.groups
    }
    times_s: dict[tuple[str, str], float] = {}
    start = f"$KV.{names.SNAPSHOTS_BUCKET}."
    subscription = await client.jetstream().subscribe(
        f"{start}>",
        ordered_consumer=True,
        config=api.ConsumerConfig(
            deliver_policy=api.DeliverPolicy.LAST_PER_SUBJECT, headers_only=True
        ),
    )
    try:
        info = await subscription.consumer_info()
        delivered = info.delivered.consumer_seq if info.delivered is not None else 0
        left = (info.num_pending or 0) + delivered
        while left:
            message = await subscription.next_msg(CALL_S)
            left = message.metadata.num_pending
            key = message.subject.removeprefix(start).rpartition(".")[0]
            is_deleted = "KV-Operation" in (message.headers or {})
            if key in groups and not is_deleted:
                at_s = message.metadata.timestamp.timestamp()
                times_s[groups[key]] = max(times_s.get(groups[key], 0.0), at_s)
    finally:
        await subscription.unsubscribe()
    return times_s
