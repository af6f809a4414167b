"""Positions of sources and sinks: markers in the JetStream stream of the channel.

A marker is a message beside the events, on a subject of its own.  Its expected last sequence makes
the server refuse a writer that was replaced.  A source's marker ends the atomic batch of its
events, so that both are stored or neither.  A sink's marker stands alone.

Positions of the parts of a source's input, which several instances share.

Each part has a marker of its own.  A batch of events ends with the markers of the parts that it is
from, so that all are stored or none.  When a group is scaled, a part moves to another instance with
its marker; the expected sequence refuses the earlier owner.

A large position, as of a source of many files, is not stored whole each time: see ``changes_of``.

Payloads that a manager replays to a source or sink: see ``mesh.jetstream.failed``.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import re
import secrets
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson
from nats.js.errors import NotFoundError

from mesh.connect.contract import UnavailableError
from mesh.errors import MeshError
from mesh.jetstream.connection import answer_of, api_call
from mesh.model import codec, names
from mesh.model.values import JsonMapping
from mesh.telemetry import traces
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from mesh.model.cluster import Assignment
    from mesh.model.values import JsonObject


#: Error codes: the last message on a subject is not the expected one.
_WRONG_LAST: Final = (10071, 10164)
_TIMEOUT_S: Final = 5.0
#: Messages of an atomic batch, of which one is the marker.
BATCH_MAX: Final = 999
#: Markers after which the older ones are purged.
_MARKERS_MAX: Final = 256
#: Bytes of values from which on later markers have their changes only.
_LARGE: Final = 8 << 10
#: Bytes of a message besides its payload, and seconds, after which a marker has all values again:
#: it must not be among the oldest messages of a stream, which its limits remove.
_MESSAGE_BYTES: Final = 200
_WHOLE_S: Final = 60.0


class TakenOverError(Exception):
    """A newer epoch owns the position."""

    def __init__(self, epoch: int) -> None:
        super().__init__(f"epoch {epoch} has taken over")
        self.epoch = epoch


class EventLines(NamedTuple):
    """Events as JSON lines."""

    payload: bytes
    #: Their ``traceparent``; empty for none.
    parent: str = ""

    def headers(self) -> dict[str, str]:
        """The headers of the message."""
        kind = {"Content-Type": "application/json"}
        return {**kind, traces.HEADER: self.parent} if self.parent else kind


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """A stored position."""

    #: Of a sink the last sequence that is done; of a source the number of its batches; -1 for none.
    number: int = -1
    #: Position of the source, or state of the sink.
    values: JsonMapping = field(default_factory=dict)
    #: Sequence of the marker; 0 for none.
    sequence: int = 0
    #: Whether the marker is of the caller's own epoch.
    is_current: bool = False


def changes_of(before: JsonMapping, after: JsonMapping) -> JsonObject | None:
    """The merge patch (RFC 7396) that makes ``after`` of ``before``; None if there is none.

    Such a patch can't make a value null.  Numbers and flags that Python has for equal are equal.
    """
    patch: JsonObject = dict.fromkeys(before.keys() - after.keys())
    for key, value in after.items():
        if key in before and before[key] == value:
            continue
        if isinstance(value, dict):
            earlier = before.get(key)
            value = changes_of(earlier if isinstance(earlier, dict) else {}, value)
        if value is None:
            return None
        patch[key] = value
    return patch


def changed(before: JsonMapping, patch: JsonMapping) -> JsonObject:
    """Values to which a merge patch is applied."""
    after = {key: value for key, value in before.items() if key not in patch}
    for key, value in patch.items():
        if isinstance(value, dict):
            earlier = before.get(key)
            after[key] = changed(earlier if isinstance(earlier, dict) else {}, value)
        elif value is not None:
            after[key] = value
    return after


@dataclass(slots=True)
class _WholeMarker:
    """A marker with all values, of which later ones have the changes."""

    sequence: int
    values: JsonMapping
    size: int
    #: When it was stored, monotonic, seconds.
    at_s: float
    #: Bytes of the changes and events that the stream has stored since then.
    since: int = 0

    def changes(self, values: JsonMapping, event_bytes: int, now_s: float) -> bytes | None:
        """The changes as JSON; None once all that was stored is as much as the values, or old."""
        if now_s - self.at_s >= _WHOLE_S:
            return None
        patch = changes_of(self.values, values)
        if patch is None:
            return None
        octets = orjson.dumps(patch)
        self.since += len(octets) + event_bytes
        return octets if self.since <= self.size else None


@dataclass
class PositionStore:
    """The marker of one producer or reader."""

    client: Client
    js_stream: str
    name: str
    incarnation: str
    epoch: int
    _written: int = 0
    _whole: _WholeMarker | None = None

    @property
    def _subject(self) -> str:
        return f"{names.marker_subject(self.js_stream)}.{self.name}"

    async def read(self) -> SourcePosition:
        """The stored position.

        Raises:
            TakenOverError: a newer epoch has stored it; MeshError: MESH-N113, a part of it is gone;
                NatsError, TimeoutError, OSError.
        """
        js = self.client.jetstream()
        try:
            stored = await js.get_last_msg(self.js_stream, self._subject)
        except NotFoundError:
            return SourcePosition()
        marker = orjson.loads(stored.data or b"{}")
        # Epochs of another incarnation, as before a restored backup, do not compare.
        is_ours = marker.get("incarnation") == self.incarnation
        if is_ours and marker["epoch"] > self.epoch:
            raise TakenOverError(marker["epoch"])
        is_current = is_ours and marker["epoch"] == self.epoch
        values = marker.get("source") or {}
        if "whole" in marker:
            values = changed(await self._values_at(marker["whole"]), marker["changes"])
        return SourcePosition(marker["position"], values, stored.seq or 0, is_current)

    async def _values_at(self, sequence: int) -> JsonMapping:
        """The values of a marker that has all of them."""
        try:
            stored = await self.client.jetstream().get_msg(self.js_stream, sequence)
        except NotFoundError as error:
            raise MeshError(
                "MESH-N113",
                f'position of "{self.name}" can\'t be read',
                detail=f"Message {sequence} of stream {self.js_stream} is gone, which has the most "
                "of it.",
                hint="Undeploy the app, and deploy it: the source begins as a new one.",
            ) from error
        values: JsonMapping = orjson.loads(stored.data or b"{}")["source"]
        return values

    async def write(
        self,
        before: SourcePosition,
        number: int,
        values: JsonMapping,
        subject: str = "",
        messages: Sequence[EventLines] = (),
    ) -> SourcePosition:
        """Store a position, with messages in one atomic batch if there are any.

        Returns:
            The new position; or the stored one if the server refused this write, because an answer
            was lost or another process wrote.  The caller compares the numbers.

        Raises:
            TakenOverError: a newer epoch has stored one; MeshError: MESH-N113 for refused events.
        """
        whole, octets = self._whole, b""
        now_s = time.monotonic()
        event_bytes = sum(len(one.payload) + _MESSAGE_BYTES for one in messages)
        changes = whole.changes(values, event_bytes, now_s) if whole is not None else None
        if whole is None or changes is None:
            octets = orjson.dumps(values)
            held: JsonObject = {"source": orjson.Fragment(octets)}
        else:
            held = {"whole": whole.sequence, "changes": orjson.Fragment(changes)}
        marker = self._message(before, number, held)
        sequence = await commit(self.client, self.name, [marker], subject, messages)
        if sequence is None:
            return await self.read()
        if changes is None:
            # A copy: a source may change what it has returned.
            is_large = len(octets) >= _LARGE
            self._whole = (
                _WholeMarker(sequence, orjson.loads(octets), len(octets), now_s)
                if is_large
                else None
            )
        await self.purge()
        return SourcePosition(number, values, sequence, is_current=True)

    def marker(
        self, before: SourcePosition, number: int, values: JsonMapping
    ) -> tuple[str, int, bytes]:
        """Subject, expected last sequence and payload of the message that stores a position."""
        return self._message(before, number, {"source": dict(values)})

    def _message(
        self, before: SourcePosition, number: int, held: JsonMapping
    ) -> tuple[str, int, bytes]:
        marker = {
            "position": number,
            "epoch": self.epoch,
            "incarnation": self.incarnation,
            **held,
        }
        return self._subject, before.sequence, orjson.dumps(marker)

    async def take_over(self) -> SourcePosition:
        """The stored position, stored again with this epoch, which refuses older ones."""
        while True:
            before = await self.read()
            after = await self.renew(before)
            if after.is_current:
                return after

    async def renew(self, before: SourcePosition) -> SourcePosition:
        """Store a position again, so that the stream's ``max_age`` doesn't remove it."""
        self._whole = None
        return await self.write(before, before.number, before.values)

    async def purge(self) -> None:
        """Purge old markers once there are many; they cost space only."""
        self._written += 1
        if self._written % _MARKERS_MAX:
            return
        js, whole = self.client.jetstream(), self._whole
        if whole is None:
            await js.purge_stream(self.js_stream, subject=self._subject, keep=1)
        else:
            await js.purge_stream(self.js_stream, subject=self._subject, seq=whole.sequence)


async def commit(
    client: Client,
    name: str,
    markers: Sequence[tuple[str, int, bytes]],
    subject: str = "",
    messages: Sequence[EventLines] = (),
) -> int | None:
    """Store markers, and messages before them, all in one atomic batch or none.

    Args:
        client: the host's.
        name: of the position, for messages.
        markers: at least one, as ``PositionStore.marker`` makes them.
        subject: of the messages.
        messages: events; with the markers at most ``BATCH_MAX`` + 1.

    Returns:
        The sequence of the last marker, those before it have the preceding ones; None if a marker
        was stored meanwhile by another process, or earlier and the answer was lost.

    Raises:
        MeshError: MESH-N113 for refused events; NatsError, TimeoutError, OSError.
    """
    batch = secrets.token_hex(6)
    is_batch = len(messages) + len(markers) > 1
    sent = [(subject, one.payload, one.headers()) for one in messages]
    sent += [(s, data, {"Nats-Expected-Last-Subject-Sequence": str(n)}) for s, n, data in markers]
    for count, (to, payload, headers) in enumerate(sent, 1):
        extra = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(count)} if is_batch else {}
        if count < len(sent):
            await client.publish(to, payload, headers=headers | extra)
            continue
        if is_batch:
            extra["Nats-Batch-Commit"] = "1"
        reply = await client.request(to, payload, timeout=_TIMEOUT_S, headers=headers | extra)
    answer = orjson.loads(reply.data)
    error = answer.get("error")
    if error is None:
        return int(answer["seq"])
    if error.get("err_code") in _WRONG_LAST:
        return None
    raise MeshError(
        "MESH-N113",
        f'position of "{name}" was not stored',
        detail=answer_of(error),
    )


def initial(position: SourcePosition, start: int, floor: int = 0) -> SourcePosition:
    """The position at which to begin.

    Args:
        position: the stored one.
        start: sequence after which one that was never stored begins.
        floor: last sequence before the present use of the channel: a sink that was taken out of an
            app and added again later skips what was stored in between.
    """
    number = position.number if position.number >= 0 else start
    return replace(position, number=max(number, floor))


async def check_input(client: Client, js_stream: str, name: str, position: int) -> None:
    """Check that an input has the events up to the position that a destination keeps itself.

    Raises:
        MeshError: MESH-S148, it ends before; the events that follow would be passed over.
    """
    info = await api_call(client, f"STREAM.INFO.{js_stream}")
    last = info["state"]["last_seq"] if "state" in info else position
    if position > last:
        raise MeshError(
            "MESH-S148",
            f'DATA-LOSS: the marker of "{name}" is ahead of its input',
            detail=f"It has position {position}, and stream {js_stream} ends at {last}: the stream "
            "has lost its end, or the marker was changed.",
            hint="Look which events are in the table; then correct the row of mesh_marker.",
        )


def fence_of(assignment: Assignment) -> int:
    """The epoch of an instance for the parts that it reads.

    It grows with each move of the instance, and with each change of the number of instances.
    """
    return assignment.form << 32 | assignment.epoch


def token_of(shard: str) -> str:
    """A part's name as one token of a subject."""
    return re.sub(r"[^A-Za-z0-9_-]", lambda match: f"={ord(match[0]):02x}", shard)


