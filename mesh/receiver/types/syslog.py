"""Source ``syslog``: the messages of systems and devices, over UDP, TCP or TLS.

A message is one of RFC 5424 or of RFC 3164, whose programs keep to no grammar: what is not
recognised stays in the text, and no message is refused.  TCP has frames by size or by line (RFC
6587).  Nothing is acknowledged: a client of TCP waits while its messages are not stored, and
datagrams that have no room are dropped and counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from typing import TYPE_CHECKING, Any, Final

import orjson

from mesh.connect.access import check_listen
from mesh.errors import MeshError
from mesh.receiver.tls import server_context
from mesh.receiver.types.arrivals import PushedPayloads

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.connect.contract import Context

log = logging.getLogger(__name__)

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
    """The messages of a connection: ``12 <13>text ..``, or lines; NUL ends a line as well."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that are whole with ``data``.

        Raises:
            ValueError: one is too long, or no frame.
        """
        data, found, at = self._rest + data, [], 0
        while (begin := _BLANK.match(data, at)) and begin.end() < len(data):
            at = begin.end()
            sized = _SIZE.match(data, at)
            if sized is not None:
                begins, ends = sized.end(), sized.end() + int(sized[1] or 0)
                if sized[2] is None and sized.end() == len(data) and len(sized[1]) < _DIGITS_MAX:
                    break
                if sized[2] is None or ends - begins > self._size_max:
                    raise ValueError(f"it sends a message without a size up to {self._size_max}")
                after = ends
            else:
                end = _END.search(data, at)
                begins, ends = at, end.start() if end is not None else len(data)
                if ends - begins > self._size_max:
                    raise ValueError(f"it sends a line of more than {self._size_max} bytes")
                after = end.end() if end is not None else len(data) + 1
            if after > len(data):
                break
            found.append(data[begins:ends])
            at = after
        self._rest = data[at:]
        return found

    def end(self) -> list[bytes]:
        """The last line, which some clients leave without an end."""
        return [self._rest] if self._rest and not self._rest[:1].isdigit() else []


class SyslogSource(PushedPayloads):
    """See ``mesh.connect.contract.Source``."""

    #: Of datagrams that were dropped.
    problem: str | None = None

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.StreamWriter] = set()
        self._transport: asyncio.DatagramTransport | None = None
        self._storing: asyncio.Task[None] | None = None

    async def open(self, context: Context, position: Mapping[str, Any] | None) -> None:
        """Bind the address."""
        options = context.options
        host, port = str(options["host"]), int(options["port"])
        check_listen(context.access, host, port)
        self.begin()
        self._size_max = int(options["max.size"])
        self._clients_max = context.access.connections_max
        protocol = str(options["protocol"]).lower()
        tls = server_context(options) if protocol == "tls" else None
        try:
            if protocol == "udp":
                await self._open_datagrams(host, port)
            else:
                self._server = await asyncio.start_server(self._serve, host, port, ssl=tls)
        except OSError as error:
            raise MeshError(
                "MESH-C133",
                f"a source can't listen on {host}:{port}",
                detail=f"{error.strerror or error}.",
                hint="Another process has it, or the address is not this machine's.",
            ) from error

    async def _open_datagrams(self, host: str, port: int) -> None:
        waiting: asyncio.Queue[bytes] = asyncio.Queue(_DATAGRAMS_MAX)
        dropped = 0

        class Datagrams(asyncio.DatagramProtocol):
            def datagram_received(_, data: bytes, address: Any) -> None:
                nonlocal dropped
                try:
                    if len(data) > self._size_max:
                        raise asyncio.QueueFull
                    waiting.put_nowait(orjson.dumps(event_of(data, address[0])))
                except asyncio.QueueFull:
                    dropped += 1
                    self.problem = (
                        f"{dropped} datagrams were dropped: they have more than {self._size_max} "
                        "bytes, or arrive faster than they are stored"
                    )

        async def store() -> None:
            while True:
                await self.put(await waiting.get())

        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(Datagrams, (host, port))
        self._storing = asyncio.create_task(store())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= self._clients_max:
            writer.close()
            return
        self._clients.add(writer)
        sender = str(writer.get_extra_info("peername")[0])
        try:
            frames = Frames(self._size_max)
            while data := await reader.read(_CHUNK):
                for message in frames.feed(data):
                    await self.put(orjson.dumps(event_of(message, sender)))
            for message in frames.end():
                await self.put(orjson.dumps(event_of(message, sender)))
        except ValueError as error:
            log.warning("source syslog: %s is disconnected, %s", sender, error)
        except OSError:
            # The client has left.
            return
        finally:
            self._clients.discard(writer)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

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
            for client in list(self._clients):
                client.close()
            await server.wait_closed()
