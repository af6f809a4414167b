"""Non-blocking socket, plain or with TLS."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import ssl

_RECEIVE_BYTES = 1 << 20
#: More in one call is no faster, and TLS copies its input.
_SEND_BYTES = 1 << 20
#: A lost SYN is sent again after a second.
_CONNECT_TIMEOUT_S = 3.0


class DisconnectedError(Exception):
    """The connection broke, or an answer did not arrive in time; the step may be tried again."""


class NoRoomError(DisconnectedError):
    """The server can't store the message now: a disk, or a limit of JetStream, is full."""

    #: The remedy.
    hint = (
        "A disk of the NATS servers is full, or a limit: free room, or raise max_file_store or the "
        "limits of the account.  What is not stored waits, and is stored then."
    )


class Transport:
    """A connected socket."""

    def __init__(self, address: tuple[str, int], *, timeout_s: float = _CONNECT_TIMEOUT_S) -> None:
        """Connect; OSError if there is no answer."""
        timeout_s = min(timeout_s, _CONNECT_TIMEOUT_S)
        sock = socket.create_connection(address, timeout=timeout_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        sock.setblocking(False)
        self._socket = sock
        self._tls: ssl.SSLObject | None = None
        #: What has arrived of TLS, and what TLS has to send.  Small messages come in small records,
        #: and a socket of ``ssl`` has two system calls for each.
        self._arrived: ssl.MemoryBIO
        self._leaving: ssl.MemoryBIO
        #: Room for what arrives, and for decrypted records.
        self._records = self._space = memoryview(b"")
        #: Encrypted bytes that the socket has not taken, and how many bytes of the caller they are.
        self._unsent = memoryview(b"")
        self._unsent_of = 0
        #: Whether records may have arrived for which there was no room.
        self._has_more = False
        #: How TLS ended, once all before it is received.
        self._end: EOFError | OSError | None = None
        self._poll = select.poll()

    @property
    def is_tls(self) -> bool:
        """Whether it is encrypted."""
        return self._tls is not None

    def start_tls(self, context: ssl.SSLContext, name: str, deadline_s: float) -> None:
        """Perform the handshake with a server named ``name``; OSError on failure."""
        import ssl

        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(self._arrived, self._leaving, server_hostname=name)
        self._records = memoryview(bytearray(_RECEIVE_BYTES))
        while True:
            self._socket.settimeout(max(0.001, deadline_s - time.monotonic()))
            try:
                tls.do_handshake()
                self._socket.sendall(self._leaving.read())
                break
            except ssl.SSLWantReadError:
                self._socket.sendall(self._leaving.read())
            except ssl.SSLError:
                # The server gets an alert that says why.
                with contextlib.suppress(OSError):
                    self._socket.sendall(self._leaving.read())
                raise
            count = self._socket.recv_into(self._records)
            if not count:
                raise ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "closed in the handshake")
            self._arrived.write(self._records[:count])
        self._socket.setblocking(False)
        self._tls = tls
        self._space = memoryview(bytearray(_RECEIVE_BYTES))
        # The first records may have come with the last of the handshake.
        self._has_more = True

    def fileno(self) -> int:
        """The file descriptor of the socket."""
        return self._socket.fileno()

    def receive(self) -> bytes | None:
        """The bytes received; None if there are none yet, b"" at the end."""
        if self._tls is not None:
            count = self._receive_records(self._tls, self._space)
            return None if count is None else bytes(self._space[:count])
        try:
            return self._socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return None

    def receive_into(self, space: memoryview) -> int | None:
        """Receive into ``space``; return the number of bytes, None for none yet, 0 at the end."""
        if self._tls is not None:
            return self._receive_records(self._tls, space)
        try:
            return self._socket.recv_into(space)
        except BlockingIOError:
            return None

    def _receive_records(self, tls: ssl.SSLObject, space: memoryview) -> int | None:
        """Receive all that has arrived: TLS returns one record at a time, often one message.

        An end or an error after received data is for the next call.
        """
        import ssl

        size = 0
        self._has_more = False
        while self._end is None:
            if size == len(space):
                self._has_more = True
                break
            try:
                count = cast("int", tls.read(len(space) - size, space[size:]))
            except ssl.SSLWantReadError:
                if not self._take_in():
                    break
            except ssl.SSLEOFError:
                self._end = EOFError()
            except OSError as error:
                self._end = error
            else:
                size += count
                if not count:
                    self._end = EOFError()
        if size or self._end is None:
            return size or None
        if isinstance(self._end, OSError):
            raise self._end
        return 0

    def _take_in(self) -> bool:
        """Pass what is in the socket to TLS; False if there is nothing."""
        try:
            count = self._socket.recv_into(self._records)
        except BlockingIOError:
            return False
        except OSError as error:
            self._end = error
            return False
        if count:
            self._arrived.write(self._records[:count])
        else:
            self._arrived.write_eof()
        return True

    def wake_at(self, count: int) -> None:
        """Have ``wait`` ignore fewer than ``count`` bytes; they can still be received.

        For a reader that expects much, this saves most of the calls, also in the server.
        """
        if self._tls is None:
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def send(self, data: memoryview) -> int:
        """Send ``data`` and return the number of accepted bytes; 0 if there is no room.

        After 0 the next call has the same data.
        """
        if self._tls is None:
            try:
                return self._socket.send(data[:_SEND_BYTES])
            except BlockingIOError:
                return 0
        if not self._unsent:
            self._unsent_of = self._tls.write(data[:_SEND_BYTES])
            self._unsent = memoryview(self._leaving.read())
        try:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            return 0
        return 0 if self._unsent else self._unsent_of

    @property
    def has_received(self) -> bool:
        """Whether ``receive`` returns something that the socket does not show: TLS reads ahead."""
        return self._end is not None or self._has_more

    def wait(self, timeout_s: float, *, to_send: bool = False) -> bool:
        """Whether bytes can be received, or sent if requested, within ``timeout_s``."""
        if self.has_received:
            return True
        self._poll.register(self._socket, select.POLLIN | (select.POLLOUT if to_send else 0))
        # Rounded up, so that a short wait is not zero.
        return bool(self._poll.poll(max(0, -int(-timeout_s * 1000 // 1))))

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()
