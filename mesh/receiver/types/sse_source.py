"""Source ``sse``: the events of a server's stream of ``text/event-stream``.

The id of the last event is the position, and the next request's ``Last-Event-ID``.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import httpx

from mesh.connect.access import check_url
from mesh.connect.contract import Batch, UnavailableError
from mesh.processes.signals import end
from mesh.receiver.outcomes import reason_of
from mesh.receiver.tls import client_context
from mesh.receiver.types.arrivals import Arrivals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.connect.contract import Context
    from mesh.model.values import JsonMapping

_TOGETHER: Final = 1000
_WAIT_S: Final = 0.5
_CALL_S: Final = 10.0
#: Bytes of one event.
_EVENT_MAX: Final = 16 << 20
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
#: An id that the header Last-Event-ID may have: of 1,000 octets, without control characters.
_ID: Final = re.compile(rb"([^\x00-\x20\x7f]([^\x00-\x1f\x7f]{0,998}[^\x00-\x20\x7f])?)?")


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event: its data, and the last id that the stream had then."""

    data: bytes
    id: str
    #: The last id before it; None if it has brought no id of its own.
    before: str | None = None
    #: Its data is left out.
    is_too_large: bool = False

    def name(self) -> str:
        """The same in every read; empty without an id of its own."""
        if self.before is None:
            return ""
        # Of both: a server that starts again may count from the beginning.
        return hashlib.sha256(f"{self.before}\n{self.id}".encode()).hexdigest()[:32]


class EventStream:
    """Parser of a ``text/event-stream``, as HTML's standard has it; no I/O.

    Lines end by CR, LF or both.  An event ends by an empty line; what follows the last one is
    no event.  Only its data and id are of use: ``event``, ``retry`` and comments are skipped, and
    so is an id that no request could ask for.  An event of more than 16 MB has no data.
    """

    def __init__(self, last_id: str = "") -> None:
        self._id = last_id
        #: The id before the event that is being read; None until it has brought its own.
        self._before: str | None = None
        self._rest = bytearray()
        #: Place in the rest before which no line ends.
        self._searched = 0
        self._data: list[bytes] = []
        self._size = 0
        self._is_first = True
        self._is_too_large = False
        #: Whether the beginning of the line that is read is left out.
        self._skips = False

    def feed(self, part: bytes) -> Iterator[ServerEvent]:
        """The events that end in a further part of the stream."""
        self._rest += part
        for line in self._lines():
            if line:
                self._take(line)
                continue
            data, self._data, self._size = self._data, [], 0
            before, self._before = self._before, None
            is_too_large, self._is_too_large = self._is_too_large, False
            if data or is_too_large:
                yield ServerEvent(b"\n".join(data), self._id, before, is_too_large)
        if len(self._rest) + self._size > _EVENT_MAX:
            self._leave_out(self._skips or self._rest.startswith(b"data"))

    def _leave_out(self, is_data: bool) -> None:
        """Forget the line that is read and, if it is of the data, that of the event."""
        if is_data:
            self._data, self._size, self._is_too_large = [], 0, True
        # The LF of a CR at the end may follow.
        del self._rest[: len(self._rest) - self._rest.endswith(b"\r")]
        self._searched, self._skips = 0, True

    def _lines(self) -> Iterator[bytes]:
        rest, start = self._rest, 0
        while True:
            ends = [at for mark in (b"\n", b"\r") if (at := rest.find(mark, self._searched)) >= 0]
            end = min(ends, default=-1)
            # The LF of a CR at the end may follow.
            if end < 0 or (rest[end] == 0x0D and end + 1 == len(rest)):
                self._searched = len(rest) if end < 0 else end
                break
            line = bytes(rest[start:end])
            start = end + (2 if rest[end : end + 2] == b"\r\n" else 1)
            self._searched = start
            if self._skips:
                self._skips = self._is_first = False
                continue
            if self._is_first:
                line, self._is_first = line.removeprefix(_BYTE_ORDER_MARK), False
            yield line
        del rest[:start]
        self._searched -= start

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            if self._size + len(value) >= _EVENT_MAX:
                self._data, self._size, self._is_too_large = [], 0, True
            elif not self._is_too_large:
                self._data.append(value)
                self._size += len(value) + 1
        elif name == b"id" and _ID.fullmatch(value):
            if self._before is None:
                self._before = self._id
            self._id = value.decode(errors="replace")


