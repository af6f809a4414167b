"""Time for shells; decisions get it as a value."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def monotonic_s(self) -> float:
        """Seconds on a clock that never goes back; only differences mean something."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970 in UTC, for people and for records."""
        ...


class SystemClock:
    """The machine's clocks."""

    def monotonic_s(self) -> float:
        """Seconds on the machine's monotonic clock."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """Milliseconds since 1970 on the machine's wall clock."""
        return time.time_ns() // 1_000_000
