"""Replies of an agent's child process: lines on standard output."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from mesh.worker.protocol import to_line

if TYPE_CHECKING:
    from mesh.worker.protocol import Reply


class Replies:
    """Standard output, reserved for replies: all other prints go to standard error."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)
        self._lock = threading.Lock()

    def send(self, reply: Reply) -> None:
        """Write one reply; from any thread."""
        with self._lock:
            self._out.write(to_line(reply))
