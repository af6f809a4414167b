"""Publisher with many acks in flight, and what requests share of a message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from nats.js.errors import APIError, NoStreamResponseError

from mesh.jetstream.connection import close, connect
from mesh.receiver.publisher import Publisher
from mesh.receiver.sources import _Part, _Request, messages_of
from mesh.settings import NatsSettings

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats


def part(size: int, key: str | None = None) -> _Part:
    answer: Any = None
    return _Part(_Request(b"", {}, key, answer), [b"x" * size], size)


def test_requests_share_a_message_unless_they_have_a_key() -> None:
    parts = [part(4), part(5), part(3, "k"), part(4), part(9), part(2)]
    found = [[p.size for p in message] for message in messages_of(parts, 10)]
    assert found == [[4, 5], [3], [4], [9], [2]]
    assert list(messages_of([], 10)) == []


async def test_messages_are_stored_in_order_and_each_has_its_own_outcome(
    nats_server: NatsServer,
) -> None:
    client = await connect(NatsSettings(url=nats_server.url), "test")
    publisher = Publisher(client, window=8)
    hasty = Publisher(client, ack_s=0.05)
    try:
        js = client.jetstream()
        await js.add_stream(name="P", subjects=["p.>"])
        silent = await client.subscribe("silent")
        await publisher.open()
        await hasty.open()
        acks = [await publisher.send("p.a", b"%d" % n, {}) for n in range(100)]
        assert await asyncio.gather(*acks) == list(range(1, 101))
        stored = [(await js.get_msg("P", n)).data for n in (1, 50, 100)]
        assert stored == [b"0", b"49", b"99"]
        others = [
            await publisher.send("other", b"", {}),
            await publisher.send("p.a", b"", {"Nats-Expected-Last-Sequence": "7"}),
            await hasty.send("silent", b"", {}),
        ]
        found = await asyncio.gather(*others, return_exceptions=True)
        expected = (NoStreamResponseError, APIError, TimeoutError)
        assert all(map(isinstance, found, expected)), found
        await silent.unsubscribe()
    finally:
        await publisher.close()
        await hasty.close()
        await close(client)
