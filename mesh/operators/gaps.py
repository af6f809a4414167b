"""Gaps of time that clients' event times make: what emits by time alone stops within them.

``output snapshot every t`` and ``every not S for t`` emit once in each period, with or without
events.  If the clock is that of the machines, that is as much as time really passes.  A client
whose events have times of their own can let a year pass between two of them.  (So do triggers, but
their groups have no input.)

In such a gap they emit until rows or periods are too many, and then again in the first period
that ends with or after the next event.  The number of rows is looked at after 1,024, 2,048 .. of
the shortest periods, so the result doesn't depend on the steps in which time passes.  In playback,
where timers fire when the next event arrives, a gap of more periods is passed over as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from mesh.operators.base import BEFORE_ALL

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Rows in a gap after which it is passed over.
ROWS_MAX: Final = 100_000
#: Periods after which the rows are looked at first, and after which a gap is passed over anyway.
PERIODS_FIRST: Final = 1 << 10
PERIODS_MAX: Final = 1 << 17


class Periodic(Protocol):
    """A part that emits in periods, without events."""

    @property
    def period_ms(self) -> int | None:
        """Its shortest period; None if it has none."""
        ...

    def skip(self, to_ms: int) -> None:
        """Move timers that are due before ``to_ms``, by whole periods, up to it or after it."""
        ...


def later_ms(due_ms: int, period_ms: int, to_ms: int) -> int:
    """The first of the times ``due_ms``, plus one period .. that is not before ``to_ms``."""
    return due_ms + max(0, -(-(to_ms - due_ms) // period_ms)) * period_ms


@dataclass(slots=True)
class Gap:
    """The time since the last external event.

    ``since_ms``: its clock; ``rows``: rows emitted up to it; ``is_over``: whether the rest is
    passed over.
    """

    since_ms: int = BEFORE_ALL
    rows: int = 0
    is_over: bool = False

    def looks(self, period_ms: int, now_ms: int, to_ms: int) -> Iterator[tuple[int, bool]]:
        """The times after ``now_ms`` and before ``to_ms`` at which rows are looked at.

        Each with whether it is the last one.
        """
        periods = PERIODS_FIRST
        while periods <= PERIODS_MAX:
            at_ms = self.since_ms + periods * period_ms
            if at_ms >= to_ms:
                return
            if at_ms > now_ms:
                yield at_ms, periods == PERIODS_MAX
            periods *= 2
