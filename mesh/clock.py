"""Time for shells; decisions get it as a value."""

from __future__ import annotations

import time
from typing import Final, Protocol

#: Linux's monotonic clock stands still while the machine is suspended: a lease or a term that was
#: over long ago would seem valid.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


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
        """Seconds on the machine's monotonic clock, those in which it was suspended too."""
        return time.clock_gettime(_CLOCK)

    def wall_ms(self) -> int:
        """Milliseconds since 1970 on the machine's wall clock."""
        return time.time_ns() // 1_000_000