class ShardStore:
    """The markers of the parts that one instance reads; used as a ``PositionStore``."""

    def __init__(self, stores: Mapping[str, PositionStore], whole: PositionStore) -> None:
        """The stores by part; ``whole`` has a position from before the source had parts."""
        self._stores = stores
        self._whole = whole
        self._at: dict[str, SourcePosition] = {}

    async def take_over(self) -> SourcePosition:
        """The positions of all parts that have one, stored again with this epoch.

        Raises:
            TakenOverError: a newer epoch has a part; NatsError, TimeoutError, OSError.
        """
        for shard, store in self._stores.items():
            self._at[shard] = await store.take_over()
        if all(at.number >= 0 for at in self._at.values()):
            return self._position()
        whole = (await self._whole.read()).values
        return self._position({"": whole} if whole else {})

    def _position(self, more: Mapping[str, object] | None = None) -> SourcePosition:
        values = {shard: at.values for shard, at in self._at.items() if at.number >= 0}
        number = max((at.number for at in self._at.values()), default=-1)
        return SourcePosition(number, {**(more or {}), **values}, is_current=True)

    async def write(
        self,
        before: SourcePosition,
        number: int,
        values: JsonMapping,
        subject: str = "",
        messages: Sequence[EventLines] = (),
    ) -> SourcePosition:
        """Store the positions of some parts with messages in one atomic batch.

        As ``PositionStore.write``; ``values`` has the positions by part, ``before`` is not used.
        """
        if not values:
            return SourcePosition(number, {}, is_current=True)
        named = [(shard, self._stores[shard]) for shard in values]
        markers = [store.marker(self._at[s], number, values[s]) for s, store in named]
        last = await commit(self._whole.client, self._whole.name, markers, subject, messages)
        if last is None:
            for _, store in named:
                await store.read()
            return self._position()
        for at, (shard, store) in enumerate(named, last - len(named) + 1):
            self._at[shard] = SourcePosition(number, values[shard], at, is_current=True)
            await store.purge()
        return SourcePosition(number, values, last, is_current=True)

    async def renew(self, before: SourcePosition) -> SourcePosition:
        """Store all positions again, so that the stream's ``max_age`` doesn't remove them."""
        held = {shard: at.values for shard, at in self._at.items()}
        return await self.write(before, before.number, held)


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Replayed:
    """A payload to be taken again."""

    id: int
    #: Name of the source, or of the sink's destination: ``sink http 2``.
    connector: str
    #: Place of the event in the channel of a sink.
    sequence: int
    index: int
    payload: bytes
    #: Values of the dynamic options.
    options: Mapping[str, str] = field(default_factory=dict)


