"""Sockets of a connection: one that fails is closed before the next is opened.

Refusals of NATS, as a user is told of them.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from mesh.errors import MeshError
from mesh.jetstream import connection, kv, server
from mesh.jetstream.connection import close, connect, refusals
from mesh.manager.manager import running
from mesh.model import names
from mesh.settings import ManagerSettings, NatsSettings, Settings
from tests.support.fake_servers import Fake
from tests.support.odd_headers import HEADS, publish_odd

if TYPE_CHECKING:
    import socket

    from nats.aio.msg import Msg

    from mesh.jetstream.server import NatsServer


pytestmark = pytest.mark.nats


async def test_sockets_of_failed_handshakes_are_closed(nats_server: NatsServer) -> None:
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


async def test_a_server_that_is_too_old_is_refused(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "VERSION_MIN", (99, 0))
    with pytest.raises(MeshError) as error:
        await connect(NatsSettings(url=nats_server.url), "test")
    assert error.value.code == "MESH-N101"


async def test_a_socket_is_closed_though_a_server_that_hangs_does_not_read(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CLOSE_S", 0.2)

    client = await connect(NatsSettings(url=nats_server.url), "test")
    transport: Any = client._transport
    transport = transport._io_writer.transport
    os.kill(nats_server.process.pid, signal.SIGSTOP)
    try:
        # More than the buffers of two sockets hold.
        while not transport.get_write_buffer_size():
            transport.write(b"PUB a 100000\r\n" + b"0" * 100_000 + b"\r\n")
        await close(client)
        # The loop closes it in its next round.
        await asyncio.sleep(0)
        assert transport.get_extra_info("socket").fileno() == -1
    finally:
        os.kill(nats_server.process.pid, signal.SIGCONT)


async def test_a_socket_that_has_closed_after_its_last_bytes_is_closed_again(
    nats_server: NatsServer,
) -> None:
    client = await connect(NatsSettings(url=nats_server.url), "test")
    writer: Any = client._transport._io_writer  # type: ignore[union-attr]
    os.kill(nats_server.process.pid, signal.SIGSTOP)
    try:
        while not writer.transport.get_write_buffer_size():
            writer.transport.write(b"PUB a 100000\r\n" + b"0" * 100_000 + b"\r\n")
        writer.transport.close()
    finally:
        os.kill(nats_server.process.pid, signal.SIGCONT)
    await writer.wait_closed()
    await close(client)
    assert client.is_closed


async def test_a_cancelled_wait_for_the_end_of_a_socket_does_not_cancel_its_close(
    nats_server: NatsServer,
) -> None:
    client = await connect(NatsSettings(url=nats_server.url), "test")
    writer: Any = client._transport._io_writer  # type: ignore[union-attr]
    # As by the attempt to reconnect that waited for it.
    writer._protocol._closed.cancel()
    await close(client)


async def test_the_ping_of_a_flush_follows_what_was_sent_before() -> None:
    octets = bytearray()

    def answer(client: socket.socket) -> None:
        while not octets.endswith(b"PING\r\n"):
            octets.extend(client.recv(4096))
        client.sendall(b"PONG\r\n")

    with Fake(answer, b'{"version":"2.14.0","max_payload":1048576}') as fake:
        settings = NatsSettings(url=fake.url)
        client = connection.new_client(settings)
        await client.connect(fake.url, allow_reconnect=False, max_reconnect_attempts=1)
        try:
            await client.subscribe("a")
            await client.publish("b", b"1")
            await client.flush()
        finally:
            await close(client)
    assert bytes(octets) == b"SUB a  1\r\nPUB b  1\r\n1\r\nPING\r\n"


async def test_no_headers_of_a_publisher_end_the_reading(nats_server: NatsServer) -> None:
    client = await connect(NatsSettings(url=nats_server.url), "test")
    try:
        arrived: asyncio.Queue[bytes] = asyncio.Queue()

        async def received(message: Msg) -> None:
            await arrived.put(message.data)

        await client.subscribe("s", cb=received)
        await client.flush()
        await publish_odd(nats_server.url, "s", *HEADS)
        await client.publish("s", b"good")
        async with asyncio.timeout(10):
            found = [await arrived.get() for _ in range(len(HEADS) + 1)]
        assert found == [b""] * len(HEADS) + [b"good"]
    finally:
        await close(client)


async def test_a_client_that_can_not_read_connects_again(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = NatsSettings(url=nats_server.url, ping_interval_s=60.0)
    client = await connect(settings, "test")
    try:
        is_back = asyncio.Event()
        connection.listen(client, lambda is_up: is_back.set() if is_up else None)

        async def fail(*_: object) -> None:
            monkeypatch.undo()
            raise ValueError("unforeseen")

        monkeypatch.setattr(client, "_process_msg", fail)
        await client.subscribe("s")
        await client.publish("s", b"")
        async with asyncio.timeout(10):
            await is_back.wait()
    finally:
        await close(client)


@pytest.mark.nats
async def test_a_user_is_told_which_bucket_is_missing(nats_server: NatsServer) -> None:
    settings = Settings(nats=NatsSettings(url=nats_server.url), manager=ManagerSettings(id="m1"))
    async with running(settings) as (manager, _):
        js = manager.client.jetstream()
        await js.delete_stream(f"KV_{names.SNAPSHOTS_BUCKET}")
        with pytest.raises(MeshError) as caught, refusals():
            await kv.open_bucket(js, names.SNAPSHOTS_BUCKET)
    assert caught.value.code == "MESH-N127"
    assert names.SNAPSHOTS_BUCKET in caught.value.message
    assert "BucketNotFoundError" not in caught.value.render()
