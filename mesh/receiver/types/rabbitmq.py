"""Source and sink ``rabbitmq``, and the exchanges that both declare.

Sink ``rabbitmq``: persistent messages, confirmed by the server; ``message_id`` is the key.

Source ``rabbitmq``: messages of a queue, acknowledged once their events are stored.

An acknowledgement may be lost with the connection, and the server then delivers the message again.
The position holds digests of the last message ids, so that such a repeat is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import secrets
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import orjson

from mesh.connect.access import check_url
from mesh.connect.contract import Batch, Options, UnavailableError, library
from mesh.connect.spec import Kind, value_of
from mesh.receiver.outcomes import outcomes_of, reason_of
from mesh.receiver.tls import client_context
from mesh.receiver.types.arrivals import Arrivals
from mesh.telemetry import traces

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from aio_pika.abc import (
        AbstractChannel,
        AbstractConnection,
        AbstractIncomingMessage,
        AbstractQueue,
    )

    from mesh.connect.contract import Context, Record
    from mesh.model.values import JsonMapping, JsonObject


T = TypeVar("T")
#: Timeout of calls, seconds.
CALL_S: Final = 10.0

#: Octets of a frame besides its content, and of a content's head besides its properties.
_FRAME: Final = 8
_HEAD: Final = 12
#: Options of an exchange.
_EXCHANGE: Final = ("exchange.name", "exchange.type", "exchange.durable.enabled",
                    "exchange.autodelete.enabled")  # fmt: skip

#: Messages that the server sends ahead of acknowledgements; digests of ids that are kept.
_AHEAD: Final = 500
_RECENT_MAX: Final = 2 * _AHEAD
_WAIT_S: Final = 0.5
#: Place of a message in a stream, as header and as argument of a reader.
_OFFSET: Final = "x-stream-offset"
_STREAM: Final = ("x-queue-type", "stream")


class RabbitSource:
    """See ``mesh.connect.contract.Source``."""

    def __init__(self) -> None:
        self._connection: AbstractConnection | None = None

    async def open(self, context: Context, position: JsonMapping | None) -> None:
        """Declare what is missing, and subscribe."""
        options = context.options
        stored = position or {}
        self._number = int(stored.get("batch") or 0)
        self._recent_ids: dict[str, None] = dict.fromkeys(stored.get("known") or ())
        #: Of the last message of a stream, which keeps what was read.
        self._offset: int | None = stored.get("offset")
        self._salt = secrets.token_hex(4)
        self.arrived: Arrivals[AbstractIncomingMessage] = Arrivals()
        #: The binding of a queue that is the source's own: another queue may have those of others.
        self._bound: JsonObject = {}
        before = stored.get("bound") or {}
        name = options.get("queue.name") or _own_queue(context)
        if not options.get("queue.name"):
            self._bound = {
                "exchange": str(options["exchange.name"]),
                "key": options.get("routing.key") or "",
                "headers": dict(options.get("headers") or ()),
            }
        self._connection = await connect(context)
        await guarded(lambda: self._subscribe(options, name, before))

    async def check(self, context: Context) -> None:
        """Log in; ``open`` would declare what is missing, and take messages away from others."""
        connection = await connect(context)
        await guarded(lambda: asyncio.wait_for(connection.close(), CALL_S))

    async def remove(self, context: Context) -> None:
        """Delete a queue of the source's own, which would keep all messages that arrive."""
        if context.options.get("queue.name"):
            return
        connection = await connect(context)
        try:
            channel = await guarded(connection.channel)
            name = _own_queue(context)
            await guarded(lambda: channel.queue_delete(name, if_unused=True, timeout=CALL_S))
        finally:
            await guarded(lambda: asyncio.wait_for(connection.close(), CALL_S))

    async def _subscribe(self, options: Options, name: str, before: JsonMapping) -> None:
        assert self._connection is not None
        channel = await self._connection.channel()
        await channel.set_qos(prefetch_count=_AHEAD)
        await declare_exchange(self._connection, options)
        queue = await self._queue(channel, options, name)
        headers = dict(options.get("headers") or ())
        exchange = str(options["exchange.name"])
        await queue.bind(
            exchange, options.get("routing.key") or "", arguments=headers, timeout=CALL_S
        )
        if self._bound and before and before != self._bound:
            await queue.unbind(
                before["exchange"], before["key"], arguments=before["headers"], timeout=CALL_S
            )
        channel.close_callbacks.add(lambda _, error: self.arrived.fail(str(error or "")))
        below = await channel.get_underlay_channel()
        # Earlier versions of the library do not tell.
        cancelled: set[Any] = getattr(below, "on_consumer_cancel_callbacks", set())
        cancelled.add(
            lambda _: self.arrived.fail(f'queue "{name}" was deleted, or its node is away')
        )

        async def arrived(message: AbstractIncomingMessage) -> None:
            self.arrived.put(message)

        offset = options.get("stream.position")
        if self._offset is not None:
            offset = self._offset + 1
        elif offset is None and _STREAM in arguments_of(options).items():
            offset = "first"
        elif offset is not None and offset.isdecimal():
            offset = int(offset)
        where = {} if offset is None else {_OFFSET: offset}
        await queue.consume(arrived, arguments=where, timeout=CALL_S)

    async def _queue(self, channel: AbstractChannel, options: Options, name: str) -> AbstractQueue:
        """The queue as it is; or declared, if it is missing or the options have arguments."""
        assert self._connection is not None

        async def look(channel: AbstractChannel) -> None:
            await channel.declare_queue(name, passive=True, timeout=CALL_S)

        arguments = arguments_of(options)
        if not arguments and await exists(self._connection, look):
            return await channel.get_queue(name, ensure=False)
        return await channel.declare_queue(
            name,
            durable=bool(options.get("queue.durable.enabled")),
            exclusive=bool(options.get("queue.exclusive.enabled")),
            auto_delete=bool(options.get("queue.autodelete.enabled")),
            arguments=arguments,
            timeout=CALL_S,
        )

    async def read(self) -> Batch | None:
        """The messages that have arrived, without repeats."""
        self._number += 1
        messages = await self.arrived.take(self._number, _AHEAD, _WAIT_S)
        if not messages:
            return None
        unique = []
        for message in messages:
            offset = message.headers.get(_OFFSET)
            if isinstance(offset, int):
                self._offset = max(offset, self._offset or 0)
            key = _digest(message.message_id) if message.message_id else ""
            if key and key in self._recent_ids:
                continue
            unique.append(message)
            if key:
                self._recent_ids[key] = None
        while len(self._recent_ids) > _RECENT_MAX:
            del self._recent_ids[next(iter(self._recent_ids))]
        names = [m.message_id or f"{self._salt}-{m.delivery_tag}" for m in unique]
        position = {"batch": self._number, "known": list(self._recent_ids)}
        if self._bound:
            position["bound"] = self._bound
        if self._offset is not None:
            position["offset"] = self._offset
        return Batch([m.body for m in unique], position, [_properties(m) for m in unique], names)

    async def committed(self, position: JsonMapping) -> None:
        """Acknowledge the messages of the batch and of earlier ones."""
        messages = self.arrived.stored(position["batch"])
        if messages:
            await guarded(lambda: messages[-1].ack(multiple=True))

    async def close(self) -> None:
        """Close the connection; what is not acknowledged is delivered again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(UnavailableError):
                await guarded(lambda: asyncio.wait_for(connection.close(), CALL_S))


def _own_queue(context: Context) -> str:
    """The name of a queue for which the options have none."""
    return f"{context.app}.{context.stream}"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=8).hexdigest()


def arguments_of(options: Options) -> JsonObject:
    """Arguments of a queue with the types that a server expects."""
    return {name: _typed(text) for name, text in options.get("queue.args") or ()}


def _typed(text: str) -> object:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if text.removeprefix("-").isdecimal() else text


def _text(value: object) -> str | bytes:
    """A header's value as text; bytes that are none stay."""
    if isinstance(value, bytes | bytearray):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return bytes(value)
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return str(round(value.timestamp() * 1000))
    if isinstance(value, bool | list | dict):
        return orjson.dumps(value, default=str).decode()
    return str(value)


