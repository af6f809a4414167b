"""Instances of sources: those that read at their own pace, and servers to which others send.

Messages of JSON lines: the events that a source has read, many in one.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from nats.errors import Error as NatsError
from nats.js.errors import Error as JetStreamError

from mesh.connect.contract import Context, RefusedPayloadError, ShardsChangedError, UnavailableError
from mesh.jetstream.connection import no_room
from mesh.model import error_entry, names
from mesh.model.cluster import ConnectorStatus, InstanceState
from mesh.receiver.decoding import decoded, decoded_batch
from mesh.receiver.instance import ConnectorInstance
from mesh.receiver.outcomes import write_fault
from mesh.receiver.positions import BATCH_MAX, EventLines, ShardStore, fence_of, initial, token_of
from mesh.receiver.publisher import Publisher
from mesh.telemetry import traces
from mesh.telemetry.logs import fields
from pyspark_nats.arrow import kernels
from pyspark_nats.decode.result import without
from pyspark_nats.encode import to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mesh.connect.contract import Batch, Source
    from mesh.model.values import JsonObject
    from mesh.receiver.opened import Opened
    from mesh.receiver.positions import PositionStore, Replayed, SourcePosition
    from pyspark_nats.decode import DecodeResult


log = logging.getLogger(__name__)

#: Bytes of a message besides its payload.
_HEAD_ROOM: Final = 4096
#: Bytes of events in a message: many events a message cost the broker little.
_MESSAGE_BYTES: Final = 256 << 10
#: Characters of a name of a payload in the id of its entry.
_NAME_MAX: Final = 200
_RENEW_S: Final = 600.0
#: Time to delete what a source has created elsewhere.
_REMOVE_S: Final = 4.0
#: Requests whose bodies are mapped together.
_TOGETHER: Final = 512


def _decoded(
    opened: Opened, payloads: Sequence[bytes], properties: Sequence[Mapping[str, str]] | None
) -> DecodeResult:
    return decoded(opened.mapper, opened.stream.arrow, payloads, properties)


def token_of_name(name: str) -> str:
    """A payload's name as it may be in a header; a long or odd one, of others, by its digest."""
    if len(name) <= _NAME_MAX and name.isprintable():
        return name
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()


class _SourceInstance(ConnectorInstance):
    """The part that all sources have in common."""

    _endpoint = ""
    _events = _bad = 0
    _reason: str | None = None

    def _opened(self) -> tuple[Opened, Context]:
        opened = self.opened
        values = opened.values(self.environment, secrets=self._secrets)
        self._endpoint = opened.endpoint(self.environment)
        context = Context(
            self.group.app,
            opened.stream.name,
            values,
            self.environment.access,
            instance=self.assignment.instance,
            client=self.environment.client,
            index=self.assignment.index,
            count=self.group.parallel,
            is_open=getattr(opened.mapper, "is_open", None),
        )
        return opened, context

    @property
    def _room(self) -> int:
        return self.environment.client.max_payload - _HEAD_ROOM

    async def _replay(self, replayed: Replayed) -> str | None:
        """Map a payload that could not be read, and store its events."""
        result = _decoded(self.opened, [replayed.payload], [replayed.options])
        if result.errors:
            _, _, reason = result.errors[0]
            return str(reason)
        assignment = self.assignment
        js = self.environment.client.jetstream()
        for number, message in enumerate(lines_of(result.rows, min(_MESSAGE_BYTES, self._room))):
            key = f"replay-{assignment.app}-{assignment.app_incarnation}-{replayed.id}.{number}"
            headers = {"Content-Type": "application/json", "Nats-Msg-Id": key}
            try:
                await js.publish(self.group.outputs[0].subject(), message, headers=headers)
            except (NatsError, JetStreamError, TimeoutError, OSError) as error:
                said = no_room(error) or str(error)
                raise UnavailableError(f"the broker has not stored the events: {said}") from error
        self._events += result.rows.num_rows
        return None

    def _connectors(self) -> tuple[ConnectorStatus, ...]:
        (connector,) = self.group.connectors
        state = InstanceState.RETRYING if self._reason else self._state
        return (ConnectorStatus(connector, state, self._endpoint, error=self._reason),)

    def _counts(self) -> JsonObject:
        read = self._events + self._bad
        return {"events_in": read, "events_out": self._events, "errors": self._bad}


