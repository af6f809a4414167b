"""``#reorder:kslack(time, timeout, max.k, discard)``: events in the order of an attribute.

K is how late an event has been so far.  When an event has the greatest time of all, those that are
K or more older than it are emitted in order; the others wait, at most for the timeout.

``#reorder:akslack(time, field, batch, ..)`` tolerates a share of it, alpha, which a controller sets
after each batch: it compares the share of events that came in time with the one that the field's
mean and deviation ask for.

Source: API documentation of siddhi-execution-reorder 5.0; Ji et al., "Quality-driven processing of
sliding window aggregates over out-of-order data streams" (2015).
"""

from __future__ import annotations

import math
from bisect import insort
from dataclasses import dataclass
from operator import itemgetter
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

from mesh.operators.base import CURRENT
from mesh.operators.windows.contents import BoundedContents

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mesh.model.values import Json, Row
    from mesh.operators.windows.contents import Emitter


#: Weights of the controller: of the error, and of its change.
_PROPORTIONAL: Final = 0.5
_DERIVATIVE: Final = 0.8


class Slack(BoundedContents):
    """The events of one instance that wait; ``timeout_ms`` and ``slack_max``: None without one."""

    def __init__(
        self, timeout_ms: int | None, slack_max: int | None, *, discards: bool = False
    ) -> None:
        self._timeout_ms = timeout_ms
        self._slack_max = slack_max
        self._discards = discards
        #: Ordering time, number, row and time of each event, in order.
        self._waiting: list[tuple[int, int, int, int]] = []
        self._came = 0
        self._slack = 0
        self._greatest: int | None = None
        self._sent: int | None = None
        #: The least ordering time since there was a new greatest one.
        self._least: int | None = None
        self._due_ms: int | None = None

    def take(self, row: int, time_ms: int, now_ms: int, values: Row, to: Emitter) -> None:
        """Add one event; it may let others go.  One without an ordering time passes at once."""
        at: int | None = values[0]
        if at is None:
            to.emit(row, CURRENT, time_ms)
            return
        at = int(at)
        if self._discards and self._sent is not None and at < self._sent:
            return
        self._came += 1
        insort(self._waiting, (at, self._came, row, time_ms), key=itemgetter(0, 1))
        self._least = at if self._least is None else min(self._least, at)
        if self._greatest is None or at > self._greatest:
            self._greatest = at
            if at - self._least > self._slack:
                late = self._tolerated(at - self._least)
                self._slack = late if self._slack_max is None else min(late, self._slack_max)
            self._least = None
            self._emit_until(at - self._slack, to)
        if self._waiting and self._timeout_ms is not None and self._due_ms is None:
            self._due_ms = now_ms + self._timeout_ms
            to.alarms.append(self._due_ms)

    def _tolerated(self, late: int) -> int:
        """K once an event has been so late, which is more than K."""
        return late

    def fire(self, due_ms: int, now_ms: int, to: Emitter) -> None:
        """Let all events go."""
        self._due_ms = None
        if self._waiting:
            self._emit_until(self._waiting[-1][0], to)

    def _emit_until(self, last: int, to: Emitter) -> None:
        count = 0
        for at, _, row, time_ms in self._waiting:
            if at > last:
                break
            to.emit(row, CURRENT, time_ms)
            self._sent = at
            count += 1
        del self._waiting[:count]

    def rows(self) -> Iterable[int]:
        """The rows in it."""
        return [row for _, _, row, _ in self._waiting]

    def join_rows(self) -> Sequence[tuple[int, int]]:
        """No join reads it."""
        return ()

    def dump(self) -> object:
        """Its state as JSON."""
        times = [self._slack, self._greatest, self._sent, self._least, self._due_ms]
        return [self._came, self._waiting, times]

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        self._came, waiting, times = state
        self._waiting = [(at, number, row, time_ms) for at, number, row, time_ms in waiting]
        self._slack, self._greatest, self._sent, self._least, self._due_ms = times


@dataclass(frozen=True, slots=True)
class Quality:
    """Settings of alpha: the events of a batch, the error of aggregates, and its confidence."""

    batch: int = 10_000
    error: float = 0.03
    confidence: float = 0.95

    def needed_coverage(self, values: Sequence[float]) -> float:
        """The share of events in time with which the mean of ``values`` is within the error.

        It is the lesser root of the two quadratic equations of the paper; 0 where neither has one.
        """
        mean = math.fsum(values) / len(values)
        if not mean or not math.isfinite(mean):
            return 0.0
        variance = math.fsum((one - mean) ** 2 for one in values) / len(values)
        z = NormalDist().inv_cdf((1 + self.confidence) / 2)
        spread = z * z * (mean * mean + variance * variance) / (len(values) * mean * mean)
        roots = []
        for limit in (1 - self.error, 1 + self.error):
            half, whole = 2 * limit + spread, 1 + spread
            root = half * half - 4 * whole * limit * limit
            if root >= 0:
                roots.append((half - math.sqrt(root)) / (2 * whole))
        return min(roots, default=0.0)


class AdaptiveSlack(Slack):
    """The events of one instance that wait, for a time that a controller adapts."""

    def __init__(
        self,
        timeout_ms: int | None,
        slack_max: int | None,
        quality: Quality,
        *,
        discards: bool = False,
    ) -> None:
        super().__init__(timeout_ms, slack_max, discards=discards)
        self._quality = quality
        self._alpha = 1.0
        #: Alpha and the error of the controller before.
        self._before = (0.0, 0.0)
        #: The part of K by which events were awaited in the last batch.
        self._awaited = 0
        #: Ordering time and field of each event of the batch.
        self._batch: list[tuple[int, float]] = []

    def take(self, row: int, time_ms: int, now_ms: int, values: Row, to: Emitter) -> None:
        """Add one event; it may let others go, and end a batch."""
        at, field = values[:2]
        if at is not None and field is not None:
            self._batch.append((int(at), float(field)))
            if len(self._batch) > self._quality.batch:
                self._adapt(int(at))
        super().take(row, time_ms, now_ms, values, to)

    def _adapt(self, at: int) -> None:
        needed = self._quality.needed_coverage([field for _, field in self._batch])
        error = needed - (self._coverage(at) if self._awaited else 1.0)
        alpha, before = self._before
        self._alpha = abs(alpha + _PROPORTIONAL * error + _DERIVATIVE * (error - before))
        self._before = (self._alpha, error)
        self._awaited = min(self._slack, math.floor(self._alpha * self._slack + 0.5))
        self._batch = []

    def _coverage(self, at: int) -> float:
        """The share of the batch's events that came before the first one that ended their wait."""
        limit = at - self._awaited
        total = covered = 0
        is_late = False
        for time, _ in self._batch:
            is_late = is_late or time >= limit
            if time <= limit:
                total += 1
                covered += not is_late
        return covered / total if total else 1.0

    def _tolerated(self, late: int) -> int:
        return math.floor(late * self._alpha + 0.5)

    def dump(self) -> object:
        """Its state as JSON."""
        return [super().dump(), self._alpha, self._before, self._awaited, self._batch]

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        base, self._alpha, (alpha, error), self._awaited, batch = state
        super().load_dump(base)
        self._before = (alpha, error)
        self._batch = [(at, field) for at, field in batch]
