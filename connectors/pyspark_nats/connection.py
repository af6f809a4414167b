"""One synchronous connection to NATS, that reconnects, and the JetStream calls made over it.

A Spark task and the planner of a query each do one thing at a time, so they need no event loop:
they send, and read until the answer is there.  ``Connection.riding`` is how everything rides
through a restart, a change of leader, or a cut: it repeats a step until it succeeds or ``timeoutS``
is over.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import random
import select
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from pyspark_nats import frames
from pyspark_nats.errors import RefusedError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_nats.connection_options import ConnectionOptions

log = logging.getLogger(__name__)

T = TypeVar("T")

_RECEIVE_BYTES = 1 << 20
#: How long one answer may take before the step is tried again; leaders change in the meantime.
_REQUEST_TIMEOUT_S = 2.0
#: JetStream errors that pass by themselves: no leader, no quorum, starting up.
_PASSING_CODES = frozenset({10003, 10008, 10009, 10077, 10118})


class DisconnectedError(Exception):
    """The connection broke, or an answer did not come in time; the step may be tried again."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer to a request."""

    header: bytes
    data: bytes

    def json(self) -> dict[str, Any]:
        """The payload of an API answer.

        Raises:
            RefusedError: the answer is an error; DisconnectedError: one that passes by itself.
        """
        answer: dict[str, Any] = json.loads(self.data)
        error = answer.get("error")
        if error:
            raise refusal(error)
        return answer


def refusal(error: dict[str, Any]) -> Exception:
    """What an API error is raised as."""
    code = int(error.get("err_code", 0))
    description = str(error.get("description", "unknown error"))
    if code in _PASSING_CODES or int(error.get("code", 0)) == 503:
        return DisconnectedError(description)
    return RefusedError(f"the server refused: {description}", err_code=code)


