"""Source ``rabbitmq``: messages of a queue, acknowledged once their events are stored.

An acknowledgement may be lost with the connection, and the server then delivers the message again.
The position holds digests of the last message ids, so that such a repeat is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import orjson

from mesh.connect.contract import Batch, Options, UnavailableError
from mesh.receiver.types.arrivals import Arrivals
from mesh.receiver.types.rabbitmq import CALL_S, connect, declare_exchange, exists, guarded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aio_pika.abc import (
        AbstractChannel,
        AbstractConnection,
        AbstractIncomingMessage,
        AbstractQueue,
    )

    from mesh.connect.contract import Context
    from mesh.model.values import JsonMapping, JsonObject

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
        self._arrived: Arrivals[AbstractIncomingMessage] = Arrivals()
        self._connection = await connect(context)
        name = options.get("queue.name") or f"{context.app}.{context.stream}"
        await guarded(lambda: self._subscribe(options, name))

    async def check(self, context: Context) -> None:
        """Log in; ``open`` would declare what is missing, and take messages away from others."""
        connection = await connect(context)
        await guarded(lambda: asyncio.wait_for(connection.close(), CALL_S))

    async def _subscribe(self, options: Options, name: str) -> None:
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
        channel.close_callbacks.add(lambda _, error: self._arrived.fail(str(error or "")))
        below = await channel.get_underlay_channel()
        # Earlier versions of the library do not tell.
        cancelled: set[Any] = getattr(below, "on_consumer_cancel_callbacks", set())
        cancelled.add(
            lambda _: self._arrived.fail(f'queue "{name}" was deleted, or its node is away')
        )

        async def arrived(message: AbstractIncomingMessage) -> None:
            self._arrived.put(message)

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
        messages = await self._arrived.take(self._number, _AHEAD, _WAIT_S)
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
        if self._offset is not None:
            position["offset"] = self._offset
        return Batch([m.body for m in unique], position, [_properties(m) for m in unique], names)

    async def committed(self, position: JsonMapping) -> None:
        """Acknowledge the messages of the batch and of earlier ones."""
        messages = self._arrived.stored(position["batch"])
        if messages:
            await guarded(lambda: messages[-1].ack(multiple=True))

    async def close(self) -> None:
        """Close the connection; what is not acknowledged is delivered again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(UnavailableError):
                await guarded(lambda: asyncio.wait_for(connection.close(), CALL_S))


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
