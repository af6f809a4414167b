"""Drives a single window through the steps of a case, and returns its output, call by call.

A case is a window over ``S (k string, v long, d double, t long)`` and steps as the reference
engine's program reads them. Its results are the callbacks of ``from S#window.x(..) select * insert
all events``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.model.types import Attribute, AttributeType, StreamSchema
from mesh.operators.base import CURRENT, EXPIRED, EventBatch, State, Timeline, join
from mesh.operators.windows import WindowOperator, make_window
from mesh.plan.bound import Column, Constant, Window

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

#: Where the reference engine's simulated clock begins.
START_MS = 1_570_442_400_000
DEFINITION = "define stream S (k string, v long, d double, t long);"
_COLUMNS = {
    "k": AttributeType.STRING,
    "v": AttributeType.LONG,
    "d": AttributeType.DOUBLE,
    "t": AttributeType.LONG,
}
SCHEMA: pa.Schema = StreamSchema(
    "S", tuple(Attribute(name, type) for name, type in _COLUMNS.items())
).arrow
#: A call of a query's callback: current events, expired events; each (time, attributes).
Call = tuple[list[tuple[int, list[Any]]], list[tuple[int, list[Any]]]]


@dataclass(frozen=True, slots=True)
class Case:
    """``arguments``: values; ``[name]`` for an attribute, ``{"text": s}`` for a string."""

    window: str
    arguments: list[Any]
    steps: list[dict[str, Any]]
    calls: list[Call]

    @property
    def app(self) -> str:
        """The SiddhiQL of the case."""
        parts = ", ".join(_written(a) for a in self.arguments)
        return (
            f"{DEFINITION} @info(name = 'q') from S#window.{self.window}({parts}) "
            "select * insert all events into O;"
        )

    @property
    def bound(self) -> Window:
        """The bound app, as the planner creates it."""
        return Window(self.window, tuple(_bound(a) for a in self.arguments))

    def line(self) -> str:
        """The line of its case file."""
        value = [self.window, self.arguments, self.steps, self.calls]
        return json.dumps(value, separators=(",", ":"))


def read(path: Path) -> list[Case]:
    """The cases of a file."""
    return [of_line(line) for line in path.read_text().splitlines()]


def of_line(line: str) -> Case:
    """Read a result of ``Case.line``."""
    window, arguments, steps, calls = json.loads(line)
    return Case(window, arguments, steps, [_call(call) for call in calls])


def _call(call: Any) -> Call:
    current, expired = ([(time, data) for time, data in part] for part in call)
    return current, expired


def _written(argument: Any) -> str:
    if isinstance(argument, list):
        return str(argument[0])
    if isinstance(argument, dict):
        return f"'{argument['text']}'" if "text" in argument else f"{argument['long']}L"
    return str(argument).lower() if isinstance(argument, bool) else str(argument)


def _bound(argument: Any) -> Constant | Column:
    if isinstance(argument, list):
        return Column(argument[0], _COLUMNS[argument[0]])
    if isinstance(argument, dict):
        value = argument.get("text", argument.get("long"))
        return Constant(value, AttributeType.STRING if "text" in argument else AttributeType.LONG)
    types = {bool: AttributeType.BOOL, int: AttributeType.INT, float: AttributeType.DOUBLE}
    return Constant(argument, types[type(argument)])


@dataclass(frozen=True, slots=True)
class Sent:
    """The events that one step sends with their times, at a clock; none if only time passes."""

    clock_ms: int
    events: list[tuple[int, list[Any]]]


def sent(steps: Sequence[dict[str, Any]]) -> Iterator[Sent]:
    """The steps with the clock worked out; their times count from the start."""
    now = START_MS
    for step in steps:
        if "advance_ms" in step:
            now += step["advance_ms"]
            yield Sent(now, [])
        elif "events" in step:
            yield Sent(
                now, [(now if ts is None else START_MS + ts, data) for ts, data in step["events"]]
            )
        else:
            ts = step["ts"]
            yield Sent(now, [(now if ts is None else START_MS + ts, step["data"])])


def run(case: Case, cuts: Sequence[int] | None = None, *, restores: bool = False) -> list[Call]:
    """The output; ``cuts``: the steps after which a run of the operator ends (None: all)."""
    window = make_window(case.bound, SCHEMA, timer_path=0)
    return [_of_chunk(chunk) for chunk in chunks(drive(window, case, cuts, restores=restores))]


def drive(
    window: WindowOperator, case: Case, cuts: Sequence[int] | None = None, *, restores: bool = False
) -> EventBatch:
    """All output of ``window``."""
    every = list(sent(case.steps))
    ends = range(1, len(every) + 1) if cuts is None else [*sorted(set(cuts)), len(every)]
    first, number = 0, 0
    nothing, _ = events_of([], 0)
    made = [window.process(nothing, Timeline(0, nothing.clock_ms, START_MS))]
    for end in ends:
        part = every[first:end]
        first = end
        count = sum(len(step.events) for step in part)
        events, clocks = events_of(part, number)
        now = part[-1].clock_ms if part else (int(clocks[-1]) if len(clocks) else 0)
        made.append(window.process(events, Timeline(number, clocks, now)))
        number += count
        if restores:
            state = _through_text(window.snapshot())
            window = make_window(case.bound, SCHEMA, timer_path=0)
            window.restore(state)
    return join(made, SCHEMA)


def _through_text(state: State) -> State:
    return State(state.pieces, json.loads(json.dumps(state.scalars)))


def events_of(steps: Sequence[Sent], first: int) -> tuple[EventBatch, Any]:
    times, clocks, orders, rows = [], [], [], []
    number = first
    for step in steps:
        for time, data in step.events:
            times.append(time)
            clocks.append(step.clock_ms)
            orders.append(2 * number + 1)
            rows.append(data)
        number += len(step.events)
    count = len(rows)
    columns = [list(c) for c in zip(*rows, strict=True)] if rows else [[], [], [], []]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(c, type=f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )
    zero = np.zeros(count, dtype=np.int64)
    clock_ms = np.array(clocks, dtype=np.int64)
    events = EventBatch(
        np.array(times, dtype=np.int64),
        clock_ms,
        np.array(orders, dtype=np.int64),
        zero + 1,
        zero,
        np.full(count, CURRENT, dtype=np.int8),
        zero,
        batch,
    )
    return events, clock_ms


def chunks(events: EventBatch) -> list[EventBatch]:
    """The events chunk by chunk."""
    keys = np.stack([events.order, events.clock_ms, events.path, events.chunk], axis=1)
    starts = [0, *(np.flatnonzero((keys[1:] != keys[:-1]).any(axis=1)) + 1).tolist(), len(events)]
    return [events.slice(a, b) for a, b in pairwise(starts) if b > a]


def _of_chunk(events: EventBatch) -> Call:
    rows = [list(row.values()) for row in events.rows.to_pylist()]
    times = (events.time_ms - START_MS).tolist()
    every = list(zip(times, rows, events.kind.tolist(), strict=True))
    return (
        [(time, row) for time, row, kind in every if kind == CURRENT],
        [(time, row) for time, row, kind in every if kind == EXPIRED],
    )
