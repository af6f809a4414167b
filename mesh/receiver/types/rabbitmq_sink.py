"""Sink ``rabbitmq``: persistent messages, confirmed by the server; ``message_id`` is the key."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from mesh import traces
from mesh.connect.contract import UnavailableError
from mesh.connect.extras import library
from mesh.connect.spec import Kind, value_of
from mesh.receiver.types.rabbitmq import CALL_S, connect, exchange_of, guarded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractExchange

    from mesh.connect.contract import Context, Record


class RabbitSink:
    """See ``mesh.connect.contract.Sink``."""

    state: Mapping[str, Any] | None = None

    def __init__(self) -> None:
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None

    async def open(self, context: Context, state: Mapping[str, Any] | None) -> None:
        """Connect; exchanges are declared when they are written to."""
        self._options = context.options
        self._type = context.options.get("content.type") or context.content_type
        self._exchanges: dict[tuple[str, ...], AbstractExchange] = {}
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
        messages = [self._message(pika, record) for record in records]
        outcomes: dict[int, str | None] = {
            at: one for at, one in enumerate(messages) if isinstance(one, str)
        }
        sending = [
            (at, asyncio.ensure_future(self._publish(record, message)))
            for at, (record, message) in enumerate(zip(records, messages, strict=True))
            if not isinstance(message, str)
        ]
        found = await asyncio.gather(*(task for _, task in sending), return_exceptions=True)
        failure: BaseException | None = None
        for (at, _), result in zip(sending, found, strict=True):
            if isinstance(result, BaseException):
                failure = failure or result
            else:
                outcomes[at] = None
        if isinstance(failure, pika.exceptions.AMQPError | OSError | TimeoutError):
            raise UnavailableError(
                str(failure) or type(failure).__name__, outcomes=outcomes
            ) from failure
        if failure is not None:
            raise failure
        return [outcomes[at] for at in range(len(records))]

    def _message(self, pika: Any, record: Record) -> Any:
        """The message of a record, or the reason why there is none."""
        own = {**self._options, **record.options}
        try:
            headers = own.get("headers") or []
            pairs = value_of(Kind.PAIRS, headers) if isinstance(headers, str) else headers
            priority = int(own["priority"]) if own.get("priority") else None
            if priority is not None and not 0 <= priority <= 255:
                raise ValueError("a priority is from 0 to 255")
            timestamp = int(own["timestamp"]) / 1000 if own.get("timestamp") else None
        except ValueError as error:
            return str(error)
        return pika.Message(
            record.payload,
            headers=dict((*pairs, *traces.outgoing(pairs))),
            content_type=self._type,
            delivery_mode=int(own.get("delivery.mode") or 2),
            priority=priority,
            message_id=own.get("message.id") or record.key,
            correlation_id=own.get("correlation.id"),
            content_encoding=own.get("content.encoding"),
            user_id=own.get("user.id"),
            app_id=own.get("app.id"),
            timestamp=timestamp,
            reply_to=own.get("reply.to"),
            expiration=int(own["expiration"]) / 1000 if own.get("expiration") else None,
        )

    async def _publish(self, record: Record, message: Any) -> None:
        own = {**self._options, **record.options}
        exchange = await self._exchange(own)
        await exchange.publish(
            message, own.get("routing.key") or "", mandatory=False, timeout=CALL_S
        )

    async def _exchange(self, own: Mapping[str, Any]) -> AbstractExchange:
        names = ("exchange.name", "exchange.type", "exchange.durable.enabled",
                 "exchange.autodelete.enabled")  # fmt: skip
        key = tuple(str(own.get(name)) for name in names)
        if key not in self._exchanges:
            assert self._channel is not None
            self._exchanges[key] = await exchange_of(self._channel, own)
        return self._exchanges[key]

    async def close(self) -> None:
        """Close the connection."""
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(UnavailableError):
                await guarded(lambda: asyncio.wait_for(connection.close(), CALL_S))
