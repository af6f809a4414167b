"""The reader of sinks: each message once, whatever ends its requests and consumers.

Direct gets, which any server answers that has a copy, be it behind; or none, as one starts.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from nats.errors import NoRespondersError

from mesh.jetstream import channel_reader, stream_positions
from mesh.jetstream.audit import Audit
from mesh.jetstream.channel_reader import ChannelReader
from mesh.jetstream.connection import close, connect
from mesh.model import names
from mesh.settings import NatsSettings
from tests.support.odd_headers import HEADS, publish_odd

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.aio.client import Client
    from nats.aio.msg import Msg

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


STREAM = "S"
MARKERS = names.marker_subject(STREAM)


@asynccontextmanager
async def _stream(server: NatsServer) -> AsyncIterator[Client]:
    """A connection; the stream answers no direct gets, so that tests may do it."""
    client = await connect(NatsSettings(url=server.url), "test")
    try:
        js = client.jetstream()
        await js.add_stream(name=STREAM, subjects=["s", f"{MARKERS}.>"], allow_direct=False)
        yield client
    finally:
        await close(client)


async def _behind(client: Client) -> list[int]:
    """Answer direct gets as a copy that has one message more each time; its lengths so far."""
    lengths: list[int] = []

    async def answer(request: Msg) -> None:
        asked: dict[str, Any] = json.loads(request.data)
        lengths.append(len(lengths))
        js, found = client.jetstream(), 0
        last = (await js.stream_info(STREAM)).state.last_seq
        for sequence in range(asked.get("seq", 1), min(lengths[-1], last) + 1):
            stored = await js.get_msg(STREAM, sequence)
            headers = {
                "Nats-Sequence": str(sequence), "Nats-Subject": stored.subject or "",
                "Nats-Time-Stamp": "2026-01-01T00:00:00Z",
            }  # fmt: skip
            await client.publish(request.reply, stored.data or b"", headers=headers)
            found += 1
        end = {"Status": "204", "Nats-Num-Pending": "0", "Nats-UpTo-Sequence": str(last)}
        await client.publish(request.reply, headers=end if found else {"Status": "404"})

    await client.subscribe(f"$JS.API.DIRECT.GET.{STREAM}", cb=answer)
    return lengths


async def test_a_range_is_whole_though_a_copy_is_behind(nats_server: NatsServer) -> None:
    async with _stream(nats_server) as client:
        for _ in range(5):
            await client.jetstream().publish("s", b"")
        lengths = await _behind(client)
        read = [one.sequence async for one in channel_reader.read(client, STREAM, 1, 4)]
        assert read == [1, 2, 3, 4]
        assert lengths[0] == 0
        beyond = [one.sequence async for one in channel_reader.read(client, STREAM, 3, 2**62)]
        assert beyond == [3, 4, 5]
        assert [one async for one in channel_reader.read(client, STREAM, 6, 9)] == []


async def test_markers_that_a_copy_does_not_have_yet_are_waited_for(
    nats_server: NatsServer,
) -> None:
    async with _stream(nats_server) as client:
        lengths = await _behind(client)
        assert await stream_positions.markers(client, STREAM) is None
        for name in ("a", "b"):
            await client.jetstream().publish(f"{MARKERS}.{name}", b'{"n":"%s"}' % name.encode())
        lengths.clear()
        told = {"a": '{"n":"a"}', "b": '{"n":"b"}'}
        assert await stream_positions.markers(client, STREAM) == (2, told)
        assert lengths == [0, 1, 2]


async def test_a_stream_that_no_server_answers_for_is_not_empty(nats_server: NatsServer) -> None:
    async with _stream(nats_server) as client:
        await client.jetstream().publish("s", b"")
        with pytest.raises(NoRespondersError):
            _ = [one async for one in channel_reader.read(client, STREAM, 1, 1)]
        with pytest.raises(NoRespondersError):
            await channel_reader.last_of_each(client, STREAM, "s", 2)
        with pytest.raises(NoRespondersError):
            await stream_positions.markers(client, STREAM)


async def test_an_entry_of_the_audit_that_a_copy_lacks_is_asked_of_the_leader(
    nats_server: NatsServer,
) -> None:
    client = await connect(NatsSettings(url=nats_server.url), "test")
    try:
        await Audit(client).start()
        js = client.jetstream()
        config = (await js.stream_info(names.AUDIT_STREAM)).config
        assert config.subjects is not None
        await js.update_stream(replace(config, allow_direct=False))
        await js.publish(config.subjects[0].replace(">", "x").replace("*", "x"), b'{"a": 1}')

        async def lacks(request: Msg) -> None:
            await client.publish(request.reply, headers={"Status": "404"})

        await client.subscribe(f"$JS.API.DIRECT.GET.{names.AUDIT_STREAM}", cb=lacks)
        assert await Audit(client).last(5) == [{"id": 1, "a": 1}]
    finally:
        await close(client)


async def test_messages_with_odd_headers_are_read(nats_server: NatsServer) -> None:
    client = await connect(NatsSettings(url=nats_server.url), "test")
    try:
        await client.jetstream().add_stream(name="A", subjects=["a"], allow_direct=True)
        await publish_odd(nats_server.url, "a", *HEADS)
        await client.publish("a", b"good")
        await client.flush()
        last = len(HEADS) + 1
        found = [one async for one in channel_reader.read(client, "A", 1, last)]
        assert [one.sequence for one in found] == list(range(1, last + 1))
        assert found[-1].data == b"good"
    finally:
        await close(client)
