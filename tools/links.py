"""Controllable network links between processes and NATS: delay, cut and watch each direction.

A link listens at the address that the process gets for NATS, and forwards the bytes.  Bytes held
back while a link is cut arrive when it is healed, late, as over a real network; connections opened
meanwhile get nowhere.  A trap waits for bytes on their way to the server, so that a process can be
killed before, during or after one write of its own.

The links have a thread and a loop of their own: a test that blocks delays nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

#: Bytes read at once, and number of the last ones that are searched again with the next.
_CHUNK: Final = 1 << 16
_OVERLAP: Final = 256


class When(StrEnum):
    """The moment at which a trap closes."""

    #: Nothing of the write has reached the server.
    BEFORE = "before"
    #: The server has stored it, and its answer has not reached the process.
    DURING = "during"
    #: The answer is with the process.
    AFTER = "after"


@dataclass
class Trap:
    """Waits for a publish with ``pattern`` in its subject, and fires once."""

    pattern: bytes
    when: When
    fire: Callable[[], None]
    #: Set when it has fired.
    closed: threading.Event = field(default_factory=threading.Event)


@dataclass
class Link:
    """One process's connection to one or several servers."""

    name: str
    #: Where the process is to connect: one address for each server.
    url: str = ""
    #: TLS with the process and with the servers, None for none.
    tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None
    _trap: Trap | None = None
    _up: asyncio.Event = field(default_factory=asyncio.Event)
    _down: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._up.set()
        self._down.set()


class Links:
    """All links of a test; use it as a context."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._links: dict[str, Link] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._is_closing = False
        #: Both ends of every connection: one with TLS stays open until its peer has said goodbye.
        self._ends: set[asyncio.StreamWriter] = set()

    def __enter__(self) -> Links:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def to(
        self,
        name: str,
        servers: Sequence[tuple[str, int]],
        tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None,
    ) -> str:
        """The URL for process ``name``; the same one for each call.

        Args:
            name: of the process.
            servers: hosts and ports.
            tls: as a server towards the process, and as the process towards the servers.
        """
        if name not in self._links:
            self._links[name] = Link(name, tls=tls)
            ports = [self._call(self._listen(self._links[name], *server)) for server in servers]
            self._links[name].url = ",".join(f"nats://127.0.0.1:{port}" for port in ports)
        return self._links[name].url

    def cut(self, name: str, *, up: bool = True, down: bool = True) -> None:
        """Hold back the bytes that the process sends (up), receives (down), or both."""
        link = self._links[name]
        for event in (*([link._up] if up else []), *([link._down] if down else [])):
            self._loop.call_soon_threadsafe(event.clear)

    def heal(self, name: str) -> None:
        """Forward everything again, including bytes held back."""
        link = self._links[name]
        self._loop.call_soon_threadsafe(link._up.set)
        self._loop.call_soon_threadsafe(link._down.set)

    def heal_all(self) -> None:
        """Forward everything again, everywhere, and remove all traps."""
        for link in self._links.values():
            link._trap = None
            self.heal(link.name)

    def trap(self, name: str, pattern: bytes, when: When, fire: Callable[[], None]) -> Trap:
        """Call ``fire`` when the process publishes to a subject with ``pattern`` in it.

        After a publish that is caught before or during, nothing more passes on that connection.
        """
        set_up = Trap(pattern, when, fire)
        self._links[name]._trap = set_up
        return set_up

    async def _listen(self, link: Link, host: str, port: int) -> int:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._ends.add(writer)
            if self._is_closing:
                return
            self._tasks.add(task)
            try:
                # asyncio treats a cancelled task of a connection as one that failed.
                with contextlib.suppress(asyncio.CancelledError):
                    await _Passage(link, reader, writer, self._ends).run(host, port)
            finally:
                self._tasks.discard(task)

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _close(self) -> None:
        self._is_closing = True
        for server in self._servers:
            server.close()
        # Also those of connections that were accepted just now.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(others, timeout=0.1)
        for end in self._ends:
            # With TLS a transport that is closed twice can't be aborted in Python 3.11.2.
            with contextlib.suppress(AttributeError):
                end.transport.abort()
        # The loop closes their sockets in its next round.
        await asyncio.sleep(0)

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)


class _Passage:
    """One connection through a link."""

    def __init__(
        self,
        link: Link,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        ends: set[asyncio.StreamWriter],
    ) -> None:
        self._ends = ends
        self._link = link
        self._reader = reader
        self._writer = writer
        #: The trap that this connection has run into, and the subject of the answer it waits for.
        self._sprung: tuple[Trap, bytes] | None = None

    async def run(self, host: str, port: int) -> None:
        """Pass bytes on until one side ends."""
        writers = [self._writer]
        try:
            from_server, to_server = await asyncio.open_connection(host, port)
            self._ends.add(to_server)
            writers.append(to_server)
            await self._secure(from_server, to_server, host)
            pumps = [
                asyncio.create_task(self._pump_up(to_server)),
                asyncio.create_task(self._pump_down(from_server)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except OSError:
            # The server is away: the process finds its connection closed, and tries again.
            pass
        finally:
            for writer in writers:
                with contextlib.suppress(OSError):
                    writer.close()

    async def _secure(
        self, from_server: asyncio.StreamReader, to_server: asyncio.StreamWriter, host: str
    ) -> None:
        """Begin TLS on both sides, if the link has it, after the server's greeting."""
        if self._link.tls is None:
            return
        as_server, as_client = self._link.tls
        greeting = await from_server.readline()
        await to_server.start_tls(as_client, server_hostname=host)
        self._writer.write(greeting)
        await self._writer.start_tls(as_server)

    async def _pump_up(self, to_server: asyncio.StreamWriter) -> None:
        seen = b""
        while data := await self._reader.read(_CHUNK):
            await self._link._up.wait()
            whole = seen + data
            trap = self._link._trap
            caught = _caught(whole, trap.pattern) if trap is not None else None
            if trap is not None and caught is not None:
                self._link._trap = None
                start, reply = caught
                if trap.when is When.BEFORE:
                    to_server.write(whole[len(seen) : max(start, len(seen))])
                    await to_server.drain()
                    self._close_trap(trap)
                    return
                self._sprung = trap, reply
            seen = whole[-_OVERLAP:]
            to_server.write(data)
            await to_server.drain()

    async def _pump_down(self, from_server: asyncio.StreamReader) -> None:
        while data := await from_server.read(_CHUNK):
            await self._link._down.wait()
            answered = self._sprung is not None and self._sprung[1] in data
            if self._sprung is not None and answered and self._sprung[0].when is When.DURING:
                self._close_trap(self._sprung[0])
                return
            self._writer.write(data)
            await self._writer.drain()
            if self._sprung is not None and answered:
                self._close_trap(self._sprung[0])
                self._sprung = None

    @staticmethod
    def _close_trap(trap: Trap) -> None:
        trap.fire()
        trap.closed.set()


def _caught(sent: bytes, pattern: bytes) -> tuple[int, bytes] | None:
    """Start of the frame with ``pattern`` in its first line, and the subject of its answer."""
    at = sent.find(pattern)
    end = sent.find(b"\r\n", at)
    if at < 0 or end < 0:
        return None
    start = sent.rfind(b"\r\n", 0, at)
    start = 0 if start < 0 else start + 2
    # PUB subject reply size, HPUB subject reply header-size size.
    words = sent[start:end].split()
    return start, words[2] if len(words) > 2 else b""
