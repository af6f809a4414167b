"""Stream functions ``S#pol2Cart(theta, rho)``, ``S#log('..')``, ``S#str:tokenize(..)``.

Each emits its input events with further attributes: all, fewer, or several for one.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from mesh.errors import MeshError
from mesh.functions.mathematics import RADIANS
from mesh.functions.objects import from_binary, object_text
from mesh.functions.rows import from_values, object_values, python_values
from mesh.functions.sizes import BATCH_BYTES_MAX, Room, row_sizes, size_of
from mesh.functions.strings import TOKENIZERS
from mesh.model.types import AttributeType
from mesh.operators.expressions import compile_expression
from mesh.operators.failures import lost
from mesh.operators.frame import Frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from mesh.functions.vectors import Vector
    from mesh.operators.base import EventBatch, Longs
    from mesh.plan.bound import BoundStreamFunction

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
