"""TCP servers of sources: one for each address of a process, divided by the channels of messages.

A message is the original's: byte 2, the number of bytes that follow (4 bytes, big-endian), and then
session, channel and payload, each after the number of its bytes (4 bytes).  No message is answered;
a client that sends faster than its events are stored has to wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.http.connections import SHARE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mesh.connect.contract import NodeAccess

    Handler = Callable[[bytes], Awaitable[None]]

log = logging.getLogger(__name__)

_PROTOCOL: Final = 2
_HEAD: Final = struct.Struct(">bi")
_SIZE: Final = struct.Struct(">i")
#: Bytes of a message.
MESSAGE_BYTES_MAX: Final = 64 << 20
#: Bytes from which on a message is large, and such messages that a server reads at a time.
_LARGE: Final = 1 << 20
_LARGE_MAX: Final = 4


def message_of(session: str, channel: str, payload: bytes) -> bytes:
    """A message as it is sent."""
    parts = [session.encode(), channel.encode(), payload]
    body = b"".join(_SIZE.pack(len(part)) + part for part in parts)
    return _HEAD.pack(_PROTOCOL, len(body)) + body


def parts_of(body: bytes) -> tuple[str, bytes]:
    """Channel and payload of a message that follow its head.

    Raises:
        ValueError: the parts don't fill it.
    """
    parts: list[bytes] = []
    at = 0
    for _ in range(3):
        if at + _SIZE.size > len(body):
            raise ValueError("it ends before its payload")
        (size,) = _SIZE.unpack_from(body, at)
        at += _SIZE.size
        if not 0 <= size <= len(body) - at:
            raise ValueError(f"a part of {size} bytes exceeds it")
        parts.append(body[at : at + size])
        at += size
    if at != len(body):
        raise ValueError(f"{len(body) - at} bytes follow its payload")
    return parts[1].decode(), parts[2]


class Clients:
    """The connections of one server: ``most`` at a time, of which an address has its share."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._share = max(1, int(most * SHARE))
        self._addresses: dict[asyncio.StreamWriter, str] = {}

    def admit(self, writer: asyncio.StreamWriter) -> bool:
        """Count a connection; it is closed where there is no room for it."""
        address = str((writer.get_extra_info("peername") or ("",))[0])
        held = sum(one == address for one in self._addresses.values())
        if len(self._addresses) >= self._most or held >= self._share:
            writer.close()
            return False
        self._addresses[writer] = address
        return True

    async def leave(self, writer: asyncio.StreamWriter) -> None:
        """Close a connection."""
        self._addresses.pop(writer, None)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    def close(self) -> None:
        """Begin to close all connections."""
        for writer in list(self._addresses):
            writer.close()


@dataclass(slots=True)
class _Running:
    server: asyncio.Server
    port: int
    clients: Clients
    #: Time of a large message.
    message_s: float
    large: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_LARGE_MAX))
    handlers: dict[str, Handler] = field(default_factory=dict)


class TcpServers:
    """The servers of one process, by address."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, int], _Running] = {}

    async def open(
        self, host: str, port: int, channel: str, handler: Handler, access: NodeAccess
    ) -> int:
        """Serve a channel; the port, which may have been 0.

        Raises:
            MeshError: MESH-C133 for an address that can't be bound, or a channel that is served.
        """
        running = self._running.get((host, port)) if port else None
        if running is None:
            running = await self._start(host, port, access)
            self._running[host, running.port] = running
        if channel in running.handlers:
            raise MeshError(
                "MESH-C133",
                f'context "{channel}" of {host}:{running.port} is served already',
                hint="Give each source tcp a context of its own.",
            )
        running.handlers[channel] = handler
        return running.port

    async def close(self, host: str, port: int, channel: str) -> None:
        """Serve a channel no more; the last one ends its server."""
        running = self._running.get((host, port))
        if running is None:
            return
        running.handlers.pop(channel, None)
        if not running.handlers:
            del self._running[host, port]
            running.server.close()
            running.clients.close()
            await running.server.wait_closed()

    async def _start(self, host: str, port: int, access: NodeAccess) -> _Running:
        running: _Running

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if not running.clients.admit(writer):
                return
            try:
                await _read(reader, running)
            except (OSError, EOFError):
                # The client has left, or sends a large message too slowly.
                return
            except ValueError as error:
                log.warning("source tcp: a client is disconnected, its message is wrong: %s", error)
            finally:
                await running.clients.leave(writer)

        try:
            server = await asyncio.start_server(serve, host, port)
        except OSError as error:
            raise MeshError(
                "MESH-C133",
                f"a source can't listen on {host}:{port}",
                detail=f"{error.strerror or error}.",
                hint="Another process has it, or the address is not this machine's.",
            ) from error
        bound = server.sockets[0].getsockname()[1]
        clients = Clients(access.connections_max)
        running = _Running(server, bound, clients, access.body_timeout_s)
        return running


async def _body(reader: asyncio.StreamReader, size: int, running: _Running) -> bytes:
    """The rest of a message; a large one waits for its turn, and has to come in time.

    Raises:
        TimeoutError: it has not.
    """
    if size < _LARGE:
        return await reader.readexactly(size)
    async with running.large, asyncio.timeout(running.message_s):
        return await reader.readexactly(size)


async def _read(reader: asyncio.StreamReader, running: _Running) -> None:
    """Pass the messages of a client on, until it leaves.

    A message without the three parts is dropped, as it says where the next one begins.

    Raises:
        ValueError: a message has no head, so that the next one can't be found.
    """
    unknown: set[str] = set()
    has_wrong = False
    while True:
        protocol, size = _HEAD.unpack(await reader.readexactly(_HEAD.size))
        if protocol != _PROTOCOL:
            raise ValueError(f"it begins with byte {protocol}, not {_PROTOCOL}")
        if not 0 <= size <= MESSAGE_BYTES_MAX:
            raise ValueError(f"it has {size} bytes, and {MESSAGE_BYTES_MAX} are the most")
        try:
            channel, payload = parts_of(await _body(reader, size, running))
        except ValueError as error:
            if not has_wrong:
                log.warning("source tcp: messages of a client are dropped, such as one: %s", error)
            has_wrong = True
            continue
        handler = running.handlers.get(channel)
        if handler is not None:
            await handler(payload)
        elif channel not in unknown:
            unknown.add(channel)
            log.warning('source tcp: events for the unknown context "%.200s" are dropped', channel)


#: Of this process.
SERVERS: Final = TcpServers()
