"""How long an instance that has failed rests before its worker starts it again.

The first rest is short, for most of what fails once works the next time; each further one is twice
as long as the one before, up to a bound, for what fails for good costs its worker a start each
time.  One that has run for as long as the longest rest has recovered, and begins anew; so does one
that is placed anew, which knows of no failures.

Who has waited for a server that doesn't answer has been slow already, and is not at fault: that
rests as briefly as at first, so that all goes on soon after the server is back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

#: Doublings after which any rest is at its bound; more would leave the range of a float.
_DOUBLINGS_MAX: Final = 30


@dataclass(frozen=True, slots=True)
class Retries:
    """What counts of an instance's failures, in one epoch on one worker.  Times are monotonic."""

    #: The first rest, and the longest, seconds.
    first_s: float
    most_s: float
    #: Failures without a recovery between.
    failures: int = 0
    #: Since when it runs, seconds; None while it doesn't.
    running_since_s: float | None = None

    @property
    def rest_s(self) -> float:
        """How long it rests after its last failure, seconds."""
        doublings = min(max(self.failures - 1, 0), _DOUBLINGS_MAX)
        return min(self.first_s * 2.0**doublings, max(self.first_s, self.most_s))

    def running(self, now_s: float) -> Retries:
        """It runs, as it may have before."""
        return self if self.running_since_s is not None else replace(self, running_since_s=now_s)

    def failed(self, now_s: float, *, has_waited: bool = False) -> Retries:
        """It has failed.

        Args:
            now_s: when.
            has_waited: whether that was for want of an answer, which took its time.
        """
        since_s = self.running_since_s
        has_recovered = since_s is not None and now_s - since_s >= self.most_s
        before = 0 if has_recovered or has_waited else self.failures
        return replace(self, failures=before + 1, running_since_s=None)
