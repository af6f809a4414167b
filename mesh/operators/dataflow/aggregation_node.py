"""An aggregation as a node: it reads one stream, and emits events on which it failed.

With ``@store`` it emits rows for its tables too, on channels that no stream has.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import numpy as np

from mesh.operators.aggregations.layout import Layout
from mesh.operators.aggregations.rollup import Aggregation
from mesh.operators.aggregations.settings import purging_of
from mesh.operators.aggregations.tables import tables_of
from mesh.operators.base import (
    CURRENT,
    LOCAL_TIMER,
    WHOLE,
    EventBatch,
    State,
    merge,
    namespaced,
    subset,
)
from mesh.operators.environment import current
from mesh.operators.failures import failed_output
from mesh.operators.query.handlers import Failures, Handlers
from mesh.operators.query.processors import FunctionsAndWindow
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from mesh.operators.aggregations.rollup import LeavingRows
    from mesh.operators.base import Timeline
    from mesh.operators.dataflow.graph import Outputs
    from mesh.plan.bound import BoundAggregation

log = logging.getLogger(__name__)

#: The part of the state that is not of cells.
_FUNCTIONS: Final = "functions"


class AggregationNode:
    """``define aggregation A from S[..]#f(..) select .. group by .. aggregate ..``.

    ``fault``: the schema of the fault stream of its source, if that has a reader.  ``zone``: the
    time zone of hours and longer durations, None for UTC.  ``is_joined``: whether queries join it.
    """

    def __init__(
        self,
        definition: BoundAggregation,
        timer: int,
        fault: pa.Schema | None,
        zone: str | None,
        *,
        is_joined: bool = False,
    ) -> None:
        self._stream = definition.input.schema.name
        self._schema = definition.input.schema.arrow
        self._fault = fault
        self._handlers = Handlers(definition.input.handlers, self._schema, timer)
        self._functions = FunctionsAndWindow(self._handlers.stateful, None)
        self._failures = Failures()
        layout = Layout.of(definition)
        tables = tables_of(definition, layout, current().shard)
        self.cells = Aggregation(
            definition, purging_of(definition), zone, layout, tables, is_joined=is_joined
        )

    def process(self, inputs: Mapping[str, Sequence[EventBatch]], timeline: Timeline) -> Outputs:
        """Add events; the output is those that failed, and rows for tables."""
        self.cells.begin(timeline.now_ms)
        events = merge(inputs.get(self._stream, ()), self._schema)
        outputs = self._add(events, timeline) if len(events) else []
        if self.cells.tables is not None:
            self.cells.advance(timeline.now_ms)
            outputs += [(one.channel, _events(one, timeline)) for one in self.cells.take_leaving()]
        return outputs

    def _add(self, events: EventBatch, timeline: Timeline) -> Outputs:
        events = self._handlers.process(events, timeline, self._failures)
        self.cells.add(events, self._failures)
        outputs: Outputs = []
        for failed, reasons, _ in self._failures.entries:
            for reason in reasons[:1]:
                log.error(
                    "aggregation failed on an event: %s",
                    reason,
                    extra=fields(aggregation=self.cells.name),
                )
            outputs += failed_output(self.cells.name, self._stream, self._fault, failed, reasons)
        self._failures.entries.clear()
        return outputs

    def next_time(self) -> int | None:
        """When rows leave; None without tables: cells are closed when an event comes."""
        return self.cells.next_time()

    def snapshot(self) -> State:
        """All cells, and the stream functions with a state before them."""
        cells, functions = self.cells.snapshot(), self._functions.snapshot()
        if not functions.pieces:
            return cells
        state = namespaced({_FUNCTIONS: functions})
        return State({**cells.pieces, **state.pieces}, {**cells.scalars, **state.scalars})

    def restore(self, state: State) -> None:
        """Restore all cells, and the functions."""
        prefix = f"{_FUNCTIONS}/"
        pieces = {k: piece for k, piece in state.pieces.items() if not k.startswith(prefix)}
        scalars = {k: value for k, value in state.scalars.items() if not k.startswith(prefix)}
        self.cells.restore(State(pieces, scalars))
        self._functions.restore(subset(state, _FUNCTIONS))


def _events(leaving: LeavingRows, timeline: Timeline) -> EventBatch:
    """Rows for a table as events that timers caused."""
    count = len(leaving.due_ms)
    return EventBatch(
        leaving.due_ms,
        timeline.fired_ms(leaving.due_ms),
        timeline.timer_order(leaving.due_ms),
        np.full(count, LOCAL_TIMER, dtype=np.int64),
        np.full(count, leaving.place, dtype=np.int64),
        np.full(count, CURRENT, dtype=np.int8),
        np.full(count, WHOLE, dtype=np.int64),
        leaving.rows,
    )
