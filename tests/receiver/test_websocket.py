"""Source ``websocket``: addresses of other servers, and messages that are not stored yet."""

from __future__ import annotations

import asyncio
import http
from functools import partial
from typing import Any

import pytest
import websockets.asyncio.client
import websockets.asyncio.server
import websockets.protocol

from mesh.connect.contract import Context, NodeAccess, Record, UnavailableError
from mesh.jetstream.server import free_port
from mesh.receiver.types.websocket import WebSocketServerSource, WebSocketSink, WebSocketSource


async def test_a_server_leads_a_websocket_source_to_no_other_address() -> None:
    """Not past receiver.egress."""
    reached: list[str] = []

    def lead(connection: Any, request: Any) -> Any:
        reached.append(request.path)
        answer = connection.respond(http.HTTPStatus.FOUND, "")
        answer.headers["Location"] = f"ws://127.0.0.1:{port}/inside"
        return answer

    async def serve(connection: Any) -> None:
        await connection.wait_closed()

    async with websockets.asyncio.server.serve(
        serve, "127.0.0.1", 0, process_request=lead
    ) as server:
        (port,) = {one.getsockname()[1] for one in server.sockets}
        source = WebSocketSource()
        options = {"url": f"ws://127.0.0.1:{port}/outside"}
        with pytest.raises(UnavailableError, match="302"):
            await source.open(Context("A", "S", options), None)
        await source.close()
    assert reached == ["/outside"]


async def test_a_server_waits_while_bytes_of_its_messages_are_not_stored() -> None:
    async def serve(connection: Any) -> None:
        for _ in range(60):
            await connection.send(bytes(1 << 20))
        await connection.wait_closed()

    async with websockets.asyncio.server.serve(serve, "127.0.0.1", 0, compression=None) as server:
        (port,) = {one.getsockname()[1] for one in server.sockets}
        source, found, most = WebSocketSource(), 0, 0
        options = {"url": f"ws://127.0.0.1:{port}/"}
        await source.open(Context("A", "S", options), None)
        source.arrived.bytes_max = 8 << 20
        while found < 60:
            batch = await source.read()
            most = max(most, source.arrived.unstored_bytes)
            if batch is not None:
                found += len(batch.payloads)
                await source.committed(batch.position)
        await source.close()
    assert most <= 3 << 20


async def test_a_sink_whose_server_goes_away_is_opened_again() -> None:
    got: list[Any] = []

    async def serve(connection: Any) -> None:
        got.append(await connection.recv())
        got.append(await connection.recv())
        await connection.close()

    async with websockets.asyncio.server.serve(serve, "127.0.0.1", 0) as server:
        (port,) = {one.getsockname()[1] for one in server.sockets}
        sink = WebSocketSink()
        await sink.open(Context("A", "T", {"url": f"ws://127.0.0.1:{port}/"}), None)
        assert await sink.write([Record("1", b"a"), Record("2", b"\xff")]) == [None, None]
        await sink._connection.wait_closed()
        with pytest.raises(UnavailableError) as lost:
            await sink.write([Record("3", b"c")])
        assert lost.value.is_lost
        await sink.close()
    assert got == ["a", b"\xff"]


async def test_a_server_that_says_more_than_it_hears_is_heard_out() -> None:
    """Its answer to a ping comes after what it says."""
    got: list[Any] = []

    async def serve(connection: Any) -> None:
        while True:
            got.append(await connection.recv())
            for _ in range(40):
                await connection.send(b"x" * 10_000)

    async with websockets.asyncio.server.serve(serve, "127.0.0.1", 0, compression=None) as server:
        (port,) = {one.getsockname()[1] for one in server.sockets}
        sink = WebSocketSink()
        await sink.open(Context("A", "T", {"url": f"ws://127.0.0.1:{port}/"}), None)
        async with asyncio.timeout(20):
            for n in range(5):
                assert await sink.write([Record(str(n), b"%d" % n)]) == [None]
        await sink.close()
    assert got == [str(n) for n in range(5)]


