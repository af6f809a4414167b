"""HTTP server of a scenario that can refuse, be slow, or accept and never answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
from enum import Enum
from typing import Any, Final

from mesh.clock import SystemClock

#: Time of an answer of a slow server, seconds.
SLOW_S: Final = 1.0


class Manner(Enum):
    """Behaviour of an endpoint."""

    WELL = "answers"
    SLOW = "answers late"
    #: Half-open: connections are accepted, and nothing is ever answered.
    SILENT = "never answers"
    #: Nothing listens at its port.
    CLOSED = "refuses connections"


class Endpoint:
    """Receives JSON objects by POST; repeats of an Idempotency-Key count once."""

    def __init__(self) -> None:
        self.port = 0
        self.manner = Manner.CLOSED
        #: By key, in the order of arrival: time in milliseconds, and the body.
        self.found: dict[str, tuple[float, Any]] = {}
        #: Time of the last new one, seconds of a clock that only grows.
        self.last_s = 0.0
        #: Requests with a key that was there already; those whose body was another one.
        self.repeats = self.changed = 0
        self._clock = SystemClock()
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}/in"

    async def become(self, manner: Manner) -> None:
        """Behave so from now on; connections that are open end."""
        self.manner = manner
        for writer in list(self._open):
            writer.close()
        if manner is Manner.CLOSED and self._server is not None:
            server, self._server = self._server, None
            server.close()
            await server.wait_closed()
        elif manner is not Manner.CLOSED and self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    await self._answer(reader, writer)
        finally:
            self._open.discard(writer)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")[1:-2]
        headers = dict(line.split(": ", 1) for line in lines)
        body = await reader.readexactly(int(headers["content-length"]))
        manner = self.manner
        if manner is Manner.SILENT:
            # Until the client gives up.
            await reader.read()
            return
        if manner is Manner.SLOW:
            await asyncio.sleep(SLOW_S)
        event, key = json.loads(body), headers["idempotency-key"]
        if key in self.found:
            self.repeats += 1
            self.changed += self.found[key][1] != event
        else:
            self.found[key] = (self._clock.wall_ms(), event)
            self.last_s = self._clock.monotonic_s()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
