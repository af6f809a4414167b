"""Source ``rabbitmq``: messages of a queue, acknowledged once their events are stored.

An acknowledgement may be lost with the connection, and the server then delivers the message again.
The position holds digests of the last message ids, so that such a repeat is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from typing import TYPE_CHECKING, Any, Final

from mesh.connect.contract import Batch, UnavailableError
from mesh.receiver.types.arrivals import Arrivals
from mesh.receiver.types.rabbitmq import CALL_S, connect, exchange_of, guarded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aio_pika.abc import AbstractConnection, AbstractIncomingMessage

    from mesh.connect.contract import Context

#: Messages that the server sends ahead of acknowledgements; digests of ids that are kept.
_AHEAD: Final = 500
_KNOWN: Final = 2 * _AHEAD
_WAIT_S: Final = 0.5


class RabbitSource:
    """See ``mesh.connect.contract.Source``."""

    def __init__(self) -> None:
        self._connection: AbstractConnection | None = None

    async def open(self, context: Context, position: Mapping[str, Any] | None) -> None:
        """Declare what is missing, and subscribe."""
        options = context.options
        stored = position or {}
        self._number = int(stored.get("batch") or 0)
        self._known: dict[str, None] = dict.fromkeys(stored.get("known") or ())
        self._salt = secrets.token_hex(4)
        self._arrived: Arrivals[AbstractIncomingMessage] = Arrivals()
        self._connection = await connect(context)
        name = options.get("queue.name") or f"{context.app}.{context.stream}"
        await guarded(lambda: self._subscribe(options, name))

    async def check(self, context: Context) -> None:
        """Log in; ``open`` would declare what is missing, and take messages away from others."""
        connection = await connect(context)
        await guarded(lambda: asyncio.wait_for(connection.close(), CALL_S))

    async def _subscribe(self, options: Mapping[str, Any], name: str) -> None:
        assert self._connection is not None
        channel = await self._connection.channel()
        await channel.set_qos(prefetch_count=_AHEAD)
        exchange = await exchange_of(channel, options)
        queue = await channel.declare_queue(
            name,
            durable=bool(options.get("queue.durable.enabled")),
            exclusive=bool(options.get("queue.exclusive.enabled")),
            auto_delete=bool(options.get("queue.autodelete.enabled")),
            timeout=CALL_S,
        )
        headers = dict(options.get("headers") or ())
        await queue.bind(
            exchange, options.get("routing.key") or "", arguments=headers, timeout=CALL_S
        )
        channel.close_callbacks.add(lambda _, error: self._arrived.fail(str(error or "")))

        async def arrived(message: AbstractIncomingMessage) -> None:
            self._arrived.put(message)

        await queue.consume(arrived, timeout=CALL_S)

    async def read(self) -> Batch | None:
        """The messages that have arrived, without repeats."""
        self._number += 1
        messages = await self._arrived.take(self._number, _AHEAD, _WAIT_S)
        if not messages:
            return None
        kept = []
        for message in messages:
            key = _digest(message.message_id) if message.message_id else ""
            if key and key in self._known:
                continue
            kept.append(message)
            if key:
                self._known[key] = None
        while len(self._known) > _KNOWN:
            del self._known[next(iter(self._known))]
        names = [m.message_id or f"{self._salt}-{m.delivery_tag}" for m in kept]
        position = {"batch": self._number, "known": list(self._known)}
        return Batch([m.body for m in kept], position, [_properties(m) for m in kept], names)

    async def committed(self, position: Mapping[str, Any]) -> None:
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


def _properties(message: AbstractIncomingMessage) -> Mapping[str, str]:
    found = {str(name).lower(): str(value) for name, value in message.headers.items()}
    found |= {"routing.key": message.routing_key or "", "exchange": message.exchange or ""}
    if message.message_id:
        found["message.id"] = message.message_id
    return found
