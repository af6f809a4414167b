"""gRPC servers of sources: one for each address of a process, divided by the names of methods.

Messages are bytes here: what they mean is known to the source and its mapper.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from mesh.connect.contract import library
from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    import grpc.aio

    from mesh.connect.contract import NodeAccess
    from mesh.receiver.tls import Pems

    #: From the messages of a call and its context to the only message of the answer.
    Handler = Callable[[AsyncIterator[bytes], grpc.aio.ServicerContext], Awaitable[bytes]]


def modules() -> tuple[Any, Any]:
    """The library and its part for ``asyncio``.

    Raises:
        MeshError: MESH-C134 if it is not installed.
    """
    # Its handlers of forks are for children that use it; ours run other programs.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
    return library("grpc", "grpc"), library("grpc.aio", "grpc")


@dataclass(frozen=True, slots=True)
class GrpcLimits:
    """Limits of a server; those of the first source of an address count."""

    message_bytes: int
    metadata_bytes: int
    #: Of clients, and of calls under way.
    access: NodeAccess


@dataclass
class _Running:
    server: Any
    port: int
    #: See ``GrpcServers.open``.
    tls: tuple[Pems, bool] | None
    handlers: dict[str, Handler] = field(default_factory=dict)
    #: Calls under way by the client's address.
    calls: Counter[str] = field(default_factory=Counter)


class GrpcServers:
    """The servers of one process, by address."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, int], _Running] = {}
        self._opening = asyncio.Lock()

    async def open(
        self,
        host: str,
        port: int,
        method: str,
        handler: Handler,
        limits: GrpcLimits,
        tls: tuple[Pems, bool] | None = None,
    ) -> int:
        """Serve a method; the port, which may have been 0.

        Args:
            host: to bind.
            port: to bind.
            method: ``/package.Service/method``.
            handler: of its calls.
            limits: of the server.
            tls: certificate and key, and whether clients have to show a certificate.

        Raises:
            MeshError: MESH-C133 for an address that can't be bound, a method that is served, or
                another certificate, or demand for one, than that of the address.
        """
        async with self._opening:
            running = self._running.get((host, port)) if port else None
            if running is None:
                running = await self._start(host, port, limits, tls)
                self._running[host, running.port] = running
        if running.tls != tls:
            raise MeshError(
                "MESH-C133",
                f"{host}:{running.port} serves gRPC {_described(running.tls)}, and this source "
                f"wants it {_described(tls)}",
                hint="Sources at one address have the same options of TLS; or give both ports of "
                "their own in receiver.url.",
            )
        if method in running.handlers:
            raise MeshError(
                "MESH-C133",
                f"method {method} of {host}:{running.port} is served already",
                hint="Give each source a method or a port of its own in receiver.url.",
            )
        running.handlers[method] = handler
        return running.port

    async def close(self, host: str, port: int, method: str, grace_s: float) -> None:
        """Serve a method no more; the last one ends its server, ``grace_s`` after its calls."""
        running = self._running.get((host, port))
        if running is None:
            return
        running.handlers.pop(method, None)
        if not running.handlers:
            del self._running[host, port]
            await running.server.stop(grace_s)

    async def _start(
        self, host: str, port: int, limits: GrpcLimits, tls: tuple[Pems, bool] | None
    ) -> _Running:
        grpc, aio = modules()
        access = limits.access
        running = _Running(None, 0, tls)
        running.server = aio.server(
            handlers=(_Methods(grpc, running, access.connections_max // 2),),
            maximum_concurrent_rpcs=access.connections_max,
            options=(
                # Another process must not share the port.
                ("grpc.so_reuseport", 0),
                ("grpc.max_allowed_incoming_connections", access.connections_max),
                ("grpc.server_handshake_timeout_ms", round(access.head_timeout_s * 1000)),
                ("grpc.max_receive_message_length", limits.message_bytes),
                ("grpc.max_metadata_size", limits.metadata_bytes),
                # Else the server refuses some of the calls with more, by chance.
                ("grpc.absolute_max_metadata_size", limits.metadata_bytes),
            ),
        )
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if tls is None:
                running.port = running.server.add_insecure_port(where)
            else:
                pems, shows = tls
                credentials = grpc.ssl_server_credentials(
                    [(pems.key, pems.chain)], pems.trusted or None, shows
                )
                running.port = running.server.add_secure_port(where, credentials)
        except (RuntimeError, ValueError) as error:
            raise MeshError(
                "MESH-C133",
                f"a source can't listen on {host}:{port}",
                detail=f"{error}.",
                hint="Another process has it, or the address is not this machine's.",
            ) from error
        await running.server.start()
        return running


def _described(tls: tuple[Pems, bool] | None) -> str:
    if tls is None:
        return "without TLS"
    return f"with a certificate, and {'' if tls[1] else 'no '}certificates of clients"


class _Methods:
    """The methods of a server, as gRPC looks them up; an unknown one is UNIMPLEMENTED."""

    def __init__(self, grpc: Any, running: _Running, most: int) -> None:
        #: Calls of one client.
        self._most = max(1, most)
        self._grpc, self._running = grpc, running

    def service(self, details: Any) -> Any:
        """The handler of a call."""
        handler = self._running.handlers.get(details.method)
        if handler is None:
            return None

        async def bounded(
            messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext
        ) -> bytes:
            client, calls = context.peer().rpartition(":")[0], self._running.calls
            if calls[client] >= self._most:
                code = self._grpc.StatusCode.RESOURCE_EXHAUSTED
                await context.abort(code, "too many calls of this client are under way")
            calls[client] += 1
            try:
                return await handler(messages, context)
            finally:
                calls[client] -= 1
                if not calls[client]:
                    del calls[client]

        # On the wire one message is a stream of one.
        return self._grpc.stream_unary_rpc_method_handler(bounded)


#: Of this process.
SERVERS: Final = GrpcServers()
