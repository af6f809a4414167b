"""Source and sink ``tcp``: the original's binary protocol, see ``mesh.receiver.tcp_server``."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from mesh.connect.access import check_egress, check_listen
from mesh.connect.contract import payloads_of
from mesh.errors import MeshError
from mesh.receiver.tcp_server import SERVERS, message_of
from mesh.receiver.types.arrivals import PushedPayloads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.connect.contract import Context, Record
    from mesh.model.values import JsonMapping

_CALL_S: Final = 10.0


class TcpSource(PushedPayloads):
    """See ``mesh.connect.contract.Source``."""

    def __init__(self) -> None:
        self._at: tuple[str, int, str] | None = None

    async def open(self, context: Context, position: JsonMapping | None) -> None:
        """Bind the address, unless it is bound, and serve the context."""
        options = context.options
        host, port = str(options["host"]), int(options["port"])
        check_listen(context.access, host, port)
        channel = str(options.get("context") or f"{context.app}/{context.stream}")
        self.begin()
        bound = await SERVERS.open(host, port, channel, self.put, context.access)
        self._at = host, bound, channel

    async def close(self) -> None:
        """Serve the context no more."""
        if self._at is not None:
            at, self._at = self._at, None
            await SERVERS.close(*at)


class TcpSink:
    """See ``mesh.connect.contract.Sink``."""

    state: JsonMapping | None = None

    def __init__(self) -> None:
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self, context: Context, state: JsonMapping | None) -> None:
        """Connect."""
        url = str(context.options["url"])
        parts = urlsplit(url)
        if parts.scheme != "tcp" or not parts.hostname or not parts.port:
            raise MeshError(
                "MESH-C133",
                f"url {url} is no address of tcp",
                hint="Write tcp://host:port/context.",
            )
        check_egress(context.access, parts.hostname, parts.port)
        self._channel = parts.path.removeprefix("/")
        self._session = secrets.token_hex(8)
        async with asyncio.timeout(_CALL_S):
            self._streams = await asyncio.open_connection(parts.hostname, parts.port)

    async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
        """Send the payloads, each as a message; nothing says whether they have arrived."""
        assert self._streams is not None, "it is open"
        reader, writer = self._streams
        if reader.at_eof() or writer.is_closing():
            raise ConnectionResetError("the server has closed the connection")
        for payload in payloads_of(records):
            writer.write(message_of(self._session, self._channel, payload))
        async with asyncio.timeout(_CALL_S):
            await writer.drain()
        return [None] * len(records)

    async def close(self) -> None:
        """Disconnect."""
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].close()
