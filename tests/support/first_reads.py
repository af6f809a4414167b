"""JetStream whose first reads never end by a message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from mesh.jetstream.connection import close, connect
from mesh.settings import NatsSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

    from mesh.jetstream.server import NatsServer

_LIMIT_S = 60


def run(server: NatsServer, play: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
    async def connected() -> None:
        client = await connect(NatsSettings(url=server.url), "test")
        try:
            async with asyncio.timeout(_LIMIT_S):
                await play(client)
        finally:
            await close(client)

    asyncio.run(connected())


class Shrinking:
    """JetStream where one more message was pending after each, and is removed undelivered."""

    def __init__(self, js: JetStreamContext) -> None:
        self._js: Any = js

    def __getattr__(self, name: str) -> Any:
        return getattr(self._js, name)

    async def subscribe(self, *given: Any, cb: Any, **named: Any) -> Any:
        async def received(message: Msg) -> None:
            start, _, pending = message.reply.rpartition(".")
            message.reply = f"{start}.{int(pending) + 1}"
            message._metadata = None
            await cb(message)

        return await self._js.subscribe(*given, cb=received, **named)
