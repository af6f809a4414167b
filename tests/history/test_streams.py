"""Past events in JetStream streams: places, contents, and messages that go before they are read."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from mesh.errors import MeshError
from mesh.history.streams import HistoryStream
from mesh.jetstream import connection
from mesh.plan.history_addresses import stream_of
from mesh.settings import NatsSettings
from pyspark_nats.protocol.connection import close_shared

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from nats.js import JetStreamContext

    from mesh.jetstream.server import NatsServer

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]

SCHEMA = pa.schema([("n", pa.int64())])


@asynccontextmanager
async def connected(server: NatsServer) -> AsyncIterator[JetStreamContext]:
    client = await connection.connect(NatsSettings(url=server.url), "test")
    try:
        js = client.jetstream()
        await js.add_stream(name="OLD", subjects=["old.>"])
        yield js
    finally:
        await connection.close(client)


def reader(server: NatsServer, path: str = "nats:OLD") -> HistoryStream:
    place = stream_of(path)
    options = {"servers": server.url}
    return HistoryStream(place, SCHEMA, "", options, subjects=place.subjects)


def numbers(given: HistoryStream, place: int = 0) -> list[int]:
    found: list[Any] = [rows.rows.column("n").to_pylist() for rows in given.batches(place)]
    return [n for some in found for n in some]


def play(server: NatsServer, scene: Callable[[JetStreamContext], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with connected(server) as js:
            await scene(js)

    try:
        asyncio.run(whole())
    finally:
        close_shared()


def test_a_place_is_a_sequence_and_later_messages_are_after_it(nats_server: NatsServer) -> None:
    async def scene(js: JetStreamContext) -> None:
        for n in range(1, 11):
            await js.publish(f"old.{n % 2}", b'{"n":%d}' % n)
        first = reader(nats_server)
        assert (first.count(), numbers(first)) == (10, list(range(1, 11)))
        (rows,) = first.batches()
        assert rows.place == 10
        await js.delete_msg("OLD", 8)
        await js.publish("old.1", b'{"n":11}')
        # Messages that are added meanwhile are not read.
        assert numbers(first, 6) == [7, 9, 10]
        again = reader(nats_server)
        assert again.contents() == first.contents()
        assert numbers(again, 6) == [7, 9, 10, 11]
        assert numbers(again, 11) == []
        odd = reader(nats_server, "nats:OLD#old.1")
        assert (odd.count(), numbers(odd)) == (0, [1, 3, 5, 7, 9, 11])
        assert odd.contents() != first.contents()

    play(nats_server, scene)


def test_messages_that_go_before_they_are_read_end_the_history(nats_server: NatsServer) -> None:
    async def scene(js: JetStreamContext) -> None:
        for n in range(1, 11):
            await js.publish("old.x", b'{"n":%d}' % n)
        begun = reader(nats_server)
        assert begun.count() == 10
        await js.purge_stream("OLD", seq=5)
        with pytest.raises(MeshError, match="MESH-C161") as refused:
            numbers(begun)
        assert "sequences 1 to 4" in (refused.value.detail or "")
        # Another attempt takes what there is, from the beginning.
        again = reader(nats_server)
        assert again.contents() != begun.contents()
        assert numbers(again) == list(range(5, 11))
        await js.delete_stream("OLD")
        with pytest.raises(MeshError, match="MESH-C161") as refused:
            reader(nats_server).count()
        assert "does not exist" in (refused.value.detail or "")

    play(nats_server, scene)
