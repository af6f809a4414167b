"""A relay to NATS that speaks TLS in small records, as many at once as a test wants.

A server sends a record for each write, so at a low rate each message has its own.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from typing import TYPE_CHECKING, Final

from tests.support.certificates import Authority

if TYPE_CHECKING:
    from pathlib import Path

_BYTES: Final = 1 << 16
_WAIT_S: Final = 30.0


class RecordRelay:
    """Relays one connection at a time, in records of ``size`` bytes towards the client.

    While it is held, what the server sends is kept; ``release`` then sends all of it in one piece.
    """

    def __init__(self, directory: Path, port: int, size: int = 16) -> None:
        """Listen.

        Args:
            directory: for the certificates.
            port: of the server.
            size: of a record's data, bytes.
        """
        authority = Authority(directory, "relay")
        pair = authority.issue("relay-server", hosts=("127.0.0.1",))
        #: The authority's certificate.
        self.ca = authority.cert
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(pair.cert, pair.key)
        self._server = port
        self._size = size
        self._listener = socket.create_server(("127.0.0.1", 0))
        #: Address of the relay; the handshake precedes the server's first line.
        self.port: int = self._listener.getsockname()[1]
        self._changed = threading.Condition()
        self._is_held = False
        self._kept = b""
        #: Records that were sent.
        self.records = 0
        self._client: _Client | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def options(self) -> dict[str, str]:
        """Options of the connector."""
        return {
            "servers": f"tls://127.0.0.1:{self.port}",
            "tlsFirst": "true",
            "tlsCa": str(self.ca),
        }

    def hold(self) -> None:
        """Keep what the server sends from now on."""
        with self._changed:
            self._is_held = True

    def release(self, until: bytes, times: int = 1) -> int:
        """Send what was kept, once ``until`` came ``times`` times; the number of records."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._kept.count(until) >= times, _WAIT_S)
            self._is_held = False
            before = self.records
            self._send()
            return self.records - before

    def end(self, data: bytes, then: bytes = b"") -> None:
        """Send ``data`` and after it, in one piece, bytes that are no TLS, or its end."""
        with self._changed:
            self._kept += data
            self._send(is_end=not then, then=then)

    def close(self) -> None:
        """Accept no more, and close the connection."""
        self._listener.close()
        if self._client is not None:
            self._client.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server))
                client = _Client(plain, self._context)
                with self._changed:
                    self._client = client
                self._relay(client, server)

    def _relay(self, client: _Client, server: socket.socket) -> None:
        # `select` refuses a socket that is closed meanwhile with a ValueError.
        with contextlib.suppress(OSError, ValueError), contextlib.closing(client), server:
            while True:
                for one in select.select([client.socket, server], [], [])[0]:
                    data: bytes | None
                    if one is server:
                        data = server.recv(_BYTES)
                        with self._changed:
                            self._kept += data
                            if not self._is_held:
                                self._send()
                            self._changed.notify_all()
                    else:
                        with self._changed:
                            data = client.receive()
                        server.sendall(data or b"")
                    if data == b"":
                        return

    def _send(self, *, is_end: bool = False, then: bytes = b"") -> None:
        pieces = [self._kept[at : at + self._size] for at in range(0, len(self._kept), self._size)]
        self._kept = b""
        self.records += len(pieces)
        assert self._client is not None
        self._client.send(pieces, is_end=is_end, then=then)


class _Client:
    """The server's side of TLS on a socket."""

    def __init__(self, plain: socket.socket, context: ssl.SSLContext) -> None:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = plain
        self._received, self._sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._early: list[bytes] = []
        self._is_ready = False
        self._tls = context.wrap_bio(self._received, self._sent, server_side=True)

    def receive(self) -> bytes | None:
        """Decrypt what has arrived; None if it is no data, b"" at the end."""
        data = self.socket.recv(_BYTES)
        if not data:
            return b""
        self._received.write(data)
        found: list[bytes] = []
        with contextlib.suppress(ssl.SSLWantReadError):
            if not self._is_ready:
                self._tls.do_handshake()
                self._is_ready = True
            while part := self._tls.read(_BYTES):
                found.append(part)
            if not found:
                # It ends the connection, and waits for the same from here.
                self.send([], is_end=True)
                return b""
        early, self._early = self._early, []
        self.send(early)
        return b"".join(found) or None

    def send(self, pieces: list[bytes], *, is_end: bool = False, then: bytes = b"") -> None:
        """Send each piece as a record, all at once; before the handshake is done they wait."""
        if not self._is_ready:
            self._early += pieces
            pieces = []
        for piece in pieces:
            self._tls.write(piece)
        if is_end:
            with contextlib.suppress(ssl.SSLWantReadError):
                self._tls.unwrap()
        self.socket.sendall(self._sent.read() + then)

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()
