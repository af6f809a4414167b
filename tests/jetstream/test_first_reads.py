"""First reads of buckets end though no message says that it is the last one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from mesh.clock import SystemClock
from mesh.jetstream import channels, directory, kv, watch
from mesh.jetstream.connection import close, connect
from mesh.model import names
from mesh.settings import ChannelSettings, NatsSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats

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


def test_a_view_is_complete_though_the_last_message_never_comes(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "SILENCE_S", 0.1)

    async def play(client: Client) -> None:
        js = client.jetstream()
        await channels.ensure_buckets(js, ChannelSettings())
        for key in ("app.a", "app.b"):
            await kv.put(js, names.APPS_BUCKET, key, None)
        view = watch.ClusterView(client, SystemClock())
        view._js = Shrinking(js)  # type: ignore[assignment]
        await view.start()
        await view.stop()

    run(nats_server, play)


def test_a_directory_is_complete_though_the_last_message_never_comes(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "_SILENCE_S", 0.1)

    async def play(client: Client) -> None:
        js = client.jetstream()
        await channels.ensure_buckets(js, ChannelSettings())
        users = directory.Directory(js)
        await users.start()
        for key in ("user.a", "user.b"):
            await kv.put(js, names.USERS_BUCKET, key, b'{"name": "%b"}' % key[-1:].encode())
        users = directory.Directory(Shrinking(js))  # type: ignore[arg-type]
        following = asyncio.create_task(users.follow())
        await users.ready()
        assert users.version == 1
        following.cancel()
        await asyncio.wait([following])

    run(nats_server, play)
