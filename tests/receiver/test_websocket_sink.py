"""Sink ``websocket``: a server that goes away."""

from __future__ import annotations

from typing import Any

import pytest
import websockets.asyncio.client
import websockets.asyncio.server

from mesh.connect.contract import Context, Record, UnavailableError
from mesh.receiver.types.websocket_sink import WebSocketSink


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
