"""HTTP servers with bounded connections, and time limits for clients that send or read slowly.

The process that serves the API may lead the cluster, and one that serves sources has all connectors
of a worker.  Its files are few, and connections that do nothing must not use them up: uvicorn
accepts any number, and waits without limit for a request, and for a client to read the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from mesh.processes.signals import end
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable, Iterator

log = logging.getLogger(__name__)

#: Rest after an error of the system, such as too many open files.
ACCEPT_REST_S = 0.5
#: The part of all connections that one address may have.
SHARE: Final = 0.5


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of a server."""

    connections_max: int
    #: Of a TLS handshake and of the head of a request; from the connection or the last response.
    head_timeout_s: float
    #: Of the body of a request, from its head; and for a client to read what it is sent.
    body_timeout_s: float


class _Wait(Enum):
    """The next thing that a client has to do."""

    SEND_HEAD = auto()
    SEND_BODY = auto()
    READ_ANSWER = auto()


class TimedProtocol(H11Protocol):
    """Closes a connection whose next request is not whole in time, or whose answer is not read.

    Args:
        bounds: limits of the server.
        more: of ``H11Protocol``.
    """

    def __init__(self, bounds: ConnectionLimits, **more: Any) -> None:
        super().__init__(**more)
        self._limits_s = {
            _Wait.SEND_HEAD: bounds.head_timeout_s,
            _Wait.SEND_BODY: bounds.body_timeout_s,
            _Wait.READ_ANSWER: bounds.body_timeout_s,
        }
        self._timer: asyncio.TimerHandle | None = None
        #: The step that the timer limits.
        self._timed: _Wait | None = None
        self.closed = asyncio.Event()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time of the first head."""
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time."""
        super().connection_lost(exc)
        self._time(None)
        self.closed.set()

    def data_received(self, data: bytes) -> None:
        """Time the next part if this completes one; any other data leaves the time running."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Start the time of the next head."""
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """Start the time to read an answer: more of it waits than the system takes."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """Stop the time to read an answer."""
        super().resume_writing()
        self._watch()

    def _watch(self) -> None:
        wait = self._wait()
        if wait is not self._timed:
            self._time(wait)

    def _wait(self) -> _Wait | None:
        """The next thing that the client has to do; None if it waits for an answer, or leaves."""
        if self.flow.write_paused:
            return _Wait.READ_ANSWER
        if self.transport.is_closing():
            return None
        # None before the first request, against its annotation.
        cycle: Any = self.cycle
        if cycle is None or cycle.response_complete:
            return _Wait.SEND_HEAD
        return _Wait.SEND_BODY if cycle.more_body else None

    def _time(self, wait: _Wait | None) -> None:
        """Stop the time, and start that of ``wait``."""
        if self._timer is not None:
            self._timer.cancel()
        self._timed, self._timer = wait, None
        if wait is not None:
            self._timer = self.loop.call_later(self._limits_s[wait], self._late)

    def _late(self) -> None:
        """Close the connection, unless it is this side that does not read the body."""
        if self._timed is _Wait.SEND_BODY and self.flow.read_paused:
            self._time(_Wait.SEND_BODY)
        else:
            self.transport.abort()


class Acceptor:
    """Accepts connections on a socket, and no more than ``connections_max`` at a time.

    Further clients wait in the queue of the system.  An address that has its share of all
    connections is refused, so that others can connect.
    """

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[], TimedProtocol],
        tls: ssl.SSLContext | None,
        bounds: ConnectionLimits,
    ) -> None:
        """Create one that accepts nothing yet.

        Args:
            listening: bound, and without blocking.
            make: the protocol of a connection.
            tls: None for plain HTTP.
            bounds: limits of the server.
        """
        self._listening = listening
        self._make = make
        self._tls = tls
        self._handshake_s = bounds.head_timeout_s
        self._free = asyncio.Semaphore(bounds.connections_max)
        self._share = max(1, int(bounds.connections_max * SHARE))
        self._by_address: Counter[str] = Counter()

    async def run(self) -> None:
        """Accept without end; when cancelled, connections are left to their protocols."""
        loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task[None]] = set()
        while True:
            await self._free.acquire()
            try:
                connection, address = await self._accept()
            except OSError as error:
                self._free.release()
                log.warning("connection not accepted", extra=fields(error=error))
                await asyncio.sleep(ACCEPT_REST_S)
                continue
            task = loop.create_task(self._serve(connection, str(address[0])))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def _accept(self) -> tuple[socket.socket, Any]:
        """The next connection; asyncio's ``sock_accept`` may lose it when it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = self._listening.accept()
            except BlockingIOError:
                is_readable = asyncio.Event()
                loop.add_reader(self._listening, is_readable.set)
                try:
                    await is_readable.wait()
                finally:
                    loop.remove_reader(self._listening)
            else:
                connection.setblocking(False)
                return connection, address

    async def _serve(self, connection: socket.socket, address: str) -> None:
        """Hand a connection to its protocol, and wait for its end."""
        self._by_address[address] += 1
        try:
            if self._by_address[address] > self._share:
                connection.close()
                return
            # A handshake that fails or takes too long, and a client that has gone.
            with contextlib.suppress(OSError, TimeoutError):
                loop = asyncio.get_running_loop()
                _, protocol = await loop.connect_accepted_socket(
                    self._make,
                    connection,
                    ssl=self._tls,
                    ssl_handshake_timeout=self._handshake_s if self._tls else None,
                )
                await protocol.closed.wait()
        finally:
            self._free.release()
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]


class BoundedServer(uvicorn.Server):
    """uvicorn's server with our own acceptance of connections."""

    def __init__(self, config: uvicorn.Config, bounds: ConnectionLimits) -> None:
        super().__init__(config)
        # A line for each request that is no HTTP would fill the log.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._bounds = bounds
        self._accepting: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""

        def make() -> TimedProtocol:
            return TimedProtocol(
                self._bounds, config=self.config, server_state=self.server_state, app_state={}
            )

        # uvicorn's list of servers of its own.
        self.servers = []
        for one in sockets or []:
            acceptor = Acceptor(one, make, self.config.ssl, self._bounds)
            task = asyncio.create_task(acceptor.run())
            task.add_done_callback(self._accepts_no_more)
            self._accepting.append(task)
        self.started = True

    def _accepts_no_more(self, task: asyncio.Task[None]) -> None:
        """End, and with it the process of the API, so that its service manager starts it again."""
        if not task.cancelled():
            log.error("server accepts no more connections", exc_info=task.exception())
            self.should_exit = True

    async def end_acceptance(self) -> None:
        """Accept no more; before the sockets are closed, which would be an error of each."""
        await end(self._accepting)

    async def abandon(self) -> None:
        """Accept no more, close all connections, and end the requests under way.

        For a server that was cancelled, and so not shut down: a request that is answered after the
        process's main task has ended may begin a thread that keeps the process.
        """
        await self.end_acceptance()
        for protocol in list(self.server_state.connections):
            transport = getattr(protocol, "transport", None)
            if transport is not None:
                transport.abort()
        await end(list(self.server_state.tasks))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, and complete the requests under way."""
        await self.end_acceptance()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the process, which ends more than the server on them."""
        yield
