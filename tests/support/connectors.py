"""HTTP servers of tests, and the stage of the conformance kit with a login."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mesh.jetstream.server import free_port
from mesh.model import names
from mesh.receiver.http_server import HttpServers, Request, Response
from mesh.testing import connectors

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from mesh.connect.contract import NodeAccess
    from mesh.jetstream.server import NatsServer
    from mesh.testing.connectors import Stage

SECRETS = {"vault": {"basic.auth.username": "u", "basic.auth.password": "hunter2"}}


def staged(
    server: NatsServer, text: str, access: NodeAccess | None = None
) -> AbstractAsyncContextManager[Stage]:
    """A stage for the app ``text``."""
    return connectors.staged(server.url, text, access, SECRETS)


async def first_position(stage: Stage, sign: bytes) -> None:
    """Wait until the source of stream S has stored a position that contains ``sign``."""
    js_stream = names.js_stream(stage.spec.name, "S")
    subject = f"{names.marker_subject(js_stream)}.receiver-S-source"

    async def is_stored() -> bool:
        return any(sign in m for m in await stage.messages(js_stream, subject))

    await stage.until("its first position", is_stored)


class Endpoint:
    """An HTTP server of a test, which can be closed and opened again on its port."""

    def __init__(self) -> None:
        self.servers = HttpServers()
        self.port = 0
        self.bodies: list[Any] = []
        self.keys: list[str] = []
        self.heads: list[dict[str, str]] = []
        #: Statuses of the next answers; 200 after them.
        self.statuses: list[int] = []

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}/in"

    async def open(self) -> None:
        """Accept requests."""
        # While it is closed, the kernel gives this port to no other process.
        self.port = self.port or free_port()
        self.port = await self.servers.open("127.0.0.1", self.port, "/in", self._answer)

    async def close(self) -> None:
        """Refuse connections."""
        await self.servers.close("127.0.0.1", self.port, "/in")

    async def _answer(self, request: Request) -> Response:
        body = await request.body(1 << 20)
        if self.statuses:
            status = self.statuses.pop(0)
            if status != 200:
                return Response(status, b"no", ((b"retry-after", b"0"),))
        key = request.headers["idempotency-key"]
        self.heads.append(dict(request.headers))
        if key not in self.keys:
            self.keys.append(key)
            self.bodies.append(json.loads(body or b"null"))
        return Response(200)
