"""Sink ``websocket``: messages to a server."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from mesh.connect.contract import UnavailableError, payloads_of
from mesh.connect.extras import library
from mesh.receiver.types.websocket_source import connected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.connect.contract import Context, Record
    from mesh.model.values import JsonMapping


class WebSocketSink:
    """See ``mesh.connect.contract.Sink``."""

    state: JsonMapping | None = None

    def __init__(self) -> None:
        self._connection: Any = None

    async def open(self, context: Context, state: JsonMapping | None) -> None:
        """Connect."""
        self._connection = await connected(context)

    async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
        """Send the payloads, texts as text messages; nothing says whether they have arrived."""
        closed = library("websockets.exceptions", "websocket").ConnectionClosed
        for record_payload in payloads_of(records):
            payload: bytes | str = record_payload
            with contextlib.suppress(UnicodeDecodeError):
                payload = record_payload.decode()
            try:
                await self._connection.send(payload)
            except closed as error:
                raise UnavailableError(str(error), is_lost=True) from error
        return [None] * len(records)

    async def close(self) -> None:
        """Disconnect."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
