"""Source ``syslog``: the messages of systems and devices, over UDP, TCP or TLS.

A message is one of RFC 5424 or of RFC 3164, whose programs keep to no grammar: what is not
recognised stays in the text, and no message is refused.  TCP has frames by size or by line (RFC
6587).  Nothing is acknowledged: a client of TCP waits while its messages are not stored, and
datagrams that have no room are dropped and counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING, Any, Final

import orjson

from mesh.connect.access import check_listen
from mesh.errors import MeshError
from mesh.receiver.tcp_server import Clients
from mesh.receiver.tls import server_context
from mesh.receiver.types.arrivals import PushedPayloads

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.connect.contract import Context

#: Datagrams that wait for room: a burst of a second.
_DATAGRAMS_MAX: Final = 10_000
#: Of a message without a priority: a notice of a user's program (RFC 3164, 4.3.3).
_FACILITY, _SEVERITY = 1, 5
_PRIORITY: Final = re.compile(r"<([0-9]{1,3})>")
_PRIORITIES: Final = 192
#: Version 1, and time, host, program, process and kind of message.
_HEADER: Final = re.compile(r"1 (\S+) (\S+) (\S+) (\S+) (\S+) (?=-|\[)")
_NAME: Final = r"[^\s=\]\"]{1,64}"
_PARAMETER: Final = re.compile(rf' ({_NAME})="((?:[^"\\]|\\.)*)"', re.DOTALL)
_ELEMENT: Final = re.compile(
    rf'\[({_NAME})((?: {_NAME}="(?:[^"\\]|\\.)*")*)\]', re.DOTALL
)  # fmt: skip
#: Between frames, the size of one, and the end of a line.
_BLANK: Final = re.compile(rb"[\r\n\0]*")
_DIGITS_MAX: Final = 9
_SIZE: Final = re.compile(rb"([0-9]{1,9})( )?")
_END: Final = re.compile(rb"[\n\0]")
_CHUNK: Final = 1 << 16
_ESCAPED: Final = re.compile(r'\\(["\\\]])')
#: Of RFC 3164: time, host and program, each if it is there.  A host does not end with a colon.
_OLD_HEADER: Final = re.compile(
    r"(?:([A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8}) (?:([^\s\[]*[^\s\[:]) )?)?"
    r"(?:([^\s\[\]:]{1,64})(?:\[([^\s\]]{0,64})\])?:(?: |$))?"
)


def event_of(message: bytes, sender: str) -> dict[str, Any]:
    """The event of a message; its text is read as UTF-8, with a mark for each wrong octet."""
    text = message.decode("utf-8", "replace").rstrip("\r\n\0")
    priority = _PRIORITY.match(text)
    if priority is None or int(priority[1]) >= _PRIORITIES:
        facility, severity = _FACILITY, _SEVERITY
    else:
        facility, severity = divmod(int(priority[1]), 8)
        text = text[priority.end() :]
    found = _HEADER.match(text)
    if found is not None:
        words = [None if one == "-" else one for one in found.groups()]
        data, text = _structured(text[found.end() :])
    else:
        old = _OLD_HEADER.match(text)
        assert old is not None, "each of its parts may be missing"
        words, data, text = [*old.groups(), None], {}, text[old.end() :]
    names = ("timestamp", "hostname", "app_name", "proc_id", "msg_id")
    return {
        "facility": facility,
        "severity": severity,
        **dict(zip(names, words, strict=True)),
        "structured_data": data,
        "message": text,
        "sender": sender,
    }


def _structured(text: str) -> tuple[dict[str, dict[str, str]], str]:
    """The structured data at the beginning of a text, by element and name, and the message."""
    data: dict[str, dict[str, str]] = {}
    at = 1 if text.startswith("-") else 0
    while at < len(text) and (element := _ELEMENT.match(text, at)):
        parameters = _PARAMETER.findall(element[2])
        data[element[1]] = {name: _ESCAPED.sub(r"\1", value) for name, value in parameters}
        at = element.end()
    return data, text[at:].removeprefix(" ").removeprefix("\ufeff")


class Frames:
    """The messages of a connection: ``12 <13>text ..``, or lines; NUL ends a line as well.

    A message of more than ``size_max`` bytes is dropped, and the next one is found after it.
    """

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._rest = b""
        #: Octets of a message that are dropped when they come, or all to the end of the line.
        self._skip = 0
        self._skips_line = False
        #: Messages that were dropped.
        self.dropped = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that are whole with ``data``."""
        data, found, at = self._rest + data, [], 0
        while (at := self._begin(data, at)) < len(data):
            sized = _SIZE.match(data, at)
            if sized is not None and sized[2] is not None:
                begins, ends = sized.end(), sized.end() + int(sized[1])
                after = ends
            elif sized is not None and sized.end() == len(data) and len(sized[1]) < _DIGITS_MAX:
                # The size may continue.
                break
            else:
                end = _END.search(data, at)
                begins, ends = at, end.start() if end is not None else len(data)
                after = end.end() if end is not None else len(data) + 1
            if ends - begins > self._size_max:
                self.dropped += 1
                if after == ends:
                    at, self._skip = begins, ends - begins
                else:
                    at, self._skips_line = ends, True
            elif after > len(data):
                break
            else:
                found.append(data[begins:ends])
                at = after
        self._rest = data[at:]
        return found

    def _begin(self, data: bytes, at: int) -> int:
        """Beginning of the next message, after what is dropped."""
        if self._skip:
            skipped = min(self._skip, len(data) - at)
            at, self._skip = at + skipped, self._skip - skipped
        if self._skips_line:
            end = _END.search(data, at)
            at, self._skips_line = (end.end(), False) if end is not None else (len(data), True)
        blank = _BLANK.match(data, at)
        return blank.end() if blank is not None and not self._skip else at

    def end(self) -> list[bytes]:
        """The last line, which some clients leave without an end."""
        return [self._rest] if self._rest and not self._rest[:1].isdigit() else []