class SseSource:
    """See ``mesh.connect.contract.Source``."""

    def __init__(self) -> None:
        self._client: httpx.AsyncClient | None = None
        self._reading: asyncio.Task[None] | None = None

    async def open(self, context: Context, position: JsonMapping | None) -> None:
        """Request the stream, after the last event that is stored."""
        options = context.options
        url = str(options["event.source.url"])
        check_url(context.access, url, 443 if url.startswith("https") else 80)
        self._salt, self._number = secrets.token_hex(4), 0
        self._last = str((position or {}).get("id", ""))
        self.arrived: Arrivals[ServerEvent] = Arrivals()
        login = None
        if options.get("basic.auth.username"):
            password = str(options.get("basic.auth.password") or "")
            login = (str(options["basic.auth.username"]), password)
        self._client = httpx.AsyncClient(
            auth=login,
            verify=client_context(options) or True,
            # A stream may be silent for any time.
            timeout=httpx.Timeout(_CALL_S, read=None),
            follow_redirects=False,
            # The environment of the worker is not the app's.
            trust_env=False,
        )
        headers = [*(options.get("headers") or ()), ("Accept", "text/event-stream")]
        headers += [("Accept-Encoding", "identity"), ("Cache-Control", "no-store")]
        if self._last:
            headers.append(("Last-Event-ID", self._last.encode()))
        try:
            async with asyncio.timeout(_CALL_S):
                method = str(options.get("method") or "GET").upper()
                request = self._client.build_request(method, url, headers=headers)
                answer = await self._client.send(request, stream=True)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, TimeoutError, ValueError) as error:
            raise UnavailableError(f"{url}: {reason_of(error)}") from error
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if answer.status_code != 200 or kind != "text/event-stream":
            await answer.aclose()
            what = f"content of type {kind or 'none'}" if answer.is_success else ""
            raise UnavailableError(f"{url} answered {what or answer.status_code}")
        self._reading = asyncio.create_task(self._read(answer))

    async def _read(self, answer: httpx.Response) -> None:
        stream = EventStream(self._last)
        try:
            async for part in answer.aiter_raw():
                for event in stream.feed(part):
                    self.arrived.put(event, len(event.data) + len(event.id))
                # The server has to wait.
                await self.arrived.room()
            self.arrived.fail("the server has ended the stream")
        # Whatever ended it, the next ``read`` has to report it.
        except Exception as error:
            self.arrived.fail(reason_of(error))
        finally:
            await answer.aclose()

    async def read(self) -> Batch | None:
        """The events that have arrived."""
        number = self._number + 1
        events = await self.arrived.take(number, _TOGETHER, _WAIT_S)
        if not events:
            return None
        self._number = number
        names = [one.name() or f"{self._salt}-{number}-{at}" for at, one in enumerate(events)]
        position = {"id": events[-1].id, "batch": number}
        reason = f"the event has more than {_EVENT_MAX >> 20} MB"
        refused = {at: reason for at, one in enumerate(events) if one.is_too_large}
        return Batch([one.data for one in events], position, None, names, refused)

    async def committed(self, position: JsonMapping) -> None:
        """Make room for further events; the server wants no acknowledgement."""
        self.arrived.stored(position["batch"])

    async def close(self) -> None:
        """Disconnect."""
        reading, self._reading = self._reading, None
        await end([reading] if reading is not None else [])
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()
