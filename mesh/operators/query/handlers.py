"""Handlers of one input stream: filters, stream functions and the window, in the order written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.operators.base import RESET, no_rows, with_timer_path
from mesh.operators.event_functions import EVENT_FUNCTIONS, EventFunction
from mesh.operators.expressions import columns_of, compile_filter
from mesh.operators.failures import lost
from mesh.operators.frame import Frame
from mesh.operators.query.late_selection import schema_needed
from mesh.operators.query.processors import PROCESSORS, StreamProcessor
from mesh.operators.query.stream_functions import StreamFunctionHandler
from mesh.operators.windows import RowRefWindow, make_window, time_columns
from mesh.plan.bound import BoundFilter, BoundStreamFunction, Window

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mesh.functions.vectors import Mask
    from mesh.operators.base import EventBatch, Timeline
    from mesh.operators.windows import WindowOperator
    from mesh.operators.windows.python_window import PythonWindow
    from mesh.plan.bound import BoundHandler, BoundQuery, Column

    #: Columns of a query's input by the names that failures report them under.
    Named = Mapping[str, Column]
    _Function = StreamFunctionHandler | EventFunction


@dataclass(slots=True)
class Failures:
    """Events on which the query failed: input events, with the reasons and their stream.

    The stream is None for the only input, and for rows made of several events; the position of
    such a row in the total order identifies the event that caused it.
    """

    entries: list[tuple[EventBatch, list[str], str | None]] = field(default_factory=list)

    def take(
        self,
        frame: Frame,
        events: EventBatch,
        named: Named | None = None,
        stream: str | None = None,
    ) -> None:
        """Record the rows of ``events`` on which evaluation in ``frame`` failed.

        ``named``: the columns to report, if they are not the attributes of ``events``.
        ``stream``: the stream of the events, if the query has several.
        """
        if not frame.failures:
            return
        rows = sorted(frame.failures)
        texts = [frame.failures[row] for row in rows]
        if named is not None:
            columns = [frame.column(column).to_arrow(len(events)) for column in named.values()]
            # A failure report needs a column even if the select clause has none.
            columns = columns or [pa.nulls(len(events), pa.string())]
            attributes = pa.RecordBatch.from_arrays(columns, names=list(named) or ["#"])
            events = events.with_rows(attributes)
        self.entries.append((events.take(np.array(rows, dtype=np.int64)), texts, stream))


def named_columns(query: BoundQuery, names: Sequence[str]) -> Named:
    """The columns that ``query`` reads, by names as ``e1.price``; ``names``: of the steps."""
    expressions = [output.expression for output in query.outputs]
    if query.having is not None:
        expressions.append(query.having)
    columns = [column for expression in expressions for column in columns_of(expression)]
    return {
        f"{names[c.step]}{'' if c.index is None else f'[{c.index}]'}.{c.name}": c
        for c in columns
        if c.step >= 0
    }


class FilterHandler:
    """``[condition]``; events that reset aggregates pass it."""

    def __init__(self, handler: BoundFilter) -> None:
        self._passes: Callable[[Frame], Mask] = compile_filter(handler.condition)

    def process(self, events: EventBatch, failures: Failures) -> EventBatch:
        """The events for which the condition holds."""
        if not len(events):
            return events
        frame = Frame.of_events(events)
        passes = self._passes(frame)
        if frame.failures:
            passes = passes & ~lost(frame, events)
            failures.take(frame, events)
        if events.kind.any():
            passes = passes | (events.kind == RESET)
        return events.where(passes)


class TimeFilter:
    """Events whose time for ``externalTime`` and ``externalTimeBatch`` is not null; others fail."""

    def __init__(self, window: Window) -> None:
        self._names = time_columns(window)

    def process(self, events: EventBatch, failures: Failures) -> EventBatch:
        """The events that the window takes."""
        frame: Frame | None = None
        for name in self._names:
            column = events.rows.column(name)
            if not column.null_count:
                continue
            frame = frame or Frame.of_events(events)
            for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
                frame.failures.setdefault(row, f'"{name}" is null, and it is the window\'s time')
        if frame is None:
            return events
        gone = lost(frame, events)
        failures.take(frame, events)
        return events.where(~gone)


class Handlers:
    """The handlers that the events of one stream pass, in order.

    ``schema``: the attributes after all handlers. ``window``: the window among them, or None.
    ``used``: for each output the attribute that it is, or None if computed; None: all are used.
    ``expired``: whether expired events are read.
    ``needed``: a query that reads only the attributes that it names, after the window.
    """

    def __init__(
        self,
        handlers: Sequence[BoundHandler],
        schema: pa.Schema,
        timer_path: int,
        *,
        used: Sequence[str | None] | None = None,
        expired: bool = True,
        needed: BoundQuery | None = None,
    ) -> None:
        self._timer_path = timer_path
        self._steps: list[FilterHandler | TimeFilter | _Function | StreamProcessor | None] = []
        self.schema = schema
        self.window: WindowOperator | None = None
        for handler in handlers:
            match handler:
                case BoundFilter():
                    self._steps.append(FilterHandler(handler))
                case BoundStreamFunction() if handler.name in PROCESSORS:
                    processor = StreamProcessor(handler, self.schema, timer_path)
                    self.schema = processor.schema
                    self._steps.append(processor)
                case BoundStreamFunction():
                    has_state = handler.name in EVENT_FUNCTIONS
                    make = EventFunction if has_state else StreamFunctionHandler
                    function = make(handler, self.schema)
                    self.schema = function.schema
                    self._steps.append(function)
                case Window():
                    fields = self.schema if needed is None else schema_needed(self.schema, needed)
                    self.window = make_window(
                        handler, fields, timer_path, expired=expired, used=used, late=bool(needed)
                    )
                    self._steps += [TimeFilter(handler), None]

    @property
    def are_filters(self) -> bool:
        """Whether all are filters, but for a window at the end that a selector follows."""
        steps = self._steps[:-1] if isinstance(self.window, RowRefWindow) else self._steps
        return all(isinstance(step, FilterHandler | TimeFilter) for step in steps)

    @property
    def stateful(self) -> list[PythonWindow | EventFunction]:
        """The stream functions with a state, in order."""
        functions: list[PythonWindow | EventFunction] = []
        for step in self._steps:
            if isinstance(step, StreamProcessor):
                functions.append(step.window)
            elif isinstance(step, EventFunction):
                functions.append(step)
        return functions

    def before_window(self, events: EventBatch, failures: Failures) -> EventBatch:
        """The events that reach the window, which is the last handler."""
        for step in self._steps[:-1]:
            if isinstance(step, FilterHandler | TimeFilter):
                events = step.process(events, failures)
            elif isinstance(step, StreamFunctionHandler | EventFunction):
                events = _computed(step, events, failures)
        return events

    def process(self, events: EventBatch, timeline: Timeline, failures: Failures) -> EventBatch:
        """The events after all handlers, and those that the window's timers cause."""
        for step in self._steps:
            if isinstance(step, FilterHandler | TimeFilter):
                events = step.process(events, failures)
            elif isinstance(step, StreamProcessor):
                before, events = events, step.process(events, timeline)
                failures.take(_failed(step.failures, len(before)), before)
            elif step is None:
                assert self.window is not None, "None is the window's step"
                events = with_timer_path(self.window.process(events, timeline), self._timer_path)
            else:
                events = _computed(step, events, failures)
        return events


def _computed(step: _Function, events: EventBatch, failures: Failures) -> EventBatch:
    if not len(events):
        return events.with_rows(no_rows(step.schema))
    output = step.process(events)
    failures.take(_failed(step.failures, len(events)), events)
    return output


def _failed(failures: dict[int, str], length: int) -> Frame:
    frame = Frame(length, {})
    frame.failures = failures
    return frame
