"""The buckets of the control plane, where servers have not found each other yet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from nats.js import api
from nats.js.errors import BadRequestError

from mesh.errors import MeshError
from mesh.jetstream import backups, channels, kv
from mesh.jetstream.connection import close, connect
from mesh.model import names
from mesh.settings import ChannelSettings, NatsSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from nats.js import JetStreamContext

    from mesh.jetstream.server import NatsServer


class Starting:
    """JetStream of servers that have not found each other: at first none places anything.

    The duration of that state can't be controlled in a real cluster.
    """

    def __init__(self, js: JetStreamContext, refusals: float) -> None:
        self._js = js
        self.refusals = refusals

    def __getattr__(self, name: str) -> Any:
        return getattr(self._js, name)

    async def create_key_value(self, *given: Any, **named: Any) -> Any:
        """Refused as a server does, and then done."""
        if self.refusals > 0:
            self.refusals -= 1
            raise BadRequestError(
                code=400,
                err_code=10005,
                description="no suitable peers for placement, peer offline",
            )
        return await self._js.create_key_value(*given, **named)


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


def test_they_wait_for_servers_that_can_hold_them(nats_server: NatsServer) -> None:
    async def play(js: JetStreamContext) -> None:
        starting: Any = Starting(js, refusals=2)
        await channels.ensure_buckets(starting, ChannelSettings())
        assert starting.refusals == 0
        for bucket in (names.CONTROL_BUCKET, names.APPS_BUCKET, names.STATUS_BUCKET):
            await js.key_value(bucket)

    run(nats_server, play)


def test_it_is_said_when_none_came(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "PLACING_S", 0.0)

    async def play(js: JetStreamContext) -> None:
        starting: Any = Starting(js, refusals=float("inf"))
        with pytest.raises(MeshError, match="buckets of 3 replicas can't be made") as raised:
            await channels.ensure_buckets(starting, ChannelSettings(replicas=3))
        assert raised.value.code == "MESH-N123"
        assert "no suitable peers" in str(raised.value.detail)

    run(nats_server, play)


def test_what_does_not_pass_is_raised_at_once(nats_server: NatsServer) -> None:
    async def play(js: JetStreamContext) -> None:
        # A single server has no replicas.
        with pytest.raises(Exception, match="replicas > 1 not supported"):
            await channels.ensure_buckets(js, ChannelSettings(replicas=3))

    run(nats_server, play)


@pytest.mark.nats
async def test_an_app_of_a_cluster_without_backups_has_none(nats_server: NatsServer) -> None:
    client = await connect(NatsSettings(url=nats_server.url), "reader")
    try:
        assert await backups.list_backups(client, "Shop") == []
    finally:
        await close(client)


def test_a_list_of_keys_is_whole_while_they_are_written(nats_server: NatsServer) -> None:
    """nats-py's ``keys()`` lacks some in 3 of 100 lists here, or all of them."""

    async def play(js: JetStreamContext) -> None:
        bucket = await js.create_key_value(api.KeyValueConfig(bucket="B"))
        for key in ("a.1", "a.2", "a.3", "b.1", "a.gone"):
            await kv.put(js, "B", key, b"0")
        await kv.put(js, "B", "a.gone", None)
        is_over = False

        async def write() -> None:
            number = 0
            while not is_over:
                await bucket.put(f"a.{number % 3 + 1}", b"%d" % number)
                number += 1

        writing = asyncio.create_task(write())
        lists = [await kv.entries(js, "B", "a.") for _ in range(300)]
        is_over = True
        await writing
        assert {tuple(found) for found in lists} == {("a.1", "a.2", "a.3")}
        numbers = [max(int(one.data or b"") for one in found.values()) for found in lists]
        assert numbers == sorted(numbers)
        assert list(await kv.entries(js, "B")) == ["a.1", "a.2", "a.3", "b.1"]
        assert await kv.entries(js, "C") == await kv.entries(js, "B", "c.") == {}

    run(nats_server, play)
