"""Probes and metrics of a worker over HTTP: ``/health/live``, ``/health/ready``, ``/metrics``.

The agent's process answers, so a hanging Spark session does not end a live worker.  There is no
framework: a probe is one request line, one answer, and the end of the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import orjson

from mesh.control.readiness import worker_reasons
from mesh.errors import MeshError
from mesh.worker import metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from nats.aio.client import Client

    from mesh.control.agent_state import AgentState
    from mesh.model.values import JsonObject
    from mesh.settings import WorkerSettings
    from mesh.worker.metrics import WorkerValues

#: Bytes of a request's head, and the time that it may take.
_HEAD_MAX: Final = 8192
_HEAD_S: Final = 5.0


class Probes:
    """State that the probes report; ``state`` is None until the agent exists."""

    def __init__(self) -> None:
        self.state: AgentState | None = None
        #: Input of the worker's metrics; None until the agent exists.
        self.metrics: Callable[[], WorkerValues] | None = None
        #: The agent's connection; None until it exists.
        self.client: Client | None = None

    def answer(self, request_line: str) -> tuple[HTTPStatus, JsonObject]:
        """Status and values for a request line like ``GET /health/ready HTTP/1.1``."""
        method, _, rest = request_line.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if path not in ("/health", "/health/live", "/health/ready"):
            values = {"code": "MESH-A404", "message": "not found"}
            return HTTPStatus.NOT_FOUND, values
        if method != "GET":
            values = {"code": "MESH-A405", "message": "method not allowed"}
            return HTTPStatus.METHOD_NOT_ALLOWED, values
        if path != "/health/ready":
            if self.client is not None and self.client.is_closed:
                return HTTPStatus.SERVICE_UNAVAILABLE, {"status": "down"}
            return HTTPStatus.OK, {"status": "up"}
        reasons = worker_reasons(self.state)
        if reasons:
            unready = {"status": "not ready", "reasons": list(reasons)}
            return HTTPStatus.SERVICE_UNAVAILABLE, unready
        return HTTPStatus.OK, {"status": "ready", "reasons": []}

    async def _answered(self, line: str) -> tuple[HTTPStatus, str, bytes]:
        """Status, type and body for a request line."""
        if line.startswith(("GET /metrics ", "GET /metrics?")) and self.metrics is not None:
            # It looks at files and processes.
            body = await asyncio.to_thread(metrics.exposition, self.metrics())
            return HTTPStatus.OK, metrics.CONTENT_TYPE, body
        status, values = self.answer(line)
        return status, "application/json", orjson.dumps(values) + b"\n"

    async def respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and close the connection."""
        try:
            async with asyncio.timeout(_HEAD_S):
                head = await reader.readuntil(b"\r\n\r\n")
                line = head.partition(b"\r\n")[0].decode("ascii", "replace")
                status, kind, body = await self._answered(line)
                writer.write(
                    f"HTTP/1.1 {status.value} {status.phrase}\r\n"
                    f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                    "Connection: close\r\n\r\n".encode()
                    + body
                )
                await writer.drain()
        # A client that sends no request, too long a one, or leaves, gets no answer.
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            return
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@asynccontextmanager
async def serving(settings: WorkerSettings) -> AsyncIterator[Probes]:
    """Probes that answer on ``worker.probe_port``; with port 0 nothing listens.

    Raises:
        MeshError: MESH-C113 when the address is taken or not this machine's.
    """
    probes = Probes()
    if not settings.probe_port:
        yield probes
        return
    try:
        server = await asyncio.start_server(
            probes.respond, settings.probe_host, settings.probe_port, limit=_HEAD_MAX
        )
    except OSError as error:
        raise MeshError(
            "MESH-C113",
            f"the worker's probes can't listen on {settings.probe_host}:{settings.probe_port}",
            detail=f"{error.strerror or error}.",
            hint="Set worker.probe_host and worker.probe_port; port 0 is for no probes.",
        ) from error
    async with server:
        yield probes
