"""Sink ``rabbitmq``: persistent messages, confirmed by the server; ``message_id`` is the key."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from mesh.connect.contract import Options, UnavailableError
from mesh.connect.extras import library
from mesh.connect.spec import Kind, value_of
from mesh.receiver.outcomes import outcomes_of, reason_of
from mesh.receiver.types.rabbitmq import CALL_S, connect, declare_exchange, guarded
from mesh.telemetry import traces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aio_pika.abc import AbstractChannel, AbstractConnection

    from mesh.connect.contract import Context, Record
    from mesh.model.values import JsonMapping

#: Octets of a frame besides its content, and of a content's head besides its properties.
_FRAME: Final = 8
_HEAD: Final = 12
#: Options of an exchange.
_EXCHANGE: Final = ("exchange.name", "exchange.type", "exchange.durable.enabled",
                    "exchange.autodelete.enabled")  # fmt: skip


class RabbitSink:
    """See ``mesh.connect.contract.Sink``."""

    state: JsonMapping | None = None

    def __init__(self) -> None:
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None

    async def open(self, context: Context, state: JsonMapping | None) -> None:
        """Connect; exchanges are declared when they are written to."""
        self._options = context.options
        self._type = context.options.get("content.type") or context.content_type
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
            message = self._message(pika, record)
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
        options = {**self._options, **record.options}
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

    def _message(self, pika: object, record: Record) -> Any:
        """The message of a record, or the reason why there is none."""
        options = {**self._options, **record.options}
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
            content_type=self._type,
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
        options = {**self._options, **record.options}
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