async def test_a_client_that_never_reads_is_ended_and_the_others_are_served() -> None:
    port, source = free_port(), WebSocketServerSource()
    access = NodeAccess(listen=("127.0.0.1:0-65535",))
    await source.open(Context("A", "S", {"host": "127.0.0.1", "port": port}, access), None)
    url = f"ws://127.0.0.1:{port}"
    connect = partial(websockets.asyncio.client.connect, url, proxy=None, ping_interval=None)
    async with connect() as flooding, connect() as other:
        flooding.transport.pause_reading()
        pings = (bytes((0x89, 0x80 | 125, 0, 0, 0, 0)) + bytes(125)) * 1000
        async with asyncio.timeout(30):
            # The system keeps some megabytes of the answers.
            while not flooding.transport.is_closing():
                if not flooding.transport.get_write_buffer_size():
                    flooding.transport.write(pings)
                await asyncio.sleep(0)
            await other.send(b"good")
            while (batch := await source.read()) is None:
                pass
        assert batch.payloads == [b"good"]
        flooding.transport.abort()
    await source.close()


async def test_a_message_of_a_server_may_have_megabytes() -> None:
    async def serve(connection: Any) -> None:
        await connection.send(bytes(3 << 20))
        await connection.send(b"next")
        await connection.wait_closed()

    async with websockets.asyncio.server.serve(serve, "127.0.0.1", 0, compression=None) as server:
        (port,) = {one.getsockname()[1] for one in server.sockets}
        source, found = WebSocketSource(), list[int]()
        await source.open(Context("A", "S", {"url": f"ws://127.0.0.1:{port}/"}), None)
        while len(found) < 2:
            batch = await source.read()
            found += [len(one) for one in batch.payloads] if batch is not None else []
        await source.close()
    assert found == [3 << 20, 4]


async def test_messages_whose_connection_ends_on_their_way_are_sent_again() -> None:
    got: list[Any] = []
    is_cut = False

    class Cut(websockets.asyncio.server.ServerConnection):
        def data_received(self, data: bytes) -> None:
            nonlocal is_cut
            if is_cut or self.protocol.state is not websockets.protocol.State.OPEN:
                super().data_received(data)
                return
            # They are in the server's machine, and no program gets them.
            is_cut = True
            self.transport.abort()

    async def serve(connection: Any) -> None:
        while True:
            got.append(await connection.recv())

    async with websockets.asyncio.server.serve(
        serve, "127.0.0.1", 0, create_connection=Cut
    ) as server:
        (port,) = {one.getsockname()[1] for one in server.sockets}
        context = Context("A", "T", {"url": f"ws://127.0.0.1:{port}/"})
        sink, records = WebSocketSink(), [Record("1", b"a"), Record("2", b"b")]
        await sink.open(context, None)
        with pytest.raises(UnavailableError) as lost:
            await sink.write(records)
        assert lost.value.is_lost
        assert not lost.value.outcomes
        await sink.close()
        await sink.open(context, None)
        assert await sink.write(records) == [None, None]
        await sink.close()
    assert is_cut
    assert got == ["a", "b"]


async def test_a_message_that_is_too_large_for_the_server_is_refused_alone() -> None:
    got: list[int] = []

    async def serve(connection: Any) -> None:
        async for message in connection:
            size = len(message)
            got.append(size)

    async with websockets.asyncio.server.serve(
        serve, "127.0.0.1", 0, max_size=100_000, compression=None
    ) as server:
        (port,) = {one.getsockname()[1] for one in server.sockets}
        sink = WebSocketSink()
        await sink.open(Context("A", "T", {"url": f"ws://127.0.0.1:{port}/"}), None)
        sizes = [10, 200_000, 20, 100_001, 100_000]
        outcomes = await sink.write([Record(str(n), b"x" * n) for n in sizes])
        assert outcomes == [
            None,
            "a message of 200000 bytes is too large for the server",
            None,
            "a message of 100001 bytes is too large for the server",
            None,
        ]
        # Those before the first large one may come twice: nothing says that they have arrived.
        assert got[-3:] == [10, 20, 100_000]
        assert await sink.write([Record("6", b"x" * 30)]) == [None]
        alone = await sink.write([Record("7", b"x" * 200_000)])
        assert alone == ["a message of 200000 bytes is too large for the server"]
        assert await sink.write([Record("8", b"x" * 40_000)]) == [None]
        assert got[-1] == 40_000
        await sink.close()
