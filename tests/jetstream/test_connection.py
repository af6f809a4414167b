"""Sockets of a connection: one that fails is closed before the next is opened."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from mesh.jetstream.connection import close, connect
from mesh.settings import NatsSettings

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats


def test_sockets_of_failed_handshakes_are_closed(nats_server: NatsServer) -> None:
    async def scene() -> None:
        closed: asyncio.Queue[bytes] = asyncio.Queue()

        async def end_at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write_eof()
            closed.put_nowait(await reader.read())
            writer.close()

        client = await connect(NatsSettings(url=nats_server.url), "test")
        nats_server.stop()
        dying = await asyncio.start_server(end_at_once, "127.0.0.1", nats_server.port)
        async with dying:
            try:
                assert [await asyncio.wait_for(closed.get(), 20) for _ in range(3)] == [b""] * 3
            finally:
                await close(client)
        assert client.is_closed

    asyncio.run(scene())
