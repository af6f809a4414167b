"""An aggregation as a node: it reads one stream, and emits events on which it failed.

With ``@store`` it emits rows for its tables too, on channels that no stream has.

Named windows: one window that several queries write and several read.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import numpy as np

from mesh.language.syntax import EventKind
from mesh.operators.aggregations.layout import Layout
from mesh.operators.aggregations.rollup import Aggregation, purging_of
from mesh.operators.aggregations.tables import tables_of
from mesh.operators.base import (
    CURRENT,
    EXPIRED,
    LOCAL_TIMER,
    RESET,
    WHOLE,
    EventBatch,
    Longs,
    State,
    merge,
    namespaced,
    subset,
    with_timer_path,
)
from mesh.operators.expressions import current
from mesh.operators.failures import failed_output
from mesh.operators.query.handlers import Failures, Handlers, TimeFilter
from mesh.operators.query.processors import FunctionsAndWindow
from mesh.operators.windows import kind_of, make_window
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from mesh.operators.aggregations.rollup import LeavingRows
    from mesh.operators.base import Timeline
    from mesh.operators.dataflow.graph import Outputs
    from mesh.plan.bound import BoundAggregation, BoundNamedWindow


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


def window_input(name: str) -> str:
    """The channel of inserts into the named window ``name``."""
    return f">{name}"


class NamedWindowNode:
    """``define window W (..) length(5) output all events``.

    Output is current events, expired ones or both, but never resets of aggregates: readers
    remove each event of a finished batch, as in the engine.
    """

    def __init__(self, definition: BoundNamedWindow, timer: int) -> None:
        self._name = definition.schema.name
        self._schema = definition.schema.arrow
        self._events = definition.events
        # Joins find no rows in a window of this kind if it emits only current events.
        self._is_hidden = (
            kind_of(definition.window).holds_only_for_expired
            and definition.events is EventKind.CURRENT
        )
        self._timer = timer
        self._times = TimeFilter(definition.window)
        self._failures = Failures()
        self._window = make_window(definition.window, self._schema, timer)
        self._count = current().count_of("window", self._name)

    def process(self, inputs: Mapping[str, Sequence[EventBatch]], timeline: Timeline) -> Outputs:
        """The events that enter and leave the window."""
        events = merge(inputs.get(window_input(self._name), ()), self._schema)
        if events.rows.schema != self._schema:
            events = events.with_rows(events.rows.rename_columns(self._schema.names))
        entering = self._times.process(events.outside(), self._failures)
        batch = with_timer_path(self._window.process(entering, timeline), self._timer)
        match self._events:
            case EventKind.ALL:
                batch = batch.where(batch.kind != RESET)
            case EventKind.CURRENT:
                batch = batch.where(batch.kind == CURRENT)
            case EventKind.EXPIRED:
                batch = batch.where(batch.kind == EXPIRED)
        self._count[0] += len(events)
        self._count[1] += len(batch)
        outputs = [(self._name, batch)]
        for failed, reasons, _ in self._failures.entries:
            outputs += failed_output(self._name, self._name, None, failed, reasons)
        self._failures.entries.clear()
        return outputs

    def content(self, instance: int = WHOLE) -> tuple[pa.RecordBatch, Longs]:
        """The present contents: rows in the engine's order, and their times."""
        del instance
        rows, times = self._window.content(WHOLE)
        return (rows.slice(0, 0), times[:0]) if self._is_hidden else (rows, times)

    def next_time(self) -> int | None:
        """Due time of the window's next timer."""
        return self._window.next_time()

    def snapshot(self) -> State:
        """The window's state."""
        return self._window.snapshot()

    def restore(self, state: State) -> None:
        """Restore the window's state."""
        self._window.restore(state)