def _properties(message: AbstractIncomingMessage) -> Mapping[str, str | bytes]:
    headers = message.headers.items()
    properties = {str(name).lower(): _text(value) for name, value in headers if value is not None}
    properties |= {"routing.key": message.routing_key or "", "exchange": message.exchange or ""}
    if message.message_id:
        properties["message.id"] = message.message_id
    return properties


class RabbitSink:
    """See ``mesh.connect.contract.Sink``."""

    state: JsonMapping | None = None

    def __init__(self) -> None:
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None

    async def open(self, context: Context, state: JsonMapping | None) -> None:
        """Connect; exchanges are declared when they are written to."""
        self.options = context.options
        self.content_type = context.options.get("content.type") or context.content_type
        #: Those that are declared.
        self._exchanges: set[tuple[str, ...]] = set()
        self._connection = await connect(context)
        await guarded(self._make_channel)

    async def _make_channel(self) -> None:
        assert self._connection is not None
        self._exchanges.clear()
        self._channel = await self._connection.channel(publisher_confirms=True)

    async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
        """Publish in order, and wait for the confirms."""
        pika = library("aio_pika", "rabbitmq")
        if self._connection is None or self._connection.is_closed:
            # The host opens the sink again.
            raise ConnectionResetError("the connection is lost")
        if self._channel is None or self._channel.is_closed:
            await guarded(self._make_channel)
        results: list[str | BaseException | None] = []
        sending: dict[int, asyncio.Future[None]] = {}
        for at, record in enumerate(records):
            message = self.message(pika, record)
            reason = message if isinstance(message, str) else await self._declared(pika, record)
            if reason is None:
                sending[at] = asyncio.ensure_future(self._publish(record, message))
            results.append(reason)
        answers = await asyncio.gather(*sending.values(), return_exceptions=True)
        for at, answer in zip(sending, answers, strict=True):
            if isinstance(answer, pika.exceptions.DeliveryError):
                # A queue that is full may have room later.
                answer = UnavailableError(reason_of(answer))
            results[at] = answer
        return outcomes_of(results, is_lost=self._connection.is_closed)

    async def _declared(self, pika: Any, record: Record) -> str | None:
        """Declare the exchange of a record; the reason why it can't be one, by the event."""
        options = {**self.options, **record.options}
        key = tuple(str(options.get(name)) for name in _EXCHANGE)
        if key in self._exchanges:
            return None
        assert self._connection is not None
        try:
            await declare_exchange(self._connection, options)
        except pika.exceptions.ChannelClosed as error:
            if not record.options.keys() & set(_EXCHANGE):
                raise UnavailableError(reason_of(error)) from error
            return f'exchange "{options["exchange.name"]}": {reason_of(error)}'
        self._exchanges.add(key)
        return None

    def message(self, pika: object, record: Record) -> Any:
        """The message of a record, or the reason why there is none."""
        options = {**self.options, **record.options}
        try:
            headers = options.get("headers") or []
            pairs = value_of(Kind.PAIRS, headers) if isinstance(headers, str) else headers
            priority = int(options["priority"]) if options.get("priority") else None
            if priority is not None and not 0 <= priority <= 255:
                raise ValueError("a priority is from 0 to 255")
            timestamp = int(options["timestamp"]) / 1000 if options.get("timestamp") else None
        except ValueError as error:
            return str(error)
        try:
            return self._checked(pika, options, record, dict((*pairs, *traces.outgoing(pairs))),
                                 priority, timestamp)  # fmt: skip
        # Another attempt would be the same: an event has made it so.
        except Exception as error:
            return f"the message can't be made: {reason_of(error)}"

    def _checked(
        self, pika: Any, options: Options, record: Record, headers: dict[str, str],
        priority: int | None, timestamp: float | None,
    ) -> object:  # fmt: skip
        """The message, once the client can encode it."""
        message = pika.Message(
            record.payload,
            headers=headers,
            content_type=self.content_type,
            delivery_mode=int(options.get("delivery.mode") or 2),
            priority=priority,
            message_id=options.get("message.id") or record.key,
            correlation_id=options.get("correlation.id"),
            content_encoding=options.get("content.encoding"),
            user_id=options.get("user.id"),
            app_id=options.get("app.id"),
            timestamp=timestamp,
            reply_to=options.get("reply.to"),
            expiration=int(options["expiration"]) / 1000 if options.get("expiration") else None,
        )
        commands = library("pamqp.commands", "rabbitmq")
        commands.Basic.Publish(
            exchange=options.get("exchange.name") or "",
            routing_key=options.get("routing.key") or "",
        ).marshal()
        # Properties are not divided: the server closes the connection at those above a frame.
        size, frame_max = len(message.properties.marshal()) + _HEAD + _FRAME, self._frame_max()
        if 0 < frame_max < size:
            raise ValueError(f"its properties need {size} bytes, and a frame has {frame_max}")
        return message

    def _frame_max(self) -> int:
        """Octets of a frame as agreed with the server; 0 for any number."""
        # The client has no public name for them.
        transport: Any = getattr(self._connection, "transport", None)
        return int(transport.connection.connection_tune.frame_max) if transport is not None else 0

    async def _publish(self, record: Record, message: Any) -> None:
        options = {**self.options, **record.options}
        assert self._channel is not None
        exchange = await self._channel.get_exchange(str(options["exchange.name"]), ensure=False)
        await exchange.publish(
            message, options.get("routing.key") or "", mandatory=False, timeout=CALL_S
        )

    async def close(self) -> None:
        """Close the connection."""
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(UnavailableError):
                await guarded(lambda: asyncio.wait_for(connection.close(), CALL_S))


