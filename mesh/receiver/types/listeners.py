"""Sinks ``sse-server`` and ``websocket-server``: listeners get the events from then on.

A listener that does not keep up is disconnected, and holds nothing up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from mesh.connect.access import check_listen, words
from mesh.connect.contract import library
from mesh.errors import MeshError
from mesh.receiver.http_server import SERVERS, Response, allowed
from mesh.receiver.tls import server_context
from mesh.receiver.types.websocket import end_server, served

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from mesh.connect.contract import Context, Record
    from mesh.model.values import JsonMapping
    from mesh.receiver.http_server import Request

#: Payloads that wait for one listener, their bytes, and listeners of one sink.
_WAITING: Final = 10_000
_WAITING_BYTES: Final = 32 << 20
_LISTENERS: Final = 1000
#: Bytes of the last payloads that a sink keeps.
_KEPT_BYTES: Final = 16 << 20
#: Interval of signs of life, seconds.
_ALIVE_S: Final = 15.0


_Place = tuple[str, tuple[int, ...]]


class Queue(asyncio.Queue[tuple[str, bytes] | None]):
    """Ids and payloads for one listener; None ends it."""

    #: Bytes of the payloads.
    size = 0
    #: Place of the last event that the listener has got before; None without one.
    after: _Place | None = None

    def _put(self, item: tuple[str, bytes] | None) -> None:
        self.size += len(item[1]) if item is not None else 0
        super()._put(item)

    def _get(self) -> tuple[str, bytes] | None:
        item = super()._get()
        self.size -= len(item[1]) if item is not None else 0
        return item


class Audience:
    """Queues of those that listen, and the last payloads by id."""

    def __init__(self, history_max: int) -> None:
        self._history_max = max(0, history_max)
        self._history: deque[tuple[str, bytes]] = deque()
        self._history_size = 0
        self._queues: set[Queue] = set()

    def publish(self, items: Sequence[tuple[str, bytes]]) -> None:
        """Give payloads to all; one whose queue is full gets the end instead."""
        self._history.extend(items)
        self._history_size += sum(len(payload) for _, payload in items)
        while len(self._history) > self._history_max or self._history_size > _KEPT_BYTES:
            self._history_size -= len(self._history.popleft()[1])
        for queue in list(self._queues):
            if queue.qsize() + len(items) > _WAITING or queue.size > _WAITING_BYTES:
                self._end(queue)
            else:
                for item in items:
                    # A sink begins again at its stored position when its host was killed.
                    if queue.after is None or _follows(item[0], queue.after):
                        queue.put_nowait(item)

    def _end(self, queue: Queue) -> None:
        self._queues.discard(queue)
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(None)

    def join(self, last: str = "") -> Queue | None:
        """Queue of a new listener with the kept ones after id ``last``; None for one too many.

        They are after it also where it is not kept any more itself.
        """
        if len(self._queues) >= _LISTENERS:
            return None
        queue = Queue()
        queue.after = _place(last)
        if queue.after is not None:
            for item in self._history:
                if _follows(item[0], queue.after):
                    queue.put_nowait(item)
        self._queues.add(queue)
        return queue

    def leave(self, queue: Queue) -> None:
        """End one listener."""
        self._queues.discard(queue)

    def close(self) -> None:
        """End all."""
        for queue in list(self._queues):
            self._end(queue)


def _place(name: str) -> _Place | None:
    """Incarnation, sequence and index of an id; None for another text, as a client may send."""
    incarnation, _, place = name.rpartition("/")
    parts = place.split(".")
    if len(place) > 40 or not all(part.isdecimal() for part in parts):
        return None
    return incarnation, tuple(map(int, parts))


def _follows(name: str, place: _Place) -> bool:
    """Whether an event comes after a place, as all do if that is of an app that was undeployed."""
    own = _place(name)
    return own is None or own[0] != place[0] or own[1] > place[1]


def _name(record: Record) -> str:
    return "/".join(record.key.rsplit("/", 2)[1:])


class SseServerSink:
    """See ``mesh.connect.contract.Sink``."""

    state: JsonMapping | None = None

    def __init__(self) -> None:
        self._at: tuple[str, int, str] | None = None
        self._audience = Audience(0)

    async def open(self, context: Context, state: JsonMapping | None) -> None:
        """Bind the address."""
        options = context.options
        url = str(options["server.url"]).replace("{app}", context.app)
        parts = urlsplit(url.replace("{stream}", context.stream))
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise MeshError(
                "MESH-C133",
                f"server.url {url} is not served",
                hint="Write http://host:port/path or https://host:port/path.",
            )
        tls = server_context(options) if parts.scheme == "https" else None
        port = parts.port if parts.port is not None else 8280
        check_listen(context.access, parts.hostname, port)
        self._audience = Audience(int(options.get("kept.events") or 0))
        self._origins = words(options.get("allow.origin"))
        path = parts.path or "/"
        bound = await SERVERS.open(
            parts.hostname, port, path, self._answer, tls, access=context.access
        )
        self._at = parts.hostname, bound, path

    async def _answer(self, request: Request) -> Response:
        if request.method != "GET":
            return Response(405, b"", ((b"allow", b"GET"),))
        queue = self._audience.join(request.headers.get("last-event-id", ""))
        if queue is None:
            return Response(503, b"", ((b"retry-after", b"5"),))
        headers = (
            (b"content-type", b"text/event-stream"),
            (b"cache-control", b"no-store"),
            *allowed(request, self._origins),
        )
        return Response(200, b"", headers, self._stream(queue))

    async def _stream(self, queue: Queue) -> AsyncGenerator[bytes]:
        try:
            yield b": listening\n\n"
            while True:
                try:
                    async with asyncio.timeout(_ALIVE_S):
                        item = await queue.get()
                except TimeoutError:
                    yield b":\n\n"
                    continue
                if item is None:
                    return
                parts = [sse_event(*item)]
                while not queue.empty():
                    item = queue.get_nowait()
                    if item is None:
                        yield b"".join(parts)
                        return
                    parts.append(sse_event(*item))
                yield b"".join(parts)
        finally:
            self._audience.leave(queue)

    async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
        """Give the payloads to all that listen now."""
        self._audience.publish([(_name(record), record.payload) for record in records])
        return [None] * len(records)

    async def close(self) -> None:
        """End the connections of listeners, and serve the path no more."""
        self._audience.close()
        if self._at is not None:
            at, self._at = self._at, None
            await SERVERS.close(*at)


def sse_event(name: str, payload: bytes) -> bytes:
    """One server-sent event: its id, and a line of data for each line."""
    lines = payload.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    data = b"".join(b"data: %b\n" % line for line in lines)
    return b"id: %b\n%b\n" % (name.encode(), data)


class WebSocketServerSink:
    """See ``mesh.connect.contract.Sink``."""

    state: JsonMapping | None = None

    def __init__(self) -> None:
        self._audience = Audience(0)
        self._server: Any = None

    async def open(self, context: Context, state: JsonMapping | None) -> None:
        """Bind the port."""
        self._server = await served(context, "sink", self._serve, size_max=1024)

    async def _serve(self, connection: Any) -> None:
        closed = library("websockets.exceptions", "websocket").ConnectionClosed
        queue = self._audience.join()
        if queue is None:
            return
        ending = asyncio.create_task(connection.wait_closed())
        ending.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (item := await queue.get()) is not None:
                payload: bytes | str = item[1]
                with contextlib.suppress(UnicodeDecodeError):
                    payload = item[1].decode()
                await connection.send(payload)
        except closed:
            pass
        finally:
            self._audience.leave(queue)
            ending.cancel()

    async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
        """Send the payloads to all that listen now; texts as text messages."""
        self._audience.publish([(_name(record), record.payload) for record in records])
        return [None] * len(records)

    async def close(self) -> None:
        """End all connections."""
        self._audience.close()
        server, self._server = self._server, None
        if server is not None:
            await end_server(server)
