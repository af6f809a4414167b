"""Query over a pattern or a sequence: ``from every A -> B .. select ..``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.operators.base import merge, with_timer_path
from mesh.operators.patterns import PatternOperator
from mesh.operators.query.handlers import named_columns
from mesh.operators.query.results import Results, RunningQuery
from mesh.operators.select.aggregates import Expiry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.operators.base import EventBatch, Timeline
    from mesh.plan.bound import BoundPattern, BoundQuery


class PatternQuery(RunningQuery):
    """``from every A -> B .. select ..``."""

    def __init__(
        self, query: BoundQuery, source: BoundPattern, timer_path: int, is_partitioned: bool
    ) -> None:
        self._schemas = {step.schema.name: step.schema.arrow for step in source.steps}
        self._streams = query.input_streams
        self._timer_path = timer_path
        self._pattern = PatternOperator(query, source, is_partitioned)
        results = Results(query, Expiry.NEVER, False, timer_path, is_partitioned=is_partitioned)
        super().__init__("match", self._pattern, results)
        self.takes_few = results.is_select_alone
        self._named = named_columns(query, [step.name for step in source.steps])

    def process(self, inputs: Mapping[str, Sequence[EventBatch]], timeline: Timeline) -> EventBatch:
        """The output for the matches that the events complete."""
        merged = [merge(inputs.get(name, ()), self._schemas[name]) for name in self._streams]
        matches = self._pattern.process(merged, timeline, self.failures)
        matches = with_timer_path(matches, self._timer_path)
        frame = self._pattern.frame(matches).timed(matches)
        frame.joint_path = self._timer_path
        output = self._results.process(frame, matches, timeline)
        self.failures.take(frame, matches, self._named)
        return output
