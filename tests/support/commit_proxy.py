"""A relay to a database that loses the connection while a COMMIT is on its way."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_BYTES: Final = 1 << 16


class CommitProxy:
    """Relays connections; the first COMMIT after ``arm`` is the last message of its connection.

    The database receives it or not; its answer never arrives.
    """

    def __init__(self, port: int, word: bytes = b"COMMIT") -> None:
        """``word``: what a COMMIT has in it."""
        self._port, self._word = port, word
        self._listener = socket.create_server(("127.0.0.1", 0))
        #: Address of the relay.
        self.port: int = self._listener.getsockname()[1]
        self._is_written: bool | None = None
        self._meanwhile: Callable[[], None] = lambda: None
        #: Connections that were cut.
        self.cuts = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, *, is_written: bool, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Cut the next COMMIT; ``meanwhile`` is called while it is held, before it is passed on."""
        self._is_written, self._meanwhile = is_written, meanwhile

    def close(self) -> None:
        """Accept no more, and close all connections."""
        self._listener.close()
        for one in self._open:
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                self._open += [client, server]
                threading.Thread(target=self._ask, args=(client, server), daemon=True).start()
                threading.Thread(target=self._answer, args=(server, client), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(_BYTES):
                if self._is_written is not None and self._word in data:
                    self._cut(client, server, data)
                    return
                server.sendall(data)
        _end(server)

    def _cut(self, client: socket.socket, server: socket.socket, data: bytes) -> None:
        is_written, self._is_written = self._is_written, None
        self.cuts += 1
        self._meanwhile()
        # Nothing of an answer gets through.
        _end(client)
        if is_written:
            server.sendall(data)
        _end(server)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(_BYTES):
                client.sendall(data)
        _end(client)


def _end(one: socket.socket) -> None:
    """End both directions: what was sent still arrives."""
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
