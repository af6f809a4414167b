"""A server that loses the end of its streams, as with its power."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from mesh.jetstream import server

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer


class Power:
    """A server that can be set back to what its disk held before."""

    def __init__(self, running: NatsServer) -> None:
        self._running = running
        self._directory = running.directory
        self._saved = running.directory.with_name("saved")

    def save(self) -> None:
        """Keep what is stored now."""
        self._running.stop()
        shutil.copytree(self._directory, self._saved)
        self._start()

    def fail(self, stream: str = "") -> None:
        """Lose what was stored since then, in one stream or in all."""
        self._running.stop()
        inside = f"jetstream/jetstream/$G/streams/{stream}" if stream else ""
        shutil.rmtree(self._directory / inside)
        shutil.copytree(self._saved / inside, self._directory / inside)
        self._start()

    def restart(self) -> None:
        self._running.stop()
        self._start()

    def _start(self) -> None:
        self._running = server.start(self._directory, port=self._running.port)

    def end(self) -> None:
        self._running.stop()
