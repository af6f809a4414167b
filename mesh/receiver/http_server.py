"""HTTP servers of the host: connectors on one address share it, each with its own path."""

from __future__ import annotations

import asyncio
import socket
import ssl
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import uvicorn

from mesh.connect.contract import NodeAccess
from mesh.errors import MeshError
from mesh.http.connections import BoundedServer, ConnectionLimits
from mesh.http.web_answers import GZIP, Unpacker

#: The usual limits.
USUAL: Final = NodeAccess()
#: Time for requests under way when a server ends, seconds.
_GRACE_S: Final = 2
#: Waiting connections.
_BACKLOG: Final = 512


@dataclass(frozen=True, slots=True)
class Request:
    """Head of a request, and a function that reads its body."""

    method: str
    query: str
    #: By lower-case name.
    headers: Mapping[str, str]
    #: Reads up to so many bytes; None if there are more.
    body: Callable[[int], Awaitable[bytes | None]]


@dataclass(frozen=True, slots=True)
class Response:
    """An answer."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    #: Parts of a body without a known length, which follow ``body``.
    stream: AsyncGenerator[bytes] | None = None


Handler = Callable[[Request], Awaitable[Response]]
_NOT_FOUND: Final = Response(
    404,
    b'{"reason":"nothing is served at this path"}',
    ((b"content-type", b"application/json"),),
)


@dataclass
class _Running:
    server: BoundedServer
    task: asyncio.Task[None]
    port: int
    has_tls: bool
    #: See ``_demand``; nothing without TLS.
    demand: tuple[int, list[bytes]]
    handlers: dict[str, Handler] = field(default_factory=dict)


class HttpServers:
    """The servers of one process, by address."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, int], _Running] = {}

    async def open(
        self,
        host: str,
        port: int,
        path: str,
        handler: Handler,
        tls: ssl.SSLContext | None = None,
        access: NodeAccess = USUAL,
    ) -> int:
        """Serve a path; the port, which may have been 0.

        The first connector of an address brings its certificate; ``access`` has its limits.

        Raises:
            MeshError: MESH-C133 for an address that can't be bound, a path that is served, or http
                and https, or other demands for certificates of clients, at one address.
        """
        running = self._running.get((host, port)) if port else None
        if running is None:
            running = self._start(host, port, tls, access)
            self._running[host, running.port] = running
        if running.has_tls is not (tls is not None):
            raise MeshError(
                "MESH-C133",
                f"{host}:{running.port} serves {'https' if running.has_tls else 'http'} alone",
                hint="Give http and https ports of their own in receiver.url.",
            )
        if tls is not None and _demand(tls) != running.demand:
            raise MeshError(
                "MESH-C133",
                f"{host}:{running.port} asks clients for other certificates than this source",
                hint="Give both the same ssl.verify.client and tls.ca, or ports of their own.",
            )
        if path in running.handlers:
            raise MeshError(
                "MESH-C133",
                f"path {path} of {host}:{running.port} is served already",
                hint="Give each source a path of its own in receiver.url.",
            )
        running.handlers[path] = handler
        return running.port

    async def close(self, host: str, port: int, path: str) -> None:
        """Serve a path no more; the last one ends its server."""
        running = self._running.get((host, port))
        if running is None:
            return
        running.handlers.pop(path, None)
        if not running.handlers:
            del self._running[host, port]
            running.server.should_exit = True
            await asyncio.wait([running.task])

    def _start(
        self, host: str, port: int, tls: ssl.SSLContext | None, access: NodeAccess
    ) -> _Running:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # With the protocol said, asyncio sends an answer's body without waiting for an ack of its
        # head: 40 ms less.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            raise MeshError(
                "MESH-C133",
                f"a source can't listen on {host}:{port}",
                detail=f"{error.strerror or error}.",
                hint="Another process has it, or the address is not this machine's.",
            ) from error
        listener.setblocking(False)
        handlers: dict[str, Handler] = {}
        config = uvicorn.Config(
            _application(handlers),
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_GRACE_S,
            backlog=_BACKLOG,
        )
        config.load()
        config.ssl = tls
        bounds = ConnectionLimits(
            access.connections_max, access.head_timeout_s, access.body_timeout_s
        )
        server = BoundedServer(config, bounds)
        task = asyncio.create_task(server.serve([listener]))
        port = listener.getsockname()[1]
        return _Running(server, task, port, tls is not None, _demand(tls), handlers)


def _demand(tls: ssl.SSLContext | None) -> tuple[int, list[bytes]]:
    """The mode in which certificates of clients are verified, and the authorities."""
    if tls is None or tls.verify_mode is ssl.CERT_NONE:
        return 0, []
    return tls.verify_mode, sorted(tls.get_ca_certs(binary_form=True))


#: Of this process.
SERVERS: Final = HttpServers()


def _application(handlers: Mapping[str, Handler]) -> Any:
    async def application(scope: Any, receive: object, send: Any) -> None:
        if scope["type"] != "http":
            return
        handler = handlers.get(scope["path"])
        answer = _NOT_FOUND
        if handler is not None:
            headers: dict[str, str] = {}
            for raw, octets in scope["headers"]:
                name, value = raw.decode("latin-1"), header_text(octets)
                # Lines of one name are one list (RFC 9110, 5.2).
                headers[name] = f"{headers[name]}, {value}" if name in headers else value
            query = scope["query_string"].decode("latin-1")

            async def body(limit: int) -> bytes | None:
                return await _body(receive, limit)

            answer = await handler(Request(scope["method"], query, headers, body))
        if answer.stream is not None:
            await _send_stream(answer, answer.stream, receive, send)
            return
        await send(
            {"type": "http.response.start", "status": answer.status,
             "headers": [(b"content-length", str(len(answer.body)).encode()), *answer.headers]}
        )  # fmt: skip
        await send({"type": "http.response.body", "body": answer.body})

    return application


def header_text(octets: bytes) -> str:
    """The value of a header: most clients send UTF-8, and the older ones Latin-1."""
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return octets.decode("latin-1")


async def _send_stream(
    answer: Response, stream: AsyncGenerator[bytes], receive: Any, send: Any
) -> None:
    """Send a body part by part until it ends or the client leaves."""

    async def parts() -> None:
        async for part in stream:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    await send(
        {"type": "http.response.start", "status": answer.status, "headers": [*answer.headers]}
    )
    tasks = [asyncio.create_task(parts()), asyncio.create_task(gone())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await stream.aclose()


def allowed(request: Request, origins: Sequence[str]) -> tuple[tuple[bytes, bytes], ...]:
    """Headers that let a page read the answer, if its origin is one of ``origins``."""
    origin = request.headers.get("origin", "")
    if not origin or not {origin, "*"} & set(origins):
        return ()
    return (
        (b"access-control-allow-origin", origin.encode("latin-1", "replace")),
        (b"vary", b"origin"),
    )


def unpacked(body: bytes, limit: int) -> bytes | None:
    """A gzip body of at most ``limit`` bytes once it is unpacked; None for a larger one.

    Raises:
        ValueError: it is no gzip, or not whole.
    """
    packed = Unpacker(GZIP)
    try:
        data = packed.feed(body, limit + 1)
    except zlib.error as error:
        raise ValueError("the body is no gzip") from error
    if len(data) > limit:
        return None
    if not packed.is_whole:
        raise ValueError("the gzip body is not whole")
    return data


async def _body(receive: Any, limit: int) -> bytes | None:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionResetError("the client has closed the connection")
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            return None
        parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)
