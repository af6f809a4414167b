"""Non-blocking socket, plain or with TLS."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

_RECEIVE_BYTES = 1 << 20
#: More in one call is no faster, and TLS copies its input.
_SEND_BYTES = 1 << 20
#: A lost SYN is sent again after a second.
_CONNECT_TIMEOUT_S = 3.0


class DisconnectedError(Exception):
    """The connection broke, or an answer did not arrive in time; the step may be tried again."""


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
        self._tls: ssl.SSLSocket | None = None
        #: Room for decrypted records.
        self._space = memoryview(b"")
        #: How TLS ended, once all before it is received.
        self._end: EOFError | OSError | None = None
        #: Exceptions that request the other kind of event first; TLS has more of them.
        self._would_block: tuple[type[OSError], ...] = (BlockingIOError,)
        self._poll = select.poll()

    @property
    def is_tls(self) -> bool:
        """Whether it is encrypted."""
        return self._tls is not None

    def start_tls(self, context: ssl.SSLContext, name: str, deadline_s: float) -> None:
        """Perform the handshake with a server named ``name``; OSError on failure."""
        import ssl

        self._would_block = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
        self._socket.settimeout(max(0.001, deadline_s - time.monotonic()))
        self._socket = self._tls = context.wrap_socket(self._socket, server_hostname=name)
        self._socket.setblocking(False)
        self._space = memoryview(bytearray(_RECEIVE_BYTES))

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
        except self._would_block:
            return None

    def receive_into(self, space: memoryview) -> int | None:
        """Receive into ``space``; return the number of bytes, None for none yet, 0 at the end."""
        if self._tls is not None:
            return self._receive_records(self._tls, space)
        try:
            return self._socket.recv_into(space)
        except self._would_block:
            return None

    def _receive_records(self, tls: ssl.SSLSocket, space: memoryview) -> int | None:
        """Receive all that has arrived: TLS returns one record at a time, often one message.

        An end or an error after received data is for the next call.
        """
        size = 0
        while size < len(space) and self._end is None:
            try:
                count = tls.recv_into(space[size:])
            except self._would_block:
                break
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

    def wake_at(self, count: int) -> None:
        """Have ``wait`` ignore fewer than ``count`` bytes; they can still be received.

        For a reader that expects much, this saves most of the calls, also in the server.
        """
        if self._tls is None:
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def send(self, data: memoryview) -> int:
        """Send ``data`` and return the number of accepted bytes; 0 if there is no room."""
        try:
            return self._socket.send(data[:_SEND_BYTES])
        except self._would_block:
            return 0

    def wait(self, timeout_s: float, *, to_send: bool = False) -> bool:
        """Whether bytes can be received, or sent if requested, within ``timeout_s``."""
        if self._tls is not None and (self._end is not None or self._tls.pending()):
            return True
        self._poll.register(self._socket, select.POLLIN | (select.POLLOUT if to_send else 0))
        # Rounded up, so that a short wait is not zero.
        return bool(self._poll.poll(max(0, -int(-timeout_s * 1000 // 1))))

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()
