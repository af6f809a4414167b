"""Sources ``websocket`` and ``websocket-server``, and sink ``websocket``."""

from __future__ import annotations

import asyncio
import contextlib
import http
import ssl
from typing import TYPE_CHECKING, Any, Final

from mesh.connect.access import check_listen, check_url, words
from mesh.connect.contract import UnavailableError, library, payloads_of
from mesh.errors import MeshError
from mesh.processes.signals import end
from mesh.receiver.tls import client_context, server_context
from mesh.receiver.types.arrivals import PushedPayloads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from mesh.connect.contract import Batch, Context, Record
    from mesh.model.values import JsonMapping


_CALL_S: Final = 10.0
#: Time in which a server takes the messages of one write.
_PONG_S: Final = 30.0
#: Messages that wait for the broker; the server has to wait after them.
_WAITING: Final = 10_000

#: Connections of one server.
_CONNECTIONS_MAX: Final = 1000

#: Bytes of answers, as to pings, that a client has not read.
_UNREAD_MAX: Final = 1 << 20

#: Status with which a peer closes a connection at a message that is too large for it (RFC 6455).
_TOO_BIG: Final = 1009
#: Bytes of a message of a client, and of one of a server that was chosen.
_SIZE_MAX: Final = 1 << 20
_SERVERS_SIZE_MAX: Final = 16 << 20


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
            await end_server(server)


class WebSocketSink:
    """See ``mesh.connect.contract.Sink``."""

    state: JsonMapping | None = None
    #: Events that a slow server takes in ``_PONG_S``.
    events_max = 500

    def __init__(self) -> None:
        self._connection: Any = None
        self._reading: asyncio.Task[None] | None = None

    async def open(self, context: Context, state: JsonMapping | None) -> None:
        """Connect."""
        self._context = context
        await self._connect()

    async def _connect(self) -> None:
        connection = self._connection = await connected(self._context)

        async def drop() -> None:
            """Read what the server says, as its answer to a ping comes after that."""
            with contextlib.suppress(
                library("websockets.exceptions", "websocket").ConnectionClosed
            ):
                while True:
                    await connection.recv()

        self._reading = asyncio.create_task(drop())

    async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
        """Send the payloads, texts as text messages, and a ping.

        The server answers the ping after the messages, which is their only acknowledgement, or
        closes the connection if one is too large for it.  Then each is sent alone, to find which.
        """
        closed = library("websockets.exceptions", "websocket").ConnectionClosed
        payloads = payloads_of(records)
        try:
            for payload in payloads:
                await self._send(payload)
            await self._ping()
        except closed as error:
            if _close_code(error) != _TOO_BIG:
                raise UnavailableError(str(error), is_lost=True) from error
            return await self._one_by_one(payloads)
        return [None] * len(records)

    async def _send(self, payload: bytes) -> None:
        text: bytes | str = payload
        with contextlib.suppress(UnicodeDecodeError):
            text = payload.decode()
        await self._connection.send(text)

    async def _ping(self) -> None:
        """Wait until the server has taken what was sent before."""
        try:
            async with asyncio.timeout(_PONG_S):
                await (await self._connection.ping())
        except TimeoutError as error:
            raise UnavailableError("the server answers no ping", is_lost=True) from error

    async def _one_by_one(self, payloads: Sequence[bytes]) -> Sequence[str | None]:
        closed = library("websockets.exceptions", "websocket").ConnectionClosed
        outcomes: dict[int, str | None] = {}
        is_open = False
        for at, payload in enumerate(payloads):
            try:
                if not is_open:
                    await self.close()
                    await self._connect()
                is_open, outcomes[at] = True, None
                await self._send(payload)
                await self._ping()
            except closed as error:
                is_open = False
                if _close_code(error) != _TOO_BIG:
                    del outcomes[at]
                    text = str(error)
                    raise UnavailableError(text, outcomes=outcomes, is_lost=True) from error
                outcomes[at] = f"a message of {len(payload)} bytes is too large for the server"
            except UnavailableError as error:
                outcomes.pop(at, None)
                raise UnavailableError(str(error), outcomes=outcomes, is_lost=True) from error
        if not is_open:
            await self.close()
            await self._connect()
        return list(outcomes.values())

    async def close(self) -> None:
        """Disconnect."""
        await _end(self._reading, self._connection)
        self._reading = self._connection = None


async def _end(reading: asyncio.Task[None] | None, connection: Any) -> None:
    """Close a connection, also where the task is cancelled before the server has closed it."""
    try:
        if connection is not None:
            await connection.close()
    finally:
        if connection is not None:
            # With TLS a transport that is closed twice can't be aborted in Python 3.11.2.
            with contextlib.suppress(AttributeError):
                connection.transport.abort()
        await end([reading] if reading is not None else [])


def _close_code(error: Any) -> int | None:
    """The status with which the peer has closed a connection; None without one."""
    return error.rcvd.code if error.rcvd is not None else None


