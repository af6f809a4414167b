"""JetStream of a server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from mesh.jetstream.connection import close, connect
from mesh.settings import NatsSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from nats.js import JetStreamContext

    from mesh.jetstream.server import NatsServer


def run(
    nats_server: NatsServer, play: Callable[[JetStreamContext], Coroutine[Any, Any, None]]
) -> None:
    async def connected() -> None:
        client = await connect(NatsSettings(url=nats_server.url), "test")
        try:
            await play(client.jetstream())
        finally:
            await close(client)

    asyncio.run(connected())