class Connection:
    """A connection, made when it is first needed and again when it broke; for one thread."""

    def __init__(self, options: ConnectionOptions) -> None:
        self._options = options
        self._socket: socket.socket | None = None
        self._buffer = bytearray()
        self._sids = 1
        self._inbox = ""
        self._server = 0
        #: What the server said of itself: ``max_payload`` is in it.
        self.info: dict[str, Any] = {}
        #: Why the server closed the connection or denied a subject, as it said last.
        self.last_error = ""

    def __repr__(self) -> str:
        state = "open" if self._socket else "closed"
        return f"Connection({self._options.servers[self._server]}, {state})"

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- life

    def riding(self, what: str, step: Callable[[], T], *, is_under_way: bool = False) -> T:
        """Do ``step``, again and again while it meets no server or no leader.

        Args:
            what: names the step in the error.
            step: must be safe to repeat.
            is_under_way: the step goes on with answers that an earlier one asked for; otherwise
                what was received and not read is dropped, as leftovers.

        Raises:
            UnavailableError: ``timeoutS`` went by; any other error of the step at once.
        """
        deadline_s = time.monotonic() + self._options.timeout_s
        pause_s = 0.02
        while True:
            try:
                if not is_under_way or self._socket is None:
                    self._ensure()
                return step()
            except (DisconnectedError, OSError) as error:
                reason = str(error) or type(error).__name__
                # After silence the connection can't be trusted; another server may know better.
                self.close()
                self._server = (self._server + 1) % len(self._options.servers)
            if time.monotonic() + pause_s > deadline_s:
                raise UnavailableError(
                    f"no answer from NATS within {self._options.timeout_s:g} s: {what}",
                    detail=f"Servers: {', '.join(self._options.servers)}; last: {reason}.",
                    hint='Raise option "timeoutS" if the servers need longer to come back.',
                )
            log.debug("waiting for nats: %s: %s", what, reason)
            time.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2, 0.5)

    def close(self) -> None:
        """Close the connection; the next step opens another."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
        self._socket = None
        self._buffer.clear()

    def _ensure(self) -> None:
        if self._socket is not None and not self._is_stale():
            return
        self.close()
        url = urlsplit(self._options.servers[self._server])
        sock = socket.create_connection((url.hostname or "127.0.0.1", url.port or 4222), timeout=3)
        self._socket = sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        deadline_s = time.monotonic() + 5
        self.info = json.loads(self._line(deadline_s).removeprefix(b"INFO "))
        if url.scheme == "tls" or self.info.get("tls_required"):
            context = ssl.create_default_context()
            self._socket = context.wrap_socket(sock, server_hostname=url.hostname)
        self.send(self._connect_line(url.username, url.password) + b"PING\r\n")
        while (line := self._line(deadline_s)) != b"PONG":
            if line.startswith(b"-ERR"):
                reason = line[4:].decode().strip(" '")
                if "authorization" in reason.lower() or "authentication" in reason.lower():
                    raise RefusedError(
                        f"NATS refused the connection: {reason}",
                        hint='Check options "user" and "password", or "token".',
                    )
                raise DisconnectedError(reason)
        self._inbox = f"_INBOX.{os.urandom(11).hex()}"
        self._sids = 1
        self.send(f"SUB {self._inbox}.* 1\r\n".encode())

    def _connect_line(self, user: str | None, password: str | None) -> bytes:
        options = self._options
        fields: dict[str, Any] = {
            "verbose": False, "pedantic": False, "lang": "python", "version": "0.1.0",
            "protocol": 1, "headers": True, "no_responders": True, "name": options.client_name,
            "user": options.user or user, "pass": options.password or password,
            "auth_token": options.token,
        }  # fmt: skip
        if user and not password and not options.user:
            fields["auth_token"], fields["user"] = user, None
        stated = {name: value for name, value in fields.items() if value not in (None, "")}
        return b"CONNECT " + json.dumps(stated).encode() + b"\r\n"

    def _is_stale(self) -> bool:
        """Whether the server has hung up; answers its pings that waited while nobody read."""
        sock = self._socket
        assert sock is not None
        while select.select([sock], [], [], 0)[0]:
            try:
                chunk = sock.recv(_RECEIVE_BYTES)
            except OSError:
                return True
            if not chunk:
                return True
            self._buffer += chunk
        self._discard_unread()
        return self._socket is None

    def _discard_unread(self) -> None:
        """Drop whole frames that nobody waits for, such as leftovers of an abandoned read."""
        try:
            while self._next_frame() is not None:
                pass
        except DisconnectedError:
            self.close()

    # --- bytes

    def send(self, data: bytes) -> None:
        """Send; the server must not be left unread for long, or it closes the connection."""
        if self._socket is None:
            raise DisconnectedError("not connected")
        self._socket.settimeout(10)
        self._socket.sendall(data)

    def receive(self, deadline_s: float) -> None:
        """Wait for bytes until ``deadline_s`` (monotonic) and keep them.

        Raises:
            DisconnectedError: none came, or the server hung up.
        """
        if self._socket is None:
            raise DisconnectedError(self.last_error or "not connected")
        self._socket.settimeout(max(0.001, deadline_s - time.monotonic()))
        try:
            chunk = self._socket.recv(_RECEIVE_BYTES)
        except TimeoutError as error:
            raise DisconnectedError("no answer in time") from error
        if not chunk:
            raise DisconnectedError(self.last_error or "the server closed the connection")
        self._buffer += chunk

    @property
    def is_open(self) -> bool:
        """Whether it is connected, as far as is known."""
        return self._socket is not None

    @property
    def unread(self) -> int:
        """Bytes received and not taken yet."""
        return len(self._buffer)

    @property
    def unread_tail(self) -> bytes:
        """The last few of the bytes received and not taken yet; a status fits in."""
        return bytes(self._buffer[-256:])

    def is_readable(self, wait_s: float = 0.0) -> bool:
        """Whether bytes wait in the socket, or come within ``wait_s``."""
        return self._socket is not None and bool(select.select([self._socket], [], [], wait_s)[0])

    def _line(self, deadline_s: float) -> bytes:
        while (at := self._buffer.find(b"\r\n")) < 0:
            self.receive(deadline_s)
        line = bytes(self._buffer[:at])
        del self._buffer[: at + 2]
        return line

    def take_frames(self) -> frames.Frames:
        """The whole messages received so far, all at once; other frames are dealt with."""
        while True:
            taken = bytes(self._buffer)
            found = frames.split(taken)
            if found.consumed:
                del self._buffer[: found.consumed]
                return found
            if not self._take_other_frame():
                return found

    def _take_other_frame(self) -> bool:
        """Deal with one frame that is no message; False when there is none, or only a part."""
        if self._buffer.startswith((b"MSG ", b"HMSG ")):
            return False
        at = self._buffer.find(b"\r\n")
        if at < 0:
            return False
        line = bytes(self._buffer[:at])
        del self._buffer[: at + 2]
        if line == b"PING":
            self.send(b"PONG\r\n")
        elif line.startswith(b"INFO "):
            self.info = json.loads(line[5:])
        elif line.startswith(b"-ERR"):
            self.last_error = line[4:].decode(errors="replace").strip(" '")
            # A denied subject leaves the connection open; everything else closes it.
            if not self.last_error.lower().startswith("permissions violation"):
                raise DisconnectedError(self.last_error)
        return True

    def _next_frame(self) -> tuple[int, str, bytes, bytes] | None:
        """The next message as (sid, subject, header, data), None when it is not whole yet."""
        while True:
            if self._buffer.startswith((b"MSG ", b"HMSG ")):
                at = self._buffer.find(b"\r\n")
                if at < 0:
                    return None
                tokens = self._buffer[:at].split(b" ")
                total = int(tokens[-1])
                end = at + 2 + total
                if end + 2 > len(self._buffer):
                    return None
                header_end = at + 2 + (int(tokens[-2]) if tokens[0] == b"HMSG" else 0)
                header = bytes(self._buffer[at + 2 : header_end])
                data = bytes(self._buffer[header_end:end])
                del self._buffer[: end + 2]
                return int(tokens[2]), tokens[1].decode(), header, data
            if not self._take_other_frame():
                return None

    # --- requests

    def new_inbox(self) -> tuple[int, str]:
        """Subscribe to a subject of our own; returns (sid, subject)."""
        return self.new_inboxes(1)[0]

    def new_inboxes(self, count: int) -> list[tuple[int, str]]:
        """Subscribe to subjects of our own; returns (sid, subject) of each, sids in a row."""
        first = self._sids + 1
        self._sids += count
        made = [(sid, f"{self._inbox}.{sid}.m") for sid in range(first, first + count)]
        self.send("".join(f"SUB {inbox} {sid}\r\n" for sid, inbox in made).encode())
        return made

    def subscribe(self, subject: str, *, most: int) -> int:
        """Subscribe to ``subject`` for ``most`` messages; returns the sid."""
        self._sids += 1
        self.send(f"SUB {subject} {self._sids}\r\nUNSUB {self._sids} {most}\r\n".encode())
        return self._sids

    def unsubscribe(self, *sids: int) -> None:
        """End subscriptions; what is under way for them is dropped when it comes."""
        self.send("".join(f"UNSUB {sid}\r\n" for sid in sids).encode())

    def reply_subjects(self, count: int) -> list[str]:
        """Fresh subjects that ``replies`` reads answers from."""
        first = self._sids + 1
        self._sids += count
        return [f"{self._inbox}.{n}" for n in range(first, first + count)]

    def replies(self, subjects: list[str], timeout_s: float = _REQUEST_TIMEOUT_S) -> list[Reply]:
        """Wait for one answer on each of ``subjects``.

        Raises:
            DisconnectedError: an answer did not come in time, or nobody serves the request.
        """
        wanted = {subject: at for at, subject in enumerate(subjects)}
        answers: dict[int, Reply] = {}
        deadline_s = time.monotonic() + timeout_s
        while len(answers) < len(subjects):
            frame = self._next_frame()
            if frame is None:
                self.receive(deadline_s)
                continue
            _, subject, header, data = frame
            if subject not in wanted:
                continue
            said = frames.status(header) if header else None
            if said is not None and said[0] == 503:
                raise DisconnectedError("no responders: JetStream is not there")
            answers[wanted[subject]] = Reply(header, data)
        return [answers[at] for at in range(len(subjects))]

    def requests(self, calls: list[tuple[str, bytes]]) -> list[Reply]:
        """Send all ``calls`` (subject, payload), and wait for all answers."""
        subjects = self.reply_subjects(len(calls))
        self.send(
            b"".join(
                frames.publish(subject, data, reply=reply)
                for (subject, data), reply in zip(calls, subjects, strict=True)
            )
        )
        return self.replies(subjects)

    def wait_for_message(self, sids: set[int], timeout_s: float) -> bool:
        """Wait until a message comes for one of ``sids``; False when none came in time."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            frame = self._next_frame()
            if frame is not None:
                if frame[0] in sids:
                    return True
                continue
            sock = self._socket
            if sock is None:
                raise DisconnectedError("not connected")
            remaining_s = deadline_s - time.monotonic()
            if remaining_s <= 0 or not select.select([sock], [], [], remaining_s)[0]:
                return False
            self.receive(time.monotonic() + 1)


_local = threading.local()


def shared(options: ConnectionOptions) -> Connection:
    """This thread's connection for ``options``, open from the last use if there was one.

    Spark reuses its Python workers, so a small batch finds its connection made.
    """
    # A forked worker must not talk over its parent's socket.
    if getattr(_local, "pid", None) != os.getpid():
        _local.pid = os.getpid()
        _local.connections = {}
        # Spark's workers collect garbage after every task; what is loaded by now stays anyway, and
        # looking through it takes most of a small batch's time.
        gc.freeze()
    connections: dict[ConnectionOptions, Connection] = _local.connections
    if options not in connections:
        connections[options] = Connection(options)
    return connections[options]


@contextlib.contextmanager
def opened(options: ConnectionOptions) -> Iterator[Connection]:
    """A connection for a ``with`` block."""
    with Connection(options) as connection:
        yield connection
