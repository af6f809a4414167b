"""Handlers of one input stream: filters, stream functions and the window, in the order written.

Stream functions ``S#pol2Cart(theta, rho)``, ``S#log('..')``, ``S#str:tokenize(..)``.

Each emits its input events with further attributes: all, fewer, or several for one.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from mesh.errors import MeshError
from mesh.functions.mathematics import RADIANS
from mesh.functions.objects import from_binary, object_text
from mesh.functions.strings import TOKENIZERS
from mesh.functions.vectors import (
    BATCH_BYTES_MAX,
    Room,
    from_values,
    object_values,
    python_values,
    row_sizes,
    size_of,
)
from mesh.model.types import AttributeType
from mesh.operators.base import RESET, no_rows, with_timer_path
from mesh.operators.event_functions import EVENT_FUNCTIONS, EventFunction
from mesh.operators.expressions import Frame, columns_of, compile_expression, compile_filter
from mesh.operators.failures import lost
from mesh.operators.query.late_selection import schema_needed
from mesh.operators.query.processors import PROCESSORS, StreamProcessor
from mesh.operators.windows import RowRefWindow, make_window, time_columns
from mesh.plan.bound import BoundFilter, BoundStreamFunction, Window

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mesh.functions.vectors import Mask, Vector
    from mesh.operators.base import EventBatch, Longs, Timeline
    from mesh.operators.windows import WindowOperator
    from mesh.operators.windows.python_window import PythonWindow
    from mesh.plan.bound import BoundHandler, BoundQuery, Column

    #: Columns of a query's input by the names that failures report them under.
    Named = Mapping[str, Column]
    _Function: TypeAlias = "StreamFunctionHandler | EventFunction"


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


#: Log output of ``#log``, for each event as often as it is processed.
log = logging.getLogger("mesh.events")

#: The engine's log levels, except for ``off``.
_LEVELS: Final = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
}
_KINDS: Final = ("CURRENT", "EXPIRED", "RESET")

#: The events to emit, and the columns that are added to them.
_Result = tuple["Longs | None", list["Vector"]]


class StreamFunctionHandler:
    """One stream function of a query; it keeps no state.

    ``schema``: that of its output; ``failures``: the input events of the last call that failed,
    with the reasons; failed events are not emitted.
    """

    def __init__(self, handler: BoundStreamFunction, schema: pa.Schema) -> None:
        self._arguments = [compile_expression(argument) for argument in handler.arguments]
        self._run = _find(handler)
        added = [pa.field(a.name, a.type.arrow) for a in handler.adds]
        self.schema = pa.schema([*schema, *added])
        self.failures: dict[int, str] = {}

    def process(self, events: EventBatch) -> EventBatch:
        """Compute the output events, each at the place of its input event."""
        frame = Frame.of_events(events)
        arguments = [evaluate(frame) for evaluate in self._arguments]
        chosen, columns = self._run(arguments, events, frame)
        self.failures = frame.failures
        if frame.failures:
            mask = ~lost(frame, events)
            places = np.flatnonzero(mask if chosen is None else mask[chosen])
            columns = [column.spread(_count(chosen, events)).take(places) for column in columns]
            chosen = places if chosen is None else chosen[places]
        going = events if chosen is None else events.take(chosen)
        arrays = [*going.rows.columns, *(column.to_arrow(len(going)) for column in columns)]
        return going.with_rows(pa.RecordBatch.from_arrays(arrays, schema=self.schema))


def _count(chosen: Longs | None, events: EventBatch) -> int:
    return len(events) if chosen is None else len(chosen)


def _find(handler: BoundStreamFunction) -> Callable[[list[Vector], EventBatch, Frame], _Result]:
    name = handler.name
    if name == "log":
        return _log
    if name == "pol2Cart":
        return _pol2cart
    if name == "throughput:throughput":
        return lambda arguments, events, frame: (None, [])
    if name.lower() in TOKENIZERS:
        types = [attribute.type for attribute in handler.adds]
        tokens = TOKENIZERS[name.lower()]
        return lambda arguments, events, frame: _tokens(tokens, arguments, types, events, frame)
    raise MeshError(
        "MESH-O100",
        f'stream function "{name}" has no kernel',
        detail="The planner accepted it, but this version can't compute it.",
        hint="Do manager and worker have the same version?",
    )


def _log(arguments: list[Vector], events: EventBatch, frame: Frame) -> _Result:
    """``log([priority,] [message,] [is.event.logged])``."""
    strings = [a for a in arguments if a.type is AttributeType.STRING]
    flags = [a for a in arguments if a.type is AttributeType.BOOL]
    shows_event = not flags or bool(python_values(flags[0])[0])
    priority = python_values(strings[0])[0] if len(strings) == 2 else "info"
    level = _LEVELS.get(str(priority).lower())
    if level is None or not log.isEnabledFor(level):
        return None, []
    messages = python_values(strings[-1].spread(len(events))) if strings else None
    shown = _texts(events) if shows_event else None
    for row in range(len(events)):
        parts = [object_text(messages[row])] if messages is not None else []
        if shown is not None:
            parts.append(shown[row])
        log.log(level, "%s", ", ".join(parts))
    return None, []


def _texts(events: EventBatch) -> list[str]:
    columns = [_shown(column) for column in events.rows.columns]
    rows = zip(*columns, strict=True) if columns else [()] * len(events)
    return [
        f"StreamEvent{{ timestamp={time}, data={object_text(list(row))}, type={_KINDS[kind]} }}"
        for time, kind, row in zip(events.time_ms.tolist(), events.kind, rows, strict=True)
    ]


def _shown(column: Any) -> list[object]:
    # Objects are the only binary columns.
    return list(from_binary(column)) if pa.types.is_binary(column.type) else column.to_pylist()


def _pol2cart(arguments: list[Vector], events: EventBatch, frame: Frame) -> _Result:
    """Polar coordinates, the angle in degrees, to x and y; the height passes as it is."""
    theta, rho, *height = (argument.spread(len(events)) for argument in arguments)
    missing = np.logical_or.reduce([a.null_mask for a in (theta, rho, *height)])
    for row in np.flatnonzero(missing).tolist():
        frame.failures.setdefault(row, "pol2Cart can't take null")
    angles = [value * RADIANS for value in theta.values.tolist()]
    xs = [r * _of_angle(math.cos, a) for r, a in zip(rho.values.tolist(), angles, strict=True)]
    ys = [r * _of_angle(math.sin, a) for r, a in zip(rho.values.tolist(), angles, strict=True)]
    coordinates = [from_values(values, AttributeType.DOUBLE) for values in (xs, ys)]
    return None, [*coordinates, *height]


def _of_angle(function: Callable[[float], float], angle: float) -> float:
    return function(angle) if math.isfinite(angle) else math.nan


def _tokens(
    tokens: Callable[..., list[tuple[object, ...]]],
    arguments: list[Vector],
    types: list[AttributeType],
    events: EventBatch,
    frame: Frame,
) -> _Result:
    """For each event as many outputs as ``tokens`` finds in its arguments."""
    columns = [object_values(argument.spread(frame.length)) for argument in arguments]
    # Each output has the attributes of its event once more.
    base_sizes = row_sizes(events.rows).tolist()
    room = Room(BATCH_BYTES_MAX)
    by_row: list[list[tuple[object, ...]]] = []
    for row, values in enumerate(zip(*columns, strict=True)):
        by_row.append([])
        try:
            entries = tokens(*values)
        except Exception as error:
            frame.failures.setdefault(row, str(error) or type(error).__name__)
            continue
        by_row[row] = entries
        size = sum(map(size_of, entries)) + len(entries) * base_sizes[row]
        for large, why in room.add(row, size).items():
            by_row[large] = []
            frame.failures.setdefault(large, why)
    counts = [len(entries) for entries in by_row]
    flat = [one for entries in by_row for one in entries]
    parts = zip(*flat, strict=True) if flat else [()] * len(types)
    vectors = [from_values(part, kind) for part, kind in zip(parts, types, strict=True)]
    return np.repeat(np.arange(len(by_row)), counts), vectors
