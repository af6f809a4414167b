"""Present work of a slot, in shared memory that its session can read even if the slot hangs."""

from __future__ import annotations

import mmap
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: Start of the work, local monotonic clock, seconds; 0 while idle.  Then the instance's length.
_HEAD: Final = struct.Struct("<dI")
_SIZE: Final = 4096


@dataclass(frozen=True, slots=True)
class SlotWork:
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

    def rest(self) -> None:
        """Record that the slot waits; ``end`` has said so."""

    def look(self) -> SlotWork | None:
        """The present work; None while idle."""
        since_s, length = _HEAD.unpack(self._memory[: _HEAD.size])
        if not since_s:
            return None
        name = self._memory[_HEAD.size : _HEAD.size + length]
        return SlotWork(name.decode(errors="replace"), since_s)


#: Interval in which work for one instance is announced again, seconds.
_AGAIN_S: Final = 1.0


class RemoteActivity:
    """Present work of a slot whose session is on another machine, told to it by messages.

    What is sent reaches the session even if the process is killed then.  Work for one instance
    after the other costs one message.
    """

    def __init__(self, tell: Callable[[str | None], None]) -> None:
        self._tell = tell
        self._sent: str | None = None
        self._sent_s = 0.0

    def begin(self, instance: str) -> None:
        """See ``AtWork``."""
        now_s = time.monotonic()
        if instance != self._sent or now_s - self._sent_s > _AGAIN_S:
            self._sent, self._sent_s = instance, now_s
            self._tell(instance)

    def end(self) -> None:
        """See ``AtWork``; told with the next work, or when the slot waits."""

    def rest(self) -> None:
        """See ``AtWork``."""
        if self._sent is not None:
            self._sent = None
            self._tell(None)


class NotedWork:
    """The session's notes of what such a slot has told."""

    def __init__(self) -> None:
        self._work: SlotWork | None = None

    def note(self, instance: str | None) -> None:
        """Record what the slot does now."""
        self._work = None if instance is None else SlotWork(instance, time.monotonic())

    def look(self) -> SlotWork | None:
        """See ``AtWork``."""
        return self._work