class PullInstance(_SourceInstance):
    """A source with a position: events and position are stored in one atomic batch."""

    async def _run(self) -> None:
        opened, context = self._opened()
        channel = self.group.outputs[0]
        self._used = opened.connector.map.properties
        self._on_error = str(context.options.get("on.error") or "STORE").upper()
        source: Source = self.environment.make(opened.spec)
        clock = self.environment.clock
        try:
            store = await self._store_of(source, context, channel.js_stream())
            at = initial(await store.take_over(), 0)
            await source.open(context, at.values or None)
            self._running()
            renewed_s = clock.monotonic_s()
            while not self._stopping.is_set():
                batch = await source.read()
                self._reason = getattr(source, "problem", None)
                if batch is not None:
                    result = decoded_batch(opened.mapper, opened.stream.arrow, batch, self._used)
                    if result.errors and hasattr(source, "failed"):
                        batch = source.failed(batch, {number for number, _, _ in result.errors})
                    at = await self._publish(store, at, channel.subject(), result, batch)
                    await source.committed(batch.position)
                # Also of a source that is busy: parts of its input may be idle.
                if clock.monotonic_s() - renewed_s >= _RENEW_S:
                    at, renewed_s = await store.renew(at), clock.monotonic_s()
        except ShardsChangedError:
            # It is opened again with those that it has now.
            return
        except UnavailableError as error:
            self._reason = str(error)
            raise
        finally:
            await source.close()

    async def _remove(self) -> None:
        """See ``ConnectorInstance``; a source that creates something has a method ``remove``."""
        if not hasattr(self, "opened"):
            return
        opened, context = self._opened()
        source = self.environment.make(opened.spec)
        if not hasattr(source, "remove"):
            return
        try:
            async with asyncio.timeout(_REMOVE_S):
                await source.remove(context)
        # A connector is code of others.
        except Exception as error:
            extra = fields(instance=self.assignment.instance, error=error)
            log.warning("what a removed source has created elsewhere stays", extra=extra)

    async def _store_of(
        self, source: Source, context: Context, js_stream: str
    ) -> PositionStore | ShardStore:
        """The store of its position, or of those of the parts that it reads."""
        if not hasattr(source, "shards"):
            return self.positions(js_stream, "source")
        fence = fence_of(self.assignment)
        whole = replace(self.positions(js_stream, "source"), epoch=fence)
        shards: Sequence[str] = await source.shards(context)
        stores = {shard: replace(whole, name=f"{whole.name}-{token_of(shard)}") for shard in shards}
        return ShardStore(stores, whole)

    async def _publish(
        self,
        store: PositionStore | ShardStore,
        at: SourcePosition,
        subject: str,
        result: DecodeResult,
        batch: Batch,
    ) -> SourcePosition:
        """Store the events of a batch with its position, and record what can't be read."""
        number = at.number + 1
        sizes = _MESSAGE_BYTES, self._room, BATCH_MAX - len(batch.position)
        payloads = payloads_of(result.rows, *sizes)
        if max(map(len, payloads), default=0) > self._room:
            result = without_larger(result, self._room)
            payloads = payloads_of(result.rows, *sizes)
        for message, index, reason in result.errors:
            name = batch.names[message] if batch.names is not None else f"{number}.{message}"
            properties = batch.properties[message] if batch.properties is not None else {}
            # Others may be secrets.
            texts = ((key, properties.get(key)) for key in self._used)
            used = {key: text for key, text in texts if isinstance(text, str)}
            await self._record(name, index, reason, batch.payloads[message], used)
        if len(payloads) + len(batch.position) > BATCH_MAX:
            raise UnavailableError("the source has read more than one atomic batch holds")
        messages = messages_with_traces(result, payloads, batch)
        after = await store.write(at, number, batch.position, subject, messages)
        if not after.is_current or after.number != number:
            raise UnavailableError("the position was written by another process")
        self._events += result.rows.num_rows
        return after

    async def _record(
        self, name: str, index: int, reason: str, payload: bytes, used: Mapping[str, str]
    ) -> None:
        self._bad += 1
        assignment = self.assignment
        whose = f"{assignment.app}/{assignment.app_incarnation}/{self.group.name}"
        key = f"{whose}/{token_of_name(name)}.{index}"
        channel, *faults = self.group.outputs
        client = self.environment.client
        if self._on_error == "LOG":
            log.warning("payload was dropped", extra=fields(group=self.group.name, error=reason))
            return
        if faults:
            await write_fault(client, faults[0], None, reason, key=key)
            return
        entry = error_entry.of_unreadable(
            channel.stream.name, 0, index, self.environment.clock.wall_ms(), None,
            self.group.name, reason, payload, connector=self.group.connectors[0], options=used,
        )  # fmt: skip
        await client.jetstream().publish(
            names.error_subject(assignment.app), entry, headers={"Nats-Msg-Id": key}
        )


