"""Apps that run before a session says that it is ready, and what is left of them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from mesh.jetstream import channels
from mesh.jetstream.connection import close, connect
from mesh.model import names
from mesh.settings import ChannelSettings, NatsSettings
from mesh.spark import warmup
from mesh.worker import session_start

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer


def test_a_warm_up_does_not_depend_on_the_workers_name() -> None:
    first, second = session_start.app_name(), session_start.app_name()
    assert first != second
    for channel, _ in channels.js_streams(warmup.app(first)):
        assert session_start.app_of(channel) == first


@pytest.mark.parametrize(
    "js_stream", ["mesh-Shop-Orders", "mesh-warmup-Orders", "mesh-warmup-w1-7-Events", "KV_x"]
)
def test_streams_of_apps_are_not_those_of_a_warm_up(js_stream: str) -> None:
    assert session_start.app_of(js_stream) is None


def test_a_warm_up_may_take_a_while() -> None:
    created = "2026-01-01T00:00:00.123456789Z"
    assert not session_start.is_left_over(created, "2026-01-01T00:30:00Z")
    assert session_start.is_left_over(created, "2026-01-01T01:00:01.2Z")


@pytest.mark.nats
def test_channels_of_a_killed_warm_up_are_deleted_and_no_others(nats_server: NatsServer) -> None:
    left, deployed = session_start.app_name(), session_start.app_name()

    async def scene() -> set[str]:
        client = await connect(NatsSettings(url=nats_server.url), "test")
        js, settings = client.jetstream(), ChannelSettings()
        await channels.ensure_buckets(js, settings)
        for name in (left, deployed, "Shop"):
            await channels.ensure_channels(client, warmup.app(name), settings)
        await (await js.key_value(names.APPS_BUCKET)).put(names.app_key(deployed), b"{}")
        await session_start.delete_left_over(client)
        before = {info.config.name for info in await js.streams_info()}
        assert {name for name, _ in channels.js_streams(warmup.app(left))} < before
        await session_start.delete_left_over(client, timedelta(0))
        after = {info.config.name for info in await js.streams_info()}
        await close(client)
        return {str(name) for name in before - after}

    assert asyncio.run(scene()) == {name for name, _ in channels.js_streams(warmup.app(left))}