class SyslogSource(PushedPayloads):
    """See ``mesh.connect.contract.Source``."""

    #: Of messages that were dropped.
    problem: str | None = None

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._dropped = 0
        self._transport: asyncio.DatagramTransport | None = None
        self._storing: asyncio.Task[None] | None = None

    async def open(self, context: Context, position: Mapping[str, Any] | None) -> None:
        """Bind the address."""
        options = context.options
        host, port = str(options["host"]), int(options["port"])
        check_listen(context.access, host, port)
        self.begin()
        self._size_max = int(options["max.size"])
        self._clients = Clients(context.access.connections_max)
        protocol = str(options["protocol"]).lower()
        tls = server_context(options) if protocol == "tls" else None
        try:
            if protocol == "udp":
                await self._open_datagrams(host, port)
            else:
                handshake_s = context.access.head_timeout_s if tls else None
                self._server = await asyncio.start_server(
                    self._serve, host, port, ssl=tls, ssl_handshake_timeout=handshake_s
                )
        except OSError as error:
            raise MeshError(
                "MESH-C133",
                f"a source can't listen on {host}:{port}",
                detail=f"{error.strerror or error}.",
                hint="Another process has it, or the address is not this machine's.",
            ) from error

    async def _open_datagrams(self, host: str, port: int) -> None:
        waiting: asyncio.Queue[bytes] = asyncio.Queue(_DATAGRAMS_MAX)

        class Datagrams(asyncio.DatagramProtocol):
            def datagram_received(_, data: bytes, address: Any) -> None:
                try:
                    if len(data) > self._size_max:
                        raise asyncio.QueueFull
                    waiting.put_nowait(orjson.dumps(event_of(data, address[0])))
                except asyncio.QueueFull:
                    self._drop(1)

        async def store() -> None:
            while True:
                await self.put(await waiting.get())

        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(Datagrams, (host, port))
        self._storing = asyncio.create_task(store())

    def _drop(self, count: int) -> None:
        self._dropped += count
        if self._dropped:
            self.problem = (
                f"{self._dropped} messages were dropped: they have more than {self._size_max} "
                "bytes, or are datagrams that arrive faster than they are stored"
            )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._clients.admit(writer):
            return
        sender = str(writer.get_extra_info("peername")[0])
        try:
            frames = Frames(self._size_max)
            while data := await reader.read(_CHUNK):
                before = frames.dropped
                messages = frames.feed(data)
                self._drop(frames.dropped - before)
                for message in messages:
                    await self.put(orjson.dumps(event_of(message, sender)))
            for message in frames.end():
                await self.put(orjson.dumps(event_of(message, sender)))
        except OSError:
            # The client has left.
            return
        finally:
            await self._clients.leave(writer)

    async def close(self) -> None:
        """Release the address."""
        if self._storing is not None:
            self._storing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._storing
        if self._transport is not None:
            self._transport.close()
        server, self._server = self._server, None
        if server is not None:
            server.close()
            self._clients.close()
            await server.wait_closed()
