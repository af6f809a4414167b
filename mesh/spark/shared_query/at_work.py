"""Present work of a slot, in shared memory that its session can read even if the slot hangs."""

from __future__ import annotations

import mmap
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

#: Start of the work, local monotonic clock, seconds; 0 while idle.  Then the instance's length.
_HEAD: Final = struct.Struct("<dI")
_SIZE: Final = 4096


@dataclass(frozen=True, slots=True)
class Work:
    """The work that a slot was doing when it was looked at."""

    instance: str
    #: When it began, local monotonic clock, seconds.
    since_s: float


class AtWork:
    """A file with the present work of one slot."""

    def __init__(self, path: Path) -> None:
        """Map the file, which is made if it does not exist."""
        with path.open("a+b") as file:
            file.truncate(_SIZE)
            self._memory = mmap.mmap(file.fileno(), _SIZE)

    def begin(self, instance: str) -> None:
        """Record that work for an instance begins."""
        name = instance.encode()[: _SIZE - _HEAD.size]
        self._memory[_HEAD.size : _HEAD.size + len(name)] = name
        self._memory[: _HEAD.size] = _HEAD.pack(time.monotonic(), len(name))

    def end(self) -> None:
        """Record that no work is being done."""
        self._memory[: _HEAD.size] = _HEAD.pack(0.0, 0)

    def look(self) -> Work | None:
        """The present work; None while idle."""
        since_s, length = _HEAD.unpack(self._memory[: _HEAD.size])
        if not since_s:
            return None
        name = self._memory[_HEAD.size : _HEAD.size + length]
        return Work(name.decode(errors="replace"), since_s)
