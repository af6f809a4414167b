"""A minimal NATS client over a plain socket, for measurements of the server.

The limits must not share code with the measured program, so nothing here is the connector's.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any, Final

#: Maximum silence of the server before a measurement gives up, seconds.
SILENCE_S: Final = 20.0

_RECEIVE_BYTES: Final = 1 << 20


class Wire:
    """A connection that sends given bytes and returns the received ones."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=SILENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.inbox = f"_INBOX.{os.urandom(8).hex()}"
        self._pending = b""
        self._line()
        connect = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True,
                   "lang": "python", "version": "0", "protocol": 1}  # fmt: skip
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

    def _receive(self) -> None:
        chunk = self.socket.recv(_RECEIVE_BYTES)
        if not chunk:
            raise RuntimeError("the server closed the connection")
        self._pending += chunk
