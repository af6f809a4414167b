"""Query over a pattern or a sequence: ``from every A -> B .. select ..``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.operators.base import State, merge, namespaced, subset, with_timer_path
from mesh.operators.patterns import PatternOperator
from mesh.operators.query.handlers import Failures, named_columns
from mesh.operators.query.results import Results
from mesh.operators.select.aggregates import Expiry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.operators.base import EventBatch, Longs, Timeline
    from mesh.plan.bound import BoundPattern, BoundQuery


class PatternQuery:
    """``from every A -> B .. select ..``."""

    def __init__(
        self, query: BoundQuery, source: BoundPattern, timer_path: int, is_partitioned: bool
    ) -> None:
        self._schemas = {step.schema.name: step.schema.arrow for step in source.steps}
        self._streams = query.input_streams
        self._timer_path = timer_path
        self._pattern = PatternOperator(query, source, is_partitioned)
        self._results = Results(
            query, Expiry.NEVER, False, timer_path, is_partitioned=is_partitioned
        )
        self._named = named_columns(query, [step.name for step in source.steps])
        self.failures = Failures()

    def process(self, inputs: Mapping[str, Sequence[EventBatch]], timeline: Timeline) -> EventBatch:
        """The output for the matches that the events complete."""
        merged = [merge(inputs.get(name, ()), self._schemas[name]) for name in self._streams]
        matches = self._pattern.process(merged, timeline, self.failures)
        matches = with_timer_path(matches, self._timer_path)
        frame = self._pattern.frame(matches).timed(matches)
        frame.joint_path = self._timer_path
        made = self._results.process(frame, matches, timeline)
        self.failures.take(frame, matches, self._named)
        return made

    def next_time(self) -> int | None:
        """Due time of the next timer of an absent event or of the rate."""
        times = (self._pattern.next_time(), self._results.next_time())
        return min((time for time in times if time is not None), default=None)

    def begin(self, instances: Longs, clocks_ms: Longs) -> None:
        """Count the time of these partition instances from these times."""
        self._results.begin(instances, clocks_ms)

    def forget(self, instances: Longs) -> None:
        """Drop these instances."""
        self._pattern.forget(instances)
        self._results.forget(instances)

    def snapshot(self) -> State:
        """Partial matches and aggregates."""
        return namespaced({"match": self._pattern.snapshot(), "select": self._results.snapshot()})

    def restore(self, state: State) -> None:
        """Restore partial matches and aggregates."""
        self._pattern.restore(subset(state, "match"))
        self._results.restore(subset(state, "select"))
