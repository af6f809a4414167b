"""Join query: the pairs of both sides, and the selector after them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.operators.base import RESET, merge
from mesh.operators.joins.lookup_join import LookupJoin, nothing
from mesh.operators.joins.window_join import WindowJoin
from mesh.operators.query.handlers import named_columns
from mesh.operators.query.results import Results, RunningQuery
from mesh.operators.select.aggregates import Expiry
from mesh.operators.windows import kind_of
from mesh.plan.bound import SourceKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.operators.base import EventBatch, Timeline
    from mesh.plan.bound import BoundJoin, BoundQuery


#: Sources that queries look up rows in; they get no events from them.
LOOKUPS: Final = (SourceKind.TABLE, SourceKind.AGGREGATION)


def probes_table_or_window(source: BoundJoin) -> bool:
    """True if a join searches the rows of a side when an event of the other arrives."""
    return any(
        side.kind in (*LOOKUPS, SourceKind.WINDOW)
        or (side.window is not None and not kind_of(side.window).holds_what_it_emits)
        for side in (source.left, source.right)
    )


def is_stepwise(source: BoundJoin) -> bool:
    """True if a join must be called stepwise: both sides may search the other's window."""
    sides = (source.left, source.right)
    if not probes_table_or_window(source) or any(side.kind in LOOKUPS for side in sides):
        return False
    return source.left.schema.name == source.right.schema.name or any(
        side.window is not None for side in sides
    )


class JoinQuery(RunningQuery):
    """``from A#window.x(..) join B#window.y(..) on .. select ..``."""

    def __init__(
        self, query: BoundQuery, source: BoundJoin, timer_path: int, is_partitioned: bool
    ) -> None:
        self._schemas = [
            (side.schema.name, side.schema.arrow) for side in (source.left, source.right)
        ]
        self._join: WindowJoin | LookupJoin
        if probes_table_or_window(source):
            self._join = LookupJoin(query, source, timer_path)
        else:
            self._join = WindowJoin(query, source, timer_path)
        # The matches of each event are a batch to the selector, with any windows.
        results = Results(query, Expiry.TRACKED, True, timer_path, is_partitioned=is_partitioned)
        super().__init__("join", self._join, results)
        self._tells_resets = not query.has_aggregates and not query.group_by and query.rate is None
        sides = (source.left, source.right)
        self._named = named_columns(query, [side.alias or side.schema.name for side in sides])

    def process(self, inputs: Mapping[str, Sequence[EventBatch]], timeline: Timeline) -> EventBatch:
        """Process events and timers; the selected output of their pairs."""
        merged = [merge(inputs.get(name, ()), schema) for name, schema in self._schemas]
        pairs, frame = self._join.process(merged, timeline, self.failures)
        output = self._results.process(frame, pairs, timeline)
        self.failures.take(frame, pairs, self._named)
        return self._with_resets(output, pairs) if self._tells_resets else output

    def _with_resets(self, output: EventBatch, pairs: EventBatch) -> EventBatch:
        """The output with the resets in it: the engine calls back without events for each."""
        resets = pairs.where(pairs.kind == RESET)
        if not len(resets):
            return output
        schema = output.rows.schema
        return merge([output, resets.with_rows(nothing(schema, len(resets)))], schema)