async def connect(context: Context) -> AbstractConnection:
    """A connection that is not made again by itself: the host does that.

    Raises:
        MeshError: MESH-C132 for a server that is not open to connectors.
        UnavailableError: the server can't be reached, or refuses the login.
    """
    pika = library("aio_pika", "rabbitmq")
    options = context.options
    uri = str(options["uri"])
    if options.get("tls.enabled"):
        uri = re.sub(r"\Aamqp:", "amqps:", uri)
    check_url(context.access, uri, 5671 if uri.startswith("amqps") else 5672)
    secure = client_context(options)

    async def call() -> AbstractConnection:
        connection: AbstractConnection = await pika.connect(
            uri, timeout=CALL_S, ssl_context=secure,
            client_properties={"connection_name": f"mesh {context.instance}"},
        )  # fmt: skip
        return connection

    return await guarded(call)


async def guarded(call: Callable[[], Awaitable[T]]) -> T:
    """The result of a call; failures of the client and the network are ``UnavailableError``."""
    pika = library("aio_pika", "rabbitmq")
    try:
        return await call()
    except (pika.exceptions.AMQPError, OSError, TimeoutError) as error:
        raise UnavailableError(str(error) or type(error).__name__) from error


async def exists(
    connection: AbstractConnection, look: Callable[[AbstractChannel], Awaitable[object]]
) -> bool:
    """Whether something is there; a server ends the channel of a question for what is not."""
    pika = library("aio_pika", "rabbitmq")
    async with connection.channel() as channel:
        try:
            await look(channel)
        except pika.exceptions.ChannelNotFoundEntity:
            return False
    return True


async def declare_exchange(connection: AbstractConnection, options: Options) -> None:
    """Declare the exchange of the options, unless there is one, of whatever properties."""
    name = str(options["exchange.name"])
    kind = str(options.get("exchange.type") or "direct").lower()

    async def look(channel: AbstractChannel) -> None:
        await channel.declare_exchange(name, kind, passive=True, timeout=CALL_S)

    if name.startswith("amq.") or await exists(connection, look):
        return
    async with connection.channel() as channel:
        await channel.declare_exchange(
            name,
            kind,
            durable=_is_on(options.get("exchange.durable.enabled")),
            auto_delete=_is_on(options.get("exchange.autodelete.enabled")),
            timeout=CALL_S,
        )


def _is_on(value: object) -> bool:
    return str(value).lower() == "true"
