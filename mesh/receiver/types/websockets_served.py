"""WebSocket server of one source or sink, on a port of its own."""

from __future__ import annotations

import http
from typing import TYPE_CHECKING, Any, Final

from mesh.connect.extras import library
from mesh.errors import MeshError
from mesh.receiver.access import check_listen, words
from mesh.receiver.tls import server_context

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mesh.connect.contract import Context

#: Connections of one server.
_CONNECTIONS_MAX: Final = 1000


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
        )
    except OSError as error:
        raise MeshError(
            "MESH-C133",
            f"a {role} can't listen on {host}:{port}",
            detail=f"{error.strerror or error}.",
            hint="Another process has it, or the address is not this machine's.",
        ) from error
