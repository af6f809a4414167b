"""Delay before a worker starts a failed instance again.

The first delay is short, because most failures are transient.  Each further one is twice as long,
up to a bound, because an instance that always fails costs its worker a start each time.  An
instance that has run for the longest delay has recovered, and begins with the first delay again; so
does one that is placed again, which has no recorded failures.

An instance that has waited for a server without an answer was slow already, and is not at fault.
It gets the first delay, so that all instances continue soon after the server is back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

#: Doublings after which any rest is at its bound; more would leave the range of a float.
_DOUBLINGS_MAX: Final = 30


@dataclass(frozen=True, slots=True)
class Retries:
    """Failures of an instance, in one epoch on one worker.  Times are monotonic."""

    #: The first rest, and the longest, seconds.
    first_s: float
    most_s: float
    #: Failures without a recovery between.
    failures: int = 0
    #: Since when it runs, seconds; None while it doesn't.
    running_since_s: float | None = None

    @property
    def rest_s(self) -> float:
        """Delay after its last failure, seconds."""
        doublings = min(max(self.failures - 1, 0), _DOUBLINGS_MAX)
        return min(self.first_s * 2.0**doublings, max(self.first_s, self.most_s))

    def running(self, now_s: float) -> Retries:
        """Record that the instance runs, perhaps already before."""
        return self if self.running_since_s is not None else replace(self, running_since_s=now_s)

    def failed(self, now_s: float, *, has_waited: bool = False) -> Retries:
        """Record a failure.

        Args:
            now_s: time of the failure.
            has_waited: whether it failed for lack of an answer, after a timeout.
        """
        since_s = self.running_since_s
        has_recovered = since_s is not None and now_s - since_s >= self.most_s
        before = 0 if has_recovered or has_waited else self.failures
        return replace(self, failures=before + 1, running_since_s=None)