@dataclass(eq=False, slots=True)
class _Request:
    payload: bytes
    properties: Mapping[str, str]
    key: str | None
    #: The number of its events, once they are stored.
    answer: asyncio.Future[int]

    def refuse(self, error: Exception) -> None:
        """Answer with an error, unless the request has ended."""
        if not self.answer.done():
            self.answer.set_exception(error)


class ServerInstance(_SourceInstance):
    """A source to which others send: it answers when the broker has stored the events.

    Requests that arrive together are mapped together.  Those without a key share a message, since
    a message costs the broker more than its events; one with a key has a message of its own.
    """

    async def _run(self) -> None:
        opened, context = self._opened()
        channel = self.group.outputs[0]
        self._subject = channel.subject()
        self._requests: asyncio.Queue[_Request] = asyncio.Queue()
        self._waiting: set[_Request] = set()
        self._waiting_max = int(context.options.get("max.concurrent") or 256)
        self._publisher = Publisher(self.environment.client)
        server = self.environment.make(opened.spec)
        mapping = asyncio.create_task(self._map(opened))
        try:
            await self._publisher.open()
            await server.open(context, self._accept)
            self._endpoint = getattr(server, "endpoint", "") or self._endpoint
            self._running()
            stopping = asyncio.create_task(self._stopping.wait())
            await asyncio.wait([stopping, mapping], return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
        finally:
            if mapping.done():
                # The task that would answer them has ended.
                for request in self._waiting:
                    request.refuse(UnavailableError("the source has failed", retry_after_s=1.0))
            try:
                await server.close()
            finally:
                mapping.cancel()
                await self._publisher.close()
                with contextlib.suppress(asyncio.CancelledError):
                    await mapping

    async def _accept(self, payload: bytes, properties: Mapping[str, str], key: str | None) -> int:
        """See ``Server``."""
        if len(self._waiting) >= self._waiting_max:
            reason = "too many requests wait for the broker"
            raise UnavailableError(reason, retry_after_s=1.0, is_busy=True)
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        request = _Request(payload, properties, key, answer)
        self._waiting.add(request)
        try:
            self._requests.put_nowait(request)
            count = await answer
            self._events += count
            return count
        finally:
            self._waiting.discard(request)

    async def _map(self, opened: Opened) -> None:
        """Map and send the bodies of requests, those that have arrived meanwhile together."""
        while True:
            some = [await self._requests.get()]
            while not self._requests.empty() and len(some) < _TOGETHER:
                some.append(self._requests.get_nowait())
            result = _decoded(opened, [r.payload for r in some], [r.properties for r in some])
            refused: dict[int, RefusedPayloadError] = {}
            for number, index, reason in result.errors:
                refused.setdefault(number, RefusedPayloadError(reason, index=index))
            self._bad += len(refused)
            lines = to_json(result.rows).to_pylist() if result.rows.num_rows else []
            bounds = np.searchsorted(result.message, np.arange(len(some) + 1))
            parts: list[_Part] = []
            for number, request in enumerate(some):
                events = lines[bounds[number] : bounds[number + 1]]
                size = sum(map(len, events)) + len(events)
                if number in refused:
                    request.refuse(refused[number])
                elif size > self._room:
                    reason = (
                        f"the events need {size} bytes, more than {max(0, self._room)}: a message "
                        f"of NATS takes {self._room + _HEAD_ROOM} with its headers"
                    )
                    request.refuse(RefusedPayloadError(reason, is_too_large=True))
                elif events:
                    parts.append(_Part(request, events, size))
                elif not request.answer.done():
                    request.answer.set_result(0)
            for message in messages_of(parts, min(_MESSAGE_BYTES, self._room)):
                await self._send(message)

    async def _send(self, parts: Sequence[_Part]) -> None:
        """Publish the events of some requests in one message; its ack answers all of them."""
        headers = {"Content-Type": "application/json"}
        # Of several requests in one message the first has the trace.
        parents = (part.request.properties.get(traces.HEADER, "") for part in parts)
        if parent := next(filter(traces.is_parent, parents), ""):
            headers[traces.HEADER] = parent
        key = parts[0].request.key
        if key is not None:
            identity = (self.group.app, self.group.name, key)
            digest = hashlib.sha256("\0".join(identity).encode(errors="surrogateescape"))
            headers["Nats-Msg-Id"] = digest.hexdigest()
        message = b"\n".join(line for part in parts for line in part.lines)

        def stored(ack: asyncio.Future[int]) -> None:
            if ack.cancelled():
                return
            error = ack.exception()
            if error is not None:
                self._failed(parts, error)
                return
            self._reason = None
            for part in parts:
                if not part.request.answer.done():
                    part.request.answer.set_result(len(part.lines))

        try:
            ack = await self._publisher.send(self._subject, message, headers)
        except (NatsError, JetStreamError, TimeoutError, OSError) as error:
            self._failed(parts, error)
        else:
            ack.add_done_callback(stored)

    def _failed(self, parts: Sequence[_Part], error: BaseException) -> None:
        said = no_room(error) or str(error) or type(error).__name__
        self._reason = f"the broker has not stored the events: {said}"
        for part in parts:
            part.request.refuse(UnavailableError(self._reason, retry_after_s=1.0))


@dataclass(frozen=True, slots=True)
class _Part:
    """A request whose events are to be stored."""

    request: _Request
    lines: Sequence[bytes]
    size: int


def messages_of(parts: Iterable[_Part], bytes_max: int) -> Iterator[list[_Part]]:
    """The requests of each message, in order: together without keys, up to ``bytes_max``."""
    some: list[_Part] = []
    size = 0
    for part in parts:
        is_alone = part.request.key is not None
        if some and (is_alone or size + part.size > bytes_max):
            yield some
            some, size = [], 0
        if is_alone:
            yield [part]
        else:
            some.append(part)
            size += part.size
    if some:
        yield some


def lines_of(rows: pa.RecordBatch, bytes_max: int) -> Iterator[bytes]:
    """JSON lines of rows in payloads of at most ``bytes_max``; a longer event stands alone."""
    lines = to_json(rows)
    as_one = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    whole: bytes = kernels.binary_join(as_one, b"\n")[0].as_py()
    # End of each line in the whole, its line feed among it.
    sizes = kernels.binary_length(lines).to_numpy(zero_copy_only=False)
    ends = np.cumsum(sizes.astype(np.int64) + 1)
    first = start = 0
    while first < len(ends):
        last = int(np.searchsorted(ends, start + bytes_max + 1, side="right"))
        last = max(first + 1, last)
        end = int(ends[last - 1])
        yield whole[start : end - 1]
        first, start = last, end


def payloads_of(
    rows: pa.RecordBatch, bytes_usual: int, bytes_max: int, count_max: int
) -> list[bytes]:
    """JSON lines of rows in payloads of the usual size; in fewer, larger ones if need be.

    An atomic batch takes a number of messages: a source that has read more of them could store
    nothing, and would read the same again.
    """
    payloads = list(lines_of(rows, min(bytes_usual, bytes_max)))
    return payloads if len(payloads) <= count_max else list(lines_of(rows, bytes_max))


def without_larger(result: DecodeResult, bytes_max: int) -> DecodeResult:
    """The result without events that need more bytes as JSON; each of them is an error."""
    sizes = kernels.binary_length(to_json(result.rows)).to_numpy(zero_copy_only=False)
    reasons = {
        at: f"the event needs {sizes[at]} bytes, and the broker accepts {bytes_max}"
        for at in np.flatnonzero(sizes > bytes_max).tolist()
    }
    return without(result, reasons)


def messages_with_traces(
    result: DecodeResult, payloads: Sequence[bytes], batch: Batch
) -> list[EventLines]:
    """Messages of JSON lines; with traces, each has that of its first event with one."""
    properties = batch.properties
    if properties is None or not traces.are_on():
        return [EventLines(payload) for payload in payloads]
    messages: list[EventLines] = []
    first = 0
    for payload in payloads:
        last = first + payload.count(b"\n") + 1
        numbers = dict.fromkeys(result.message[first:last].tolist())
        parents = (properties[number].get(traces.HEADER) for number in numbers)
        texts = (one for one in parents if isinstance(one, str))
        messages.append(EventLines(payload, next(filter(traces.is_parent, texts), "")))
        first = last
    return messages