def replayed_of(data: bytes) -> Replayed:
    """The value of a manager's question."""
    request: JsonObject = orjson.loads(data)
    payload = base64.b64decode(request["payload"])
    return Replayed(
        request["id"],
        request["connector"],
        request["sequence"],
        request["index"],
        payload,
        request["options"],
    )


async def listen(
    client: Client,
    app: str,
    group: str,
    take: Callable[[Replayed], Awaitable[str | None]],
) -> Subscription:
    """Answer the questions for a group.

    Args:
        client: the host's.
        app: the app.
        group: the group of the source or sink.
        take: takes a payload, and returns None or the reason why it is refused; raises
            ``UnavailableError`` while it can't.
    """
    running: set[asyncio.Task[None]] = set()

    async def answer(message: Msg) -> None:
        try:
            reason = await take(replayed_of(message.data))
            said = {"done": True} if reason is None else {"refused": reason}
        except UnavailableError as error:
            said = {"away": str(error)}
        # A manager that got no answer would wait; the entry stays.
        except Exception as error:
            log.exception("payload not taken", extra=fields(group=group))
            said = {"away": f"{type(error).__name__}: {error}"}
        await message.respond(codec.encode(said))

    async def received(message: Msg) -> None:
        # A slow destination must not hold up the next question.
        task = asyncio.create_task(answer(message))
        running.add(task)
        task.add_done_callback(running.discard)

    # One of two instances answers while one takes over from the other.
    return await client.subscribe(
        names.connector_subject(app, group), queue="connector", cb=received
    )
