"""Buckets of keys: a list is whole while they are written."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nats.js import api

from mesh.jetstream import kv
from tests.support.jetstream import run

if TYPE_CHECKING:
    from nats.js import JetStreamContext

    from mesh.jetstream.server import NatsServer


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
