"""An aggregation as a node: it reads one stream, and emits only events on which it failed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mesh.operators.aggregations.rollup import Aggregation
from mesh.operators.aggregations.settings import purging_of
from mesh.operators.base import merge
from mesh.operators.failures import failed_output
from mesh.operators.query.handlers import Failures, Handlers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from mesh.operators.base import EventBatch, State, Timeline
    from mesh.operators.dataflow.graph import Outputs
    from mesh.plan.bound import BoundAggregation

log = logging.getLogger(__name__)


class AggregationNode:
    """``define aggregation A from S[..]#f(..) select .. group by .. aggregate ..``.

    ``fault``: the schema of the fault stream of its source, if that has a reader.  ``zone``: the
    time zone of hours and longer durations, None for UTC.
    """

    def __init__(
        self, definition: BoundAggregation, timer: int, fault: pa.Schema | None, zone: str | None
    ) -> None:
        self._stream = definition.input.schema.name
        self._schema = definition.input.schema.arrow
        self._fault = fault
        self._handlers = Handlers(definition.input.handlers, self._schema, timer)
        self._failures = Failures()
        self.cells = Aggregation(definition, purging_of(definition), zone)

    def process(self, inputs: Mapping[str, Sequence[EventBatch]], timeline: Timeline) -> Outputs:
        """Add events; the output is those that failed."""
        self.cells.begin(timeline.now_ms)
        events = merge(inputs.get(self._stream, ()), self._schema)
        if not len(events):
            return []
        events = self._handlers.process(events, timeline, self._failures)
        self.cells.add(events, self._failures)
        made: Outputs = []
        for failed, reasons, _ in self._failures.found:
            for reason in reasons[:1]:
                log.error("aggregation failed on an event", extra={"why": reason})
            made += failed_output(self.cells.name, self._stream, self._fault, failed, reasons)
        self._failures.found.clear()
        return made

    def next_time(self) -> int | None:
        """None: cells are closed when an event or a question comes."""
        return None

    def snapshot(self) -> State:
        """All cells."""
        return self.cells.snapshot()

    def restore(self, state: State) -> None:
        """Restore all cells."""
        self.cells.restore(state)
