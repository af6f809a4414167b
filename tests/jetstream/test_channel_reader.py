"""The reader of sinks: each message once, whatever ends its requests and consumers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from mesh.jetstream.channel_reader import ChannelReader
from mesh.jetstream.connection import close, connect
from mesh.settings import NatsSettings
from tests.support.odd_headers import HEADS, publish_odd

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats


@pytest.mark.parametrize("size", [10, 30_000])
async def test_more_messages_and_bytes_than_a_request_brings(
    nats_server: NatsServer, size: int
) -> None:
    client = await connect(NatsSettings(url=nats_server.url), "test")
    js = client.jetstream()
    try:
        await js.add_stream(name="A", subjects=["a", "b"])
        payload = b"x" * size
        for number in range(1300):
            await client.publish("ab"[number % 13 == 0], payload)
        await client.flush()
        reader = ChannelReader(client, "A", "a", 0)
        found: list[int] = []
        async with asyncio.timeout(40):
            while len(found) < 1200:
                found += [message.sequence for message in await reader.next(170, 1.0)]
                if 600 < len(found) < 800:
                    # Its consumer goes, with messages on their way.
                    for consumer in await js.consumers_info("A"):
                        await js.delete_consumer("A", consumer.name)
        assert found == [n + 1 for n in range(1300) if n % 13]
        await client.publish("a", b"last")
        (last,) = await reader.next(10, 5.0)
        assert (last.data, reader.pending) == (b"last", 0)
        await reader.close()
    finally:
        await close(client)


async def test_a_wake_before_the_wait_ends_it(nats_server: NatsServer) -> None:
    client = await connect(NatsSettings(url=nats_server.url), "test")
    try:
        await client.jetstream().add_stream(name="A", subjects=["a"])
        reader = ChannelReader(client, "A", "a", 0)
        reader.wake()
        async with asyncio.timeout(20):
            assert await reader.next(10, 3600.0) == []
        # It ends one wait only.
        assert await reader.next(10, 0.01) == []
        waiting = asyncio.create_task(reader.next(10, 3600.0))
        await client.publish("a", b"one")
        async with asyncio.timeout(20):
            assert [message.data for message in await waiting] == [b"one"]
        await reader.close()
    finally:
        await close(client)


async def test_messages_with_odd_headers_are_messages(nats_server: NatsServer) -> None:
    client = await connect(NatsSettings(url=nats_server.url), "test")
    try:
        await client.jetstream().add_stream(name="A", subjects=["a"])
        await publish_odd(nats_server.url, "a", *HEADS)
        await client.publish("a", b"good")
        reader = ChannelReader(client, "A", "a", 0)
        found: list[bytes] = []
        async with asyncio.timeout(20):
            while len(found) <= len(HEADS):
                found += [message.data for message in await reader.next(100, 1.0)]
        assert found == [b""] * len(HEADS) + [b"good"]
        assert reader.generation == 1
        await reader.close()
    finally:
        await close(client)
