"""Servers that a test makes up, and connections to them."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

from pyspark_nats.protocol.connection import Connection
from pyspark_nats.protocol.connection_options import connection_options

if TYPE_CHECKING:
    from collections.abc import Callable

MB = 1 << 20


def connect(url: str, **given: str) -> Connection:
    return Connection(connection_options({"servers": url, "timeoutS": "20", **given}))


class Fake:
    """A server that completes the handshake, and then runs the test's script, with one client."""

    def __init__(self, then: Callable[[socket.socket], None], info: bytes = b"{}") -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._then = then
        self._info = info
        self.problem: BaseException | None = None
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._listener.getsockname()[1]}"

    def _serve(self) -> None:
        try:
            client, _ = self._listener.accept()
            with client:
                client.settimeout(20)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
                client.sendall(b"INFO " + self._info + b"\r\n")
                heard = b""
                while not heard.endswith(b"PING\r\n"):
                    chunk = client.recv(4096)
                    if not chunk:
                        return
                    heard += chunk
                client.sendall(b"PONG\r\n")
                self._then(client)
        except OSError as error:
            self.problem = error

    def __enter__(self) -> Fake:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self._thread.join(30)
        assert not self._thread.is_alive()


def drain(client: socket.socket, size: int) -> int:
    taken = 0
    while taken < size and (chunk := client.recv(MB)):
        taken += len(chunk)
    return taken
