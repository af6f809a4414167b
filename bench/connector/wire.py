"""A minimal NATS client over a socket, plain or with TLS, for measurements of the server.

The limits must not share code with the measured program, so nothing here is the connector's.
"""

from __future__ import annotations

import base64
import json
import os
import select
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

#: Maximum silence of the server before a measurement gives up, seconds.
SILENCE_S: Final = 20.0

_RECEIVE_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Access:
    """A server, and who connects to it; files are empty for one without TLS and users."""

    port: int
    ca: str = ""
    cert: str = ""
    key: str = ""
    #: File of the seed of an nkey.
    seed: str = ""
    inbox_prefix: str = "_INBOX"

    @classmethod
    def of(cls, given: int | dict[str, Any] | Access) -> Access:
        """From a port, or from the fields of one."""
        if isinstance(given, Access):
            return given
        return cls(**given) if isinstance(given, dict) else cls(given)


class Wire:
    """A connection that sends given bytes and returns the received ones."""

    def __init__(self, given: int | Access) -> None:
        access = Access.of(given)
        self.socket = socket.create_connection(("127.0.0.1", access.port), timeout=SILENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.inbox = f"{access.inbox_prefix}.{os.urandom(8).hex()}"
        self._pending = b""
        self._tls: ssl.SSLSocket | None = None
        info = json.loads(self._line()[5:])
        connect = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True,
                   "lang": "python", "version": "0", "protocol": 1}  # fmt: skip
        if access.ca:
            context = ssl.create_default_context(cafile=access.ca)
            context.load_cert_chain(access.cert, access.key)
            self._tls = context.wrap_socket(self.socket, server_hostname="127.0.0.1")
            self.socket = self._tls
        if access.seed:
            connect |= _signed(Path(access.seed).read_bytes().strip(), info["nonce"])
        self.send(b"CONNECT " + json.dumps(connect).encode() + b"\r\nPING\r\n")
        while self._line() != b"PONG":
            pass
        self.send(f"SUB {self.inbox}.> 1\r\n".encode())

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes | memoryview) -> None:
        """Send all of ``data``."""
        self.socket.sendall(data)

    def publish(self, subject: str, data: bytes, reply: str) -> None:
        """Publish one message that is answered on ``{inbox}.{reply}``."""
        head = f"PUB {subject} {self.inbox}.{reply} {len(data)}\r\n"
        self.send(b"".join((head.encode(), data, b"\r\n")))

    def flush(self) -> None:
        """Return when the server has processed what was sent."""
        self.send(b"PING\r\n")
        while self._line() != b"PONG":
            pass

    def call(self, subject: str, **query: Any) -> dict[str, Any]:
        """An API call of JetStream, ``subject`` without its prefix.

        Raises:
            RuntimeError: the server refused, or does not answer.
        """
        self.publish(f"$JS.API.{subject}", json.dumps(query).encode() if query else b"", "call")
        while not (head := self._line()).startswith((b"MSG ", b"HMSG ")):
            if head == b"PING":
                self.send(b"PONG\r\n")
            if head.startswith(b"-ERR"):
                raise RuntimeError(head.decode())
        data = self._bytes(int(head.rsplit(b" ", 1)[1]) + 2)
        if head.startswith(b"HMSG "):
            raise RuntimeError(f"no answer to {subject}: {data!r}")
        answer: dict[str, Any] = json.loads(data)
        if "error" in answer:
            raise RuntimeError(f"{subject}: {answer['error']}")
        return answer

    def _line(self) -> bytes:
        while (at := self._pending.find(b"\r\n")) < 0:
            self._receive()
        line, self._pending = self._pending[:at], self._pending[at + 2 :]
        return line

    def _bytes(self, count: int) -> bytes:
        while len(self._pending) < count:
            self._receive()
        data, self._pending = self._pending[:count], self._pending[count:]
        return data

    def receive(self) -> bytes:
        """Wait for bytes, and take all that are there.

        Raises:
            RuntimeError: the server closed the connection, or is silent.
        """
        data = chunk = self.socket.recv(_RECEIVE_BYTES)
        # TLS returns one record at a time.
        while (
            chunk
            and self._tls is not None
            and len(data) < _RECEIVE_BYTES
            and self._is_readable(self._tls)
        ):
            chunk = self.socket.recv(_RECEIVE_BYTES)
            data += chunk
        if not chunk:
            raise RuntimeError("the server closed the connection")
        return data

    @staticmethod
    def _is_readable(tls: ssl.SSLSocket) -> bool:
        return tls.pending() > 0 or bool(select.select([tls], [], [], 0)[0])

    def _receive(self) -> None:
        self._pending += self.receive()


def _signed(seed: bytes, nonce: str) -> dict[str, str]:
    """The fields of ``CONNECT`` for the owner of a seed."""
    import nkeys  # type: ignore[import-untyped]  # it ships none

    pair = nkeys.from_seed(bytearray(seed))
    signature = base64.urlsafe_b64encode(pair.sign(nonce.encode())).rstrip(b"=")
    return {"nkey": pair.public_key.decode(), "sig": signature.decode()}
