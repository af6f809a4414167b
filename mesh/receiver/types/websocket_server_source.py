"""Source ``websocket-server``: messages of clients that connect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mesh.connect.extras import library
from mesh.receiver.types.arrivals import PushedPayloads
from mesh.receiver.types.websockets_served import served

if TYPE_CHECKING:
    from mesh.connect.contract import Context
    from mesh.model.values import JsonMapping

#: Bytes of one message.
_SIZE_MAX: Final = 1 << 20


class WebSocketServerSource(PushedPayloads):
    """See ``mesh.connect.contract.Source``."""

    def __init__(self) -> None:
        self._server: Any = None

    async def open(self, context: Context, position: JsonMapping | None) -> None:
        """Bind the port."""
        self.begin()
        self._server = await served(context, "source", self._take, size_max=_SIZE_MAX)

    async def _take(self, connection: Any) -> None:
        closed = library("websockets.exceptions", "websocket").ConnectionClosed
        try:
            while True:
                message = await connection.recv()
                await self.put(message.encode() if isinstance(message, str) else message)
        except closed:
            return

    async def close(self) -> None:
        """End all connections."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            await server.wait_closed()
