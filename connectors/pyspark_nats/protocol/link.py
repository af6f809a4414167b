"""One open connection to one server: performs the handshake, then sends and receives frames.

A link never waits for the server to read before it reads itself, so the two can't block each
other.  It stays open as long as the server makes progress.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import TYPE_CHECKING, Any, Final

from pyspark_nats.errors import ConnectorError
from pyspark_nats.protocol import answers, frames, handshake, tls
from pyspark_nats.protocol.transport import DisconnectedError, Transport

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark_nats.json_types import JsonObject
    from pyspark_nats.protocol.connection_options import ConnectionOptions
    from pyspark_nats.protocol.servers import ServerAddress

#: Most time of a handshake.
_HANDSHAKE_S: Final = 5.0
#: Most silence of a server while there are others: a lost machine refuses no connection, and
#: each new connection would wait for it.
_HURRY_S: Final = 1.0
#: Most time for which a server reads nothing, or pauses in the middle of a message.
_STALL_S: Final = 10.0
#: Bytes per receive while much is expected; also spare room for data beyond that.
_GATHER_BYTES: Final = 256 << 10
_NO_FRAMES: Final = frames.split(b"")


class Link:
    """A connection to ``server``, from its handshake to its end."""

    def __init__(
        self,
        server: ServerAddress,
        options: ConnectionOptions,
        on_info: Callable[[JsonObject], None],
        *,
        is_hurried: bool = False,
    ) -> None:
        """Connect.

        Args:
            server: which one.
            options: credentials and connection options.
            on_info: called whenever the server describes itself and its cluster.
            is_hurried: whether to try another server rather than wait for this one.

        Raises:
            RefusedError: the server, its certificate, or our credentials are rejected by the other
                side; DisconnectedError, OSError: the server is unreachable or not ready.
        """
        self.server = server
        self._on_info = on_info
        self._who = server.credentials if server.credentials.is_present else options.credentials
        self._stall_s = min(_STALL_S, options.timeout_s)
        self._buffer = bytearray()
        #: Bytes needed until the next message is whole, as far as is known.
        self._needed = 0
        self._progress_s = 0.0
        #: The server's ``INFO``, which contains ``max_payload``.
        self.info: dict[str, Any] = {}
        #: Whether the server announced its shutdown after the handshake.
        self.is_leaving = False
        #: Prefix of our own subjects.
        self.inbox = f"{options.inbox_prefix}.{os.urandom(11).hex()}"
        #: The last reason of the server for closing the connection or denying a subject.
        self.last_error = ""
        #: Whether the server has denied a subscription that only notifies.
        self.has_denied = False
        if options.tls.is_first:
            # A server with ``handshake_first: auto`` waits for TLS for 50 ms only, and loading the
            # authorities may take longer.  An error comes again below, where it gets its meaning.
            with contextlib.suppress(OSError):
                tls.context(options.tls)
        # Servers from another one's ``INFO`` may not be reachable from here at all.
        first_s = _HURRY_S if is_hurried or server.is_learned else _HANDSHAKE_S
        self._transport = Transport(server.address, timeout_s=first_s)
        try:
            self._shake_hands(options, _HURRY_S if is_hurried else _HANDSHAKE_S)
        except BaseException:
            self.close()
            raise

    # --- life

    def _shake_hands(self, options: ConnectionOptions, first_s: float) -> None:
        now_s = time.monotonic()
        deadline_s = now_s + min(_HANDSHAKE_S, options.timeout_s)
        with_tls = options.tls.is_first
        try:
            if with_tls:
                self._start_tls(options, deadline_s)
            self._greet(deadline_s if with_tls else min(now_s + first_s, deadline_s))
            if not with_tls and handshake.wants_tls(self.server, self.info, options.tls):
                with_tls = True
                self._start_tls(options, deadline_s)
            self.send(
                handshake.connect_line(options.client_name, self._who, self.info)
                + f"SUB {self.inbox}.* 1\r\nPING\r\n".encode()
            )
            while (line := self._line(deadline_s)) != b"PONG":
                self._deal_with(line)
        except OSError as error:
            refused = tls.refusal(error, str(self.server)) if with_tls else None
            if refused is not None:
                raise refused from error
            raise
        self.is_leaving = False

    def _greet(self, deadline_s: float) -> None:
        try:
            line = self._line(deadline_s)
        except DisconnectedError as error:
            reason = f'{self.server} does not say who it is; it may want option "tlsFirst"'
            raise DisconnectedError(reason) from error
        if not line.startswith(b"INFO "):
            raise DisconnectedError(f"{self.server} does not speak NATS")
        self._deal_with(line)

    def _start_tls(self, options: ConnectionOptions, deadline_s: float) -> None:
        if self._buffer:
            # Data before the handshake is not authenticated.
            raise DisconnectedError(f"{self.server} sent more than it should before TLS")
        name = self.server.tls_name or self.server.host
        self._transport.start_tls(tls.context(options.tls), name, deadline_s)

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def is_alive(self, on_message: Callable[[str, bytes, bytes], object]) -> bool:
        """Whether the server is still reachable, after processing what it sent meanwhile.

        ``on_message`` gets subject, header and data of each message.
        """
        try:
            while self._transport.wait(0) and self._take_in():
                pass
            while True:
                try:
                    if (frame := self.next_frame()) is None:
                        return True
                    on_message(*frame[1:])
                except ConnectorError:
                    # The denial concerns a step that did not wait for it.
                    continue
        except (DisconnectedError, OSError):
            return False

    # --- bytes

    def send(self, data: bytes) -> None:
        """Send all of ``data``, however slowly the server reads.

        Raises:
            DisconnectedError, OSError: the server read nothing for long, or closed the connection.
            RefusedError: it rejects such data.
        """
        try:
            self._send(memoryview(data))
        except (DisconnectedError, OSError):
            self._hear_why()
            raise

    def _hear_why(self) -> None:
        """Raise the error that a server sent before it closed the connection, if any."""
        with contextlib.suppress(DisconnectedError, OSError):
            while self._transport.wait(0) and self._take_in():
                pass
        while self.next_frame() is not None:
            pass

    def _send(self, left: memoryview) -> None:
        sent = self._transport.send(left)
        if sent == len(left):
            return
        deadline_s = time.monotonic() + self._stall_s
        while True:
            if sent:
                deadline_s = time.monotonic() + self._stall_s
                left = left[sent:]
                if not left:
                    return
            else:
                remaining_s = deadline_s - time.monotonic()
                if remaining_s <= 0 or not self._transport.wait(remaining_s, to_send=True):
                    raise DisconnectedError("the server takes no data")
                # A server whose own messages are not read stops reading ours.
                self._take_in()
            sent = self._transport.send(left)

    def receive(self, deadline_s: float) -> None:
        """Wait for bytes until ``deadline_s`` (monotonic), longer within a partial message.

        Raises:
            DisconnectedError: none arrived, or the server closed the connection.
        """
        while not self._take_in():
            if self._needed > len(self._buffer):
                deadline_s = max(deadline_s, self._progress_s + self._stall_s)
            remaining_s = deadline_s - time.monotonic()
            if remaining_s <= 0 or not self._transport.wait(remaining_s):
                raise DisconnectedError(self.last_error or "no answer in time")

    def _take_in(self) -> bool:
        """Keep the received bytes; False if there are none."""
        chunk = self._transport.receive()
        if chunk is None:
            return False
        if not chunk:
            raise DisconnectedError(self.last_error or "the server closed the connection")
        self._buffer += chunk
        self._progress_s = time.monotonic()
        return True

    def gather(self, count: int, pause_s: float) -> None:
        """Receive until ``count`` bytes are unread, or nothing arrives for ``pause_s``.

        Raises:
            DisconnectedError: the server closed the connection.
        """
        size = len(self._buffer)
        if size >= count:
            return
        space = bytearray(count + _GATHER_BYTES)
        space[:size] = self._buffer
        self._transport.wake_at(_GATHER_BYTES)
        try:
            with memoryview(space) as view:
                is_more = True
                while is_more and size < count:
                    is_more = self._transport.wait(pause_s)
                    got = self._transport.receive_into(view[size:])
                    if got == 0:
                        raise DisconnectedError(
                            self.last_error or "the server closed the connection"
                        )
                    size += got or 0
        except Exception:
            # The traceback may refer to a part of the space, which then can't be resized.
            self._buffer = space[:size]
            raise
        else:
            del space[size:]
            self._buffer = space
        finally:
            self._transport.wake_at(1)
        self._progress_s = time.monotonic()

    def receive_now(self) -> bool:
        """Keep the bytes that have arrived; whether there are any.

        Raises:
            DisconnectedError: the server closed the connection.
        """
        return self._take_in()

    @property
    def has_received(self) -> bool:
        """Whether bytes have arrived that the socket does not show."""
        return self._transport.has_received

    def is_readable(self, wait_s: float) -> bool:
        """Whether bytes wait in the socket, or arrive within ``wait_s``."""
        return self._transport.wait(wait_s)

    @property
    def last_activity_s(self) -> float:
        """When bytes last arrived, monotonic, seconds."""
        return self._progress_s

    def fileno(self) -> int:
        """The file descriptor of the socket."""
        return self._transport.fileno()

    @property
    def buffered_bytes(self) -> int:
        """Number of received and unread bytes."""
        return len(self._buffer)

    def buffered_tail(self, count: int) -> bytes:
        """The last of the received and unread bytes."""
        return bytes(self._buffer[-count:])

    # --- frames

    def take_frames(self) -> frames.Frames:
        """All whole messages received so far; other frames are processed.

        Raises:
            RefusedError: the server denied a subject; DisconnectedError: it ends the connection.
        """
        while len(self._buffer) >= self._needed:
            messages = frames.split(self._buffer)
            if messages.consumed:
                # The frames keep the buffer, and cut their columns out of it.
                self._buffer = self._buffer[messages.consumed :]
                self._needed = 0
                return messages
            if not self._take_other_frame():
                self._needed = self._size_of_next()
                return messages
        # Part of a large message: scanning it again would take long.
        return _NO_FRAMES

    def take_few(self) -> list[frames.Frame] | None:
        """``take_frames`` for few messages; None for many, which are kept."""
        while len(self._buffer) >= self._needed:
            found = frames.few(self._buffer)
            if found is None:
                return None
            messages, size = found
            if messages:
                del self._buffer[:size]
                self._needed = 0
                return messages
            if not self._take_other_frame():
                self._needed = self._size_of_next()
                break
        return []

    def take_acks(self, replies: Sequence[bytes]) -> list[int] | None:
        """Number of acks on each of ``replies``; None if not all are plain: use ``take_frames``."""
        result = answers.counted(self._buffer, replies)
        if result is None:
            return None
        counts, size = result
        if size:
            del self._buffer[:size]
            self._needed = 0
        return counts

    def next_frame(self) -> tuple[int, str, bytes, bytes] | None:
        """The next message as (sid, subject, header, data), None if it is not whole yet."""
        while True:
            if not self._buffer.startswith((b"MSG ", b"HMSG ")):
                if not self._take_other_frame():
                    return None
                continue
            self._needed = self._size_of_next()
            if not self._needed or self._needed > len(self._buffer):
                return None
            end, self._needed = self._needed, 0
            at = self._buffer.find(b"\r\n")
            tokens = self._buffer[:at].split(b" ")
            header_end = at + 2 + (int(tokens[-2]) if tokens[0] == b"HMSG" else 0)
            header = bytes(self._buffer[at + 2 : header_end])
            data = bytes(self._buffer[header_end : end - 2])
            del self._buffer[:end]
            return int(tokens[2]), tokens[1].decode(), header, data

    def _size_of_next(self) -> int:
        """Bytes of the message that the buffer starts with; 0 if unknown."""
        at = self._buffer.find(b"\r\n")
        if at < 0 or not self._buffer.startswith((b"MSG ", b"HMSG ")):
            return 0
        return at + 2 + int(self._buffer[self._buffer.rfind(b" ", 0, at) : at]) + 2

    def _take_other_frame(self) -> bool:
        """Process one frame that is not a message; False if there is none, or only a part."""
        if self._buffer.startswith((b"MSG ", b"HMSG ")):
            return False
        at = self._buffer.find(b"\r\n")
        if at < 0:
            return False
        line = bytes(self._buffer[:at])
        del self._buffer[: at + 2]
        self._deal_with(line)
        return True

    def _line(self, deadline_s: float) -> bytes:
        while (at := self._buffer.find(b"\r\n")) < 0:
            self.receive(deadline_s)
        line = bytes(self._buffer[:at])
        del self._buffer[: at + 2]
        return line

    def _deal_with(self, line: bytes) -> None:
        """Process a protocol line that is not a message.

        Raises:
            RefusedError: it denies a subject; DisconnectedError: it ends the connection.
        """
        if line == b"PING":
            self.send(b"PONG\r\n")
        elif line.startswith(b"INFO "):
            self.info = json.loads(line[5:])
            self.is_leaving = bool(self.info.get("ldm"))
            self._on_info(self.info)
        elif line.startswith(b"-ERR"):
            self.last_error = line[4:].decode(errors="replace").strip(" '")
            if self.last_error.lower().startswith("permissions violation"):
                # The connection stays.
                refused = handshake.denial(self.last_error, self.inbox)
                if refused is not None:
                    raise refused
                self.has_denied = True
                return
            raise handshake.meaning(self.last_error, self.server, self._who)
