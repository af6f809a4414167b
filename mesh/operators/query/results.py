"""Results of a query: its select clause, then its output rate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from mesh.language.syntax import EventKind, RateKind
from mesh.operators.base import BEFORE_ALL, WHOLE, State, Stateful, namespaced, subset
from mesh.operators.output_rate.limits import make_rate
from mesh.operators.output_rate.snapshot import Snapshots
from mesh.operators.output_rate.timer_order import make_tie_breaker
from mesh.operators.query.handlers import Failures
from mesh.operators.select.aggregates import Expiry
from mesh.operators.select.selector import Selector, output_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.operators.base import Bools, EventBatch, Longs, Timeline
    from mesh.operators.expressions import Frame
    from mesh.operators.output_rate.limits import Rate
    from mesh.plan.bound import BoundQuery

#: Output rates that count events which reset aggregates.
_SEES_RESETS: Final = (RateKind.FIRST, RateKind.SNAPSHOT)


class Results:
    """The select clause of ``query`` and the output rate after it.

    ``leaving``: whether events expire; ``batch``: whether they come from a batch window.
    ``timer_path``: the path of the query's own timers. ``is_partitioned``: whether the query runs
    once for each partition instance, which ``begin`` announces; otherwise time starts with the
    first call, at the start of the app.
    ``begins_anew``: whether events that reset aggregates do so here.
    ``selector``: the select clause alone.
    """

    def __init__(
        self,
        query: BoundQuery,
        leaving: Expiry,
        batch: bool,
        timer_path: int,
        *,
        is_partitioned: bool = False,
        begins_anew: bool = True,
    ) -> None:
        self._rate: Rate | None = None
        self._grouping = query.rate is not None and bool(query.group_by)
        snapshots = query.rate is not None and query.rate.kind is RateKind.SNAPSHOT
        # A snapshot follows each event that enters the window or leaves it.
        self.selector = Selector(
            query,
            leaving,
            batch and not snapshots,
            kind=EventKind.ALL if snapshots else None,
            grouping=self._grouping,
            resets=query.rate is not None and query.rate.kind in _SEES_RESETS,
            begins_anew=begins_anew,
        )
        self._begins = not is_partitioned
        held = query.rate is not None and query.rate.kind is not RateKind.FIRST
        self._ties = make_tie_breaker(query, timer_path) if held else None
        self._timer_path = timer_path
        self._is_snapshot = snapshots
        self._is_timed = held and query.rate is not None and query.rate.is_by_time
        #: Up to when timers have fired.
        self._now_ms = BEFORE_ALL
        if query.rate is not None:
            schema = output_schema(query).arrow
            if snapshots:
                windowed = leaving is not Expiry.NEVER
                self._rate = Snapshots(query, schema, windowed, timer_path)
            else:
                self._rate = make_rate(query.rate, schema, self._grouping, timer_path)

    def process(self, frame: Frame, events: EventBatch, timeline: Timeline) -> EventBatch:
        """The output of ``events``, with attributes in ``frame``, and of timers due.

        Kinds are kept: events that left a window are ``EXPIRED``.
        """
        rate = self._rate
        if rate is None:
            return self.selector.process(frame, events)
        if self._begins:
            self._begins = False
            rate.begin(np.array([WHOLE]), np.array([timeline.now_ms]))
        # An earlier release has kept only those with events that reached this point.
        rate.begin(events.instance, events.clock_ms)
        output = self.selector.process(frame, events)
        if self._is_timed and timeline.playback:
            output = self._before_ticks(output, timeline)
        elif self._is_timed:
            early = self._of_earlier_timers(output)
            if self._is_snapshot:
                # Events with the time of the tick are processed after it, since they arrive then at
                # the latest.
                early &= output.time_ms < output.clock_ms
            if early.any():
                output = replace(output, clock_ms=output.clock_ms - early)
            if self._ties is not None:
                output = self._ties.order_around_ticks(events, output)
        self._now_ms = timeline.now_ms
        groups = self.selector.groups if self._grouping else np.zeros(len(output), dtype=np.int64)
        return rate.process(output, groups, timeline)

    def _of_earlier_timers(self, output: EventBatch) -> Bools:
        """Output of timers of earlier queries: it is emitted with the tick of its instant.

        Timers of one instant fire in the order of the queries.
        """
        early: Bools = (output.order & 1 == 0) & (output.path < self._timer_path)
        return early

    def _before_ticks(self, output: EventBatch, timeline: Timeline) -> EventBatch:
        """In playback the window's timers fire before the rate's, whenever either were due.

        So do those of earlier queries.

        Their output gets a clock up to which ticks are over: that of the external event before
        the one that they fire for.  Without events time stops at each timer.
        """
        by_timer = (output.path == self._timer_path) | self._of_earlier_timers(output)
        if not by_timer.any():
            return output
        before = output.clock_ms - 1
        if len(timeline.clocks_ms):
            clocks_ms = np.concatenate([[self._now_ms], timeline.clocks_ms])
            before = clocks_ms[np.searchsorted(timeline.clocks_ms, output.clock_ms, side="left")]
        return replace(output, clock_ms=np.where(by_timer, before, output.clock_ms))

    @property
    def is_select_alone(self) -> bool:
        """Whether there is no output rate."""
        return self._rate is None

    def begin(self, instances: Longs, clocks_ms: Longs) -> None:
        """Partition instances begin, each at its time."""
        if self._rate is not None:
            self._rate.begin(instances, clocks_ms)

    def next_time(self) -> int | None:
        """Due time of the next timer."""
        return None if self._rate is None else self._rate.next_time()

    def forget(self, instances: Longs) -> None:
        """Drop the state of partition ``instances``."""
        groups = self.selector.forget(instances)
        if self._rate is not None:
            self._rate.forget(instances, groups)
        if self._ties is not None:
            self._ties.forget(instances)

    def snapshot(self) -> State:
        """Aggregates, and the events that wait to be emitted."""
        rate = State() if self._rate is None else self._rate.snapshot()
        ties = State() if self._ties is None else self._ties.snapshot()
        timing = State({}, {"begins": self._begins, "now_ms": self._now_ms})
        parts = {"select": self.selector.snapshot(), "rate": rate, "ties": ties, "own": timing}
        return namespaced(parts)

    def restore(self, state: State) -> None:
        """Restore what ``snapshot`` returned."""
        scalars = subset(state, "own").scalars
        self._begins, self._now_ms = bool(scalars["begins"]), scalars.get("now_ms", BEFORE_ALL)
        self.selector.restore(subset(state, "select"))
        if self._rate is not None:
            self._rate.restore(subset(state, "rate"))
        if self._ties is not None:
            self._ties.restore(subset(state, "ties"))


class SelectedInput(Stateful, Protocol):
    """The operator before the select clause of a query: a window, a join or a pattern."""

    def next_time(self) -> int | None:
        """Due time of its earliest timer; None without one."""
        ...

    def forget(self, instances: Longs) -> None:
        """Drop these partition instances."""
        ...


class RunningQuery(ABC):
    """A query with its state: the operator over its input, if any, and the results after it.

    ``name``: that of the operator's state; ``failures``: the failed events, until fetched.
    """

    def __init__(self, name: str, source: SelectedInput | None, results: Results) -> None:
        self._name = name
        self._source = source
        self._results = results
        self.failures = Failures()
        #: Whether the rows of events may be ``FewRows``.
        self.takes_few = False

    @abstractmethod
    def process(self, inputs: Mapping[str, Sequence[EventBatch]], timeline: Timeline) -> EventBatch:
        """Process events, by the name of their stream; return current and expired output."""

    def next_time(self) -> int | None:
        """Due time of the next timer of the operator or of the rate; None without one."""
        due_ms = None if self._source is None else self._source.next_time()
        times = (due_ms, self._results.next_time())
        return min((time for time in times if time is not None), default=None)

    def begin(self, instances: Longs, clocks_ms: Longs) -> None:
        """Count the time of these partition instances from these times."""
        self._results.begin(instances, clocks_ms)

    def forget(self, instances: Longs) -> None:
        """Drop these partition instances."""
        if self._source is not None:
            self._source.forget(instances)
        self._results.forget(instances)

    def snapshot(self) -> State:
        """The state of the operator, and the aggregates."""
        source = State() if self._source is None else self._source.snapshot()
        return namespaced({self._name: source, "select": self._results.snapshot()})

    def restore(self, state: State) -> None:
        """Restore what ``snapshot`` returned."""
        if self._source is not None:
            self._source.restore(subset(state, self._name))
        self._results.restore(subset(state, "select"))