def _connect(client: Any) -> Any:
    """The library's ``connect``, which follows no redirect: it could lead past receiver.egress."""

    class Direct(client.connect):  # type: ignore[misc]  # a class that is known at run time
        def process_redirect(self, exc: Exception) -> Exception:
            return exc

    return Direct


async def connected(context: Context) -> Any:
    """A connection to the server of the option ``url``.

    Raises:
        UnavailableError: it does not answer, or refuses.
    """
    client = library("websockets.asyncio.client", "websocket")
    errors = library("websockets.exceptions", "websocket")
    options = context.options
    url = str(options["url"])
    check_url(context.access, url, 443 if url.startswith("wss:") else 80)
    secure = None
    if url.startswith("wss:"):
        secure = client_context(options) or ssl.create_default_context()
    try:
        return await _connect(client)(
            url,
            ssl=secure,
            subprotocols=words(options.get("sub.protocol")) or None,
            additional_headers=options.get("headers") or None,
            open_timeout=_CALL_S,
            close_timeout=1,
            max_size=_SERVERS_SIZE_MAX,
            # The environment of the worker is not the app's.
            proxy=None,
        )
    except (errors.WebSocketException, OSError, TimeoutError) as error:
        raise UnavailableError(str(error) or type(error).__name__) from error


class WebSocketSource(PushedPayloads):
    """See ``mesh.connect.contract.Source``."""

    def __init__(self) -> None:
        self._connection: Any = None
        self._reading: asyncio.Task[None] | None = None

    async def open(self, context: Context, position: JsonMapping | None) -> None:
        """Connect."""
        self.begin()
        self._room = asyncio.Semaphore(_WAITING)
        self._connection = await connected(context)
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            while True:
                message = await self._connection.recv()
                await self._room.acquire()
                await self.put(message.encode() if isinstance(message, str) else message)
        # Whatever ended it, the next ``read`` has to report it.
        except Exception as error:
            self.arrived.fail(str(error) or type(error).__name__)

    async def read(self) -> Batch | None:
        """The messages that have arrived."""
        batch = await super().read()
        for _ in batch.payloads if batch is not None else ():
            self._room.release()
        return batch

    async def close(self) -> None:
        """Disconnect."""
        await _end(self._reading, self._connection)
        self._reading = self._connection = None


async def end_server(server: Any) -> None:
    """End a server of ``served`` with its connections."""
    loop = asyncio.get_running_loop()
    for one in server.sockets:
        loop.remove_reader(one)
    # Python 3.11 loses a connection that it accepts in the round in which its server is closed.
    await asyncio.sleep(0)
    server.close()
    await server.wait_closed()


def _bounded(serving: Any) -> Any:
    """The library's connection of a client, which ends where its answers are not read."""

    class Bounded(serving.ServerConnection):  # type: ignore[misc]  # known at run time
        _unread = 0

        def data_received(self, data: bytes) -> None:
            waiting = self.transport.get_write_buffer_size()
            super().data_received(data)
            # Pings and the like are answered at once.
            answers = self.transport.get_write_buffer_size() - waiting
            self._unread = answers + (self._unread if waiting else 0)
            if self._unread > _UNREAD_MAX:
                self.transport.abort()

    return Bounded


async def served(
    context: Context, role: str, handler: Callable[[object], Awaitable[None]], *, size_max: int
) -> object:
    """A server with the options of ``websocket-server``, which calls ``handler`` for each client.

    Args:
        context: of the source or sink.
        role: ``source`` or ``sink``.
        handler: gets a connection, and ends with it.
        size_max: bytes of a client's message; a larger one ends its connection.

    Raises:
        MeshError: MESH-C133 for an address that can't be bound.
    """
    serving = library("websockets.asyncio.server", "websocket")
    options = context.options
    host, port = str(options["host"]), int(options["port"])
    check_listen(context.access, host, port)
    origins = words(options.get("allow.origin"))

    def admit(connection: Any, _: object) -> object:
        if len(connection.server.connections) > _CONNECTIONS_MAX:
            return connection.respond(http.HTTPStatus.SERVICE_UNAVAILABLE, "too many clients\n")
        return None

    try:
        return await serving.serve(
            handler,
            host,
            port,
            ssl=server_context(options) if options.get("tls.enabled") else None,
            # None: not a browser.
            origins=None if "*" in origins else [None, *origins],
            subprotocols=words(options.get("sub.protocol")) or None,
            process_request=admit,
            close_timeout=1,
            max_size=size_max,
            server_header=None,
            create_connection=_bounded(serving),
        )
    except OSError as error:
        raise MeshError(
            "MESH-C133",
            f"a {role} can't listen on {host}:{port}",
            detail=f"{error.strerror or error}.",
            hint="Another process has it, or the address is not this machine's.",
        ) from error
