"""Publisher to JetStream with many acks in flight: messages are sent in the order of the calls."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import orjson
from nats.errors import ConnectionClosedError
from nats.errors import Error as NatsError
from nats.js.errors import APIError, NoStreamResponseError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from mesh.model.values import JsonObject

#: Messages without an ack; ``send`` waits beyond them.
_WINDOW: Final = 1000
_ACK_S: Final = 5.0


class Publisher:
    """Sends messages without waiting for the ack of the one before."""

    def __init__(self, client: Client, *, window: int = _WINDOW, ack_s: float = _ACK_S) -> None:
        self._client = client
        self._room = asyncio.Semaphore(window)
        self._ack_s = ack_s
        self._inbox = ""
        self._number = 0
        self._subscription: Subscription | None = None
        self._waiting: dict[str, asyncio.Future[int]] = {}

    async def open(self) -> None:
        """Subscribe to the acks.

        Raises:
            NatsError, OSError: there is no connection.
        """
        self._inbox = self._client.new_inbox()
        self._subscription = await self._client.subscribe(f"{self._inbox}.*", cb=self._received)

    async def send(
        self, subject: str, payload: bytes, headers: Mapping[str, str]
    ) -> asyncio.Future[int]:
        """Send a message, once fewer than the window have no ack.

        Returns:
            A future with the sequence of the stored message.  It fails with
            ``NoStreamResponseError`` where no stream has the subject, ``APIError`` for a refused
            message, ``TimeoutError`` without an answer in time, ``NatsError`` without a connection.

        Raises:
            NatsError, OSError: the message can't be sent.
        """
        await self._room.acquire()
        self._number += 1
        reply = f"{self._inbox}.{self._number}"
        loop = asyncio.get_running_loop()
        ack: asyncio.Future[int] = loop.create_future()
        self._waiting[reply] = ack
        timer = loop.call_later(self._ack_s, self._expire, reply)

        def ended(_: object) -> None:
            timer.cancel()
            self._waiting.pop(reply, None)
            self._room.release()

        ack.add_done_callback(ended)
        try:
            await self._client.publish(subject, payload, reply=reply, headers=dict(headers))
        except BaseException:
            ack.cancel()
            raise
        return ack

    def _expire(self, reply: str) -> None:
        ack = self._waiting.get(reply)
        if ack is not None and not ack.done():
            ack.set_exception(TimeoutError("no ack in time"))

    async def _received(self, message: Msg) -> None:
        ack = self._waiting.get(message.subject)
        if ack is None or ack.done():
            return
        if not message.data:
            # No stream has the subject.
            ack.set_exception(NoStreamResponseError())
            return
        answer: JsonObject = orjson.loads(message.data)
        try:
            if "error" in answer:
                # It raises the error of the code.
                APIError.from_error(answer["error"])
            ack.set_result(int(answer["seq"]))
        except APIError as error:
            ack.set_exception(error)

    async def close(self) -> None:
        """End the subscription; acks that are awaited fail."""
        subscription, self._subscription = self._subscription, None
        for ack in list(self._waiting.values()):
            if not ack.done():
                ack.set_exception(ConnectionClosedError())
        if subscription is not None:
            with contextlib.suppress(NatsError, OSError):
                await subscription.unsubscribe()
