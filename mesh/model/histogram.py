"""Durations as counts in fixed buckets: they add up over reports, instances and time."""

from __future__ import annotations

from bisect import bisect_left
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Counts, or counts a second.
Number = TypeVar("Number", int, float)

#: Upper bounds of the buckets of a batch's duration, seconds; one more bucket has no bound.
BATCH_BOUNDS_S: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0),
)
#: The same of the time from the broker's storing of an event to the publishing of its effect.
LATENCY_BOUNDS_S: Final = (*BATCH_BOUNDS_S, 120.0, 600.0)


class Histogram:
    """Counts of durations; for one thread at a time."""

    def __init__(self, bounds_s: tuple[float, ...] = BATCH_BOUNDS_S) -> None:
        self._bounds_s = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)
        #: Of all durations, seconds.
        self.sum_s = 0.0

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of durations in each bucket; empty if there is none at all."""
        return tuple(self._counts) if any(self._counts) else ()

    def observe(self, duration_s: float) -> None:
        """Count a duration."""
        self._counts[bisect_left(self._bounds_s, duration_s)] += 1
        self.sum_s += duration_s

    def add(self, counts: tuple[int, ...], sum_s: float) -> None:
        """Count the durations of another histogram."""
        self._counts = list(merged(self.counts, counts) or self._counts)
        self.sum_s += sum_s


def merged(first: tuple[Number, ...], second: tuple[Number, ...]) -> tuple[Number, ...]:
    """The counts of two histograms together; an empty one has none."""
    return tuple(a + b for a, b in zip_longest(first, second, fillvalue=0))


def quantile(counts: Sequence[float], bounds_s: tuple[float, ...], share: float) -> float | None:
    """The duration that this share of all does not exceed, linear within a bucket.

    None without durations; the greatest bound for one beyond it.
    """
    rank = share * sum(counts)
    if not rank or len(counts) != len(bounds_s) + 1:
        return None
    seen, low_s = 0.0, 0.0
    for bound_s, count in zip(bounds_s, counts, strict=False):
        if count and seen + count >= rank:
            return low_s + (bound_s - low_s) * (rank - seen) / count
        seen, low_s = seen + count, bound_s
    return low_s
