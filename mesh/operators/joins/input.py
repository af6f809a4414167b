"""One side of a join: its handlers, its window, and the rows that may be found later."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.language.syntax import EventKind, JoinKind, RateKind
from mesh.operators.base import (
    CURRENT,
    EXPIRED,
    RESET,
    EventBatch,
    Longs,
    State,
    namespaced,
    subset,
)
from mesh.operators.expressions import columns_of, selected_expressions
from mesh.operators.query.handlers import Failures, Handlers, TimeFilter
from mesh.operators.query.processors import FunctionsAndWindow
from mesh.operators.state.row_store import RowStore
from mesh.operators.windows import kind_of, make_window
from mesh.plan.bound import BoundJoin, Window

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.operators.base import Timeline
    from mesh.operators.windows import WindowOperator
    from mesh.plan.bound import BoundExpression, BoundQuery, BoundStream

#: Columns that go through a window beside the attributes.
ROW, INSTANCE, TIME = "#joined", "#of", "#came"
_ROW_SCHEMA = pa.schema([pa.field(ROW, pa.int64())])
#: The output of an event without a window: it arrives, expires, and resets the aggregates.
_PASSING = np.array([CURRENT, EXPIRED, RESET], dtype=np.int8)


class JoinSideInput:
    """The handlers before the window of ``source``, and its window, if any."""

    def __init__(self, query: BoundQuery, source: BoundStream, step: int, timer_path: int) -> None:
        before = [h for h in source.handlers if not isinstance(h, Window)]
        self._handlers = Handlers(before, source.schema.arrow, timer_path)
        #: Its stream functions with a state.
        self.functions = FunctionsAndWindow(self._handlers.stateful, None)
        self.step = step
        self.stream = source.schema.name
        self._timer_path = timer_path
        self.definition = source.window
        self._times = None if source.window is None else TimeFilter(source.window)
        self.kind = None if source.window is None else kind_of(source.window)
        self.arguments = () if source.window is None else source.window.arguments
        #: The other side never finds anything in the window: see ``holds_only_for_expired``.
        self.hides = (
            self.kind is not None
            and self.kind.holds_only_for_expired
            and query.events is EventKind.CURRENT
            and (query.rate is None or query.rate.kind is not RateKind.SNAPSHOT)
        )
        self.window: WindowOperator | None = None
        used = {c.name for e in _expressions(query) for c in columns_of(e) if c.step == step}
        fields = [f for f in self._handlers.schema if f.name in used]
        #: The attributes that anything downstream of the join reads.
        self.schema = pa.schema(fields)

    def _make_window(self, schema: pa.Schema) -> None:
        """Make the window, if any, for rows of ``schema``."""
        if self.definition is not None:
            self.window = make_window(self.definition, schema, self._timer_path)

    def handle(self, events: EventBatch, timeline: Timeline, failures: Failures) -> EventBatch:
        """Apply the handlers; the events that reach the window."""
        errors = Failures()
        going = self._handlers.process(events, timeline, errors)
        if self._times is not None:
            going = self._times.process(going, errors)
        failures.entries += [(lost, reasons, self.stream) for lost, reasons, _ in errors.entries]
        return going

    def next_time(self) -> int | None:
        """Time of the window's next timer; None without one."""
        return None if self.window is None else self.window.next_time()

    def forget(self, instances: Longs) -> None:
        """Drop these partition instances from the functions and the window."""
        self.functions.forget(instances)
        if self.window is not None:
            self.window.forget(instances)


class NumberedJoinInput(JoinSideInput):
    """A side of which only the numbers of rows go through the window.

    Rows are numbered as they pass the handlers, and are kept here.
    """

    def __init__(self, query: BoundQuery, source: BoundStream, step: int, timer_path: int) -> None:
        super().__init__(query, source, step, timer_path)
        self._make_window(_ROW_SCHEMA)
        beside = [pa.field(INSTANCE, pa.int64()), pa.field(TIME, pa.int64())]
        self.rows = RowStore(pa.schema([*self.schema, *beside]))

    def keep(self, events: EventBatch) -> Longs:
        """Keep the attributes of arriving rows of the window; returns the numbers of the rows."""
        first = self.rows.came
        columns = [events.rows.column(name) for name in self.schema.names]
        columns += [pa.array(events.instance), pa.array(events.time_ms)]
        self.rows.append(pa.RecordBatch.from_arrays(columns, schema=self.rows.schema))
        return np.arange(first, first + len(events))

    def pass_window(self, events: EventBatch, numbers: Longs, timeline: Timeline) -> EventBatch:
        """The output of the window as row numbers, in order."""
        array = pa.array(numbers, pa.int64())
        if self.window is None:
            rows = pa.RecordBatch.from_arrays([array], schema=_ROW_SCHEMA)
            return pass_nothing(events.with_rows(rows))
        rows = events.rows.append_column(ROW, array)
        return self.window.process(events.with_rows(rows), timeline)

    def snapshot(self) -> State:
        """Functions, rows and window."""
        window = State() if self.window is None else self.window.snapshot()
        rows = State(self.rows.pieces(), {"rows": self.rows.scalars()})
        functions = self.functions.snapshot()
        return namespaced({"window": window, "store": rows, "functions": functions})

    def restore(self, state: State) -> None:
        """Restore functions, rows and window."""
        self.functions.restore(subset(state, "functions"))
        if self.window is not None:
            self.window.restore(subset(state, "window"))
        rows = subset(state, "store")
        self.rows.restore(rows.pieces, rows.scalars["rows"])


def pass_nothing(events: EventBatch) -> EventBatch:
    """Without a window each event expires on arrival, and resets the aggregates."""
    count = len(events)
    kind = np.tile(_PASSING, count)
    copies = events.take(np.repeat(np.arange(count), len(_PASSING)))
    time_ms = np.where(kind == CURRENT, copies.time_ms, copies.clock_ms)
    return replace(copies, time_ms=time_ms, kind=kind)


def joined_events(source: BoundJoin) -> tuple[bool, bool]:
    """By side, whether its events are emitted if they find nothing."""
    return (
        source.kind in (JoinKind.LEFT_OUTER, JoinKind.FULL_OUTER),
        source.kind in (JoinKind.RIGHT_OUTER, JoinKind.FULL_OUTER),
    )


def _expressions(query: BoundQuery) -> Iterator[BoundExpression]:
    """All expressions of a join query that are evaluated on pairs."""
    yield from selected_expressions(query)
    source = query.input
    if isinstance(source, BoundJoin):
        within = source.within
        ends = (within.start, within.end) if within is not None else ()
        yield from (e for e in (source.on, source.per, *ends) if e is not None)
