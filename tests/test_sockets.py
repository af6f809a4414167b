"""A socket that a test leaves open is found in that test."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.sockets import OpenSockets


def test_a_socket_whose_loop_has_ended_is_found_once(sockets: OpenSockets) -> None:
    kept = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()

        async def scene() -> None:
            kept.append(await asyncio.open_connection(*address))
            _, closed = await asyncio.open_connection(*address)
            closed.close()
            assert sockets.left() == []

        asyncio.run(scene())
    (found,) = sockets.left()
    assert f"{address[1]}" in found
    assert "open_connection" in found
    assert sockets.left() == []
