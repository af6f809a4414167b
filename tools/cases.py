"""Query cases as data: an app, its input, and the reference engine's output.

A case is one JSON object a line:

    name     subject of the case
    source   origin of the expectation: the engine, its version and mode
    app      SiddhiQL
    steps    ["S", time_ms, [values]] sends one event; time_ms alone lets time pass
    expect   by stream: [time_ms, [values]] for each event, in order
    times    false when the events' times are not compared

NaN, Infinity and -Infinity are written as these words (Python's JSON).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.language.parser import parse
from mesh.operators.executor import Executor, InputRun, OutputRun
from mesh.plan.bind import bind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from mesh.model.types import StreamSchema
    from mesh.plan.bound import BoundApp

Row = tuple[int, list[Any]]


@dataclass(frozen=True, slots=True)
class Case:
    """One line of a case file."""

    name: str
    source: str
    app: str
    steps: list[Any]
    expect: dict[str, list[Any]]
    times: bool = True


def read(path: Path) -> list[Case]:
    """The cases of a file, in order."""
    with path.open() as lines:
        return [Case(**json.loads(line)) for line in lines if line.strip()]


def batch(schema: StreamSchema, rows: Sequence[Sequence[object]]) -> pa.RecordBatch:
    """Rows of values as a record batch of a stream's schema."""
    columns = zip(*rows, strict=True) if rows else [[] for _ in schema.attributes]
    arrays = [
        pa.array(list(column), attribute.type.arrow)
        for column, attribute in zip(columns, schema.attributes, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)


def values(rows: pa.RecordBatch) -> list[list[Any]]:
    """The rows of a record batch, each as a list."""
    return [list(row) for row in zip(*(c.to_pylist() for c in rows.columns), strict=True)]


def collect(runs: Iterable[OutputRun], into: dict[str, list[Row]]) -> None:
    """Add output rows to ``into``, by stream."""
    for run in runs:
        rows = zip(run.time_ms.tolist(), values(run.rows), strict=True)
        into.setdefault(run.stream, []).extend(rows)


class StepwiseFeed:
    """Feeds an executor one step at a time, as if each arrived in a batch of its own.

    With several inputs, all are known up to the millisecond after an event when it arrives.  So it
    is processed at once, as in the engine; timers of that millisecond fire with it.
    """

    def __init__(self, app: BoundApp, inputs: Iterable[str], outputs: Iterable[str]) -> None:
        self._app = app
        self._executor = Executor(app, list(outputs))
        self._clocks = dict.fromkeys(inputs, 0)
        self._sequence = 0
        self.rows: dict[str, list[Row]] = {}

    def step(self, step: Any) -> None:
        """Send one event or let time pass."""
        runs = []
        if isinstance(step, int):
            now_ms = step
        else:
            stream, now_ms, row = step
            self._sequence += 1
            schema = self._app.stream(stream)
            runs = [
                InputRun(
                    stream,
                    np.array([self._sequence]),
                    np.array([now_ms]),
                    batch(schema, [row]),
                )
            ]
        passed_ms = now_ms + (len(self._clocks) > 1 and bool(runs))
        self._clocks = {s: max(t, passed_ms) for s, t in self._clocks.items()}
        collect(self._executor.run(runs, self._clocks), self.rows)


def run(case: Case) -> dict[str, list[Row]]:
    """The executor's output for a case, by stream; only streams with an expectation."""
    app = bind(parse(case.app))
    fed = {step[0] for step in case.steps if not isinstance(step, int)}
    feed = StepwiseFeed(app, sorted(fed), case.expect)
    for step in case.steps:
        feed.step(step)
    return {stream: feed.rows.get(stream, []) for stream in case.expect}


def same(left: object, right: object) -> bool:
    """Whether two values are equal to the last bit; NaN equals itself, -0.0 does not equal 0.0."""
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    return type(left) is type(right) and bool(left == right)


def differences(case: Case) -> list[str]:
    """Differences between the executor's result and the expectation; empty if there are none."""
    app = bind(parse(case.app))
    lines = []
    for stream, rows in run(case).items():
        types = [attribute.type.value for attribute in app.stream(stream).attributes]
        expected = case.expect[stream]
        if len(rows) != len(expected):
            lines.append(f"{stream}: {len(rows)} rows, expected {len(expected)}")
        for number, ((time_ms, row), (expected_ms, expected_row)) in enumerate(
            zip(rows, expected, strict=False)
        ):
            expected_row = [
                _as(value, kind) for value, kind in zip(expected_row, types, strict=True)
            ]
            equal = all(same(a, b) for a, b in zip(row, expected_row, strict=True))
            if not equal or (case.times and time_ms != expected_ms):
                lines.append(
                    f"{stream} {number}: {time_ms} {row}, expected {expected_ms} {expected_row}"
                )
    return lines


def _as(value: Any, kind: str) -> Any:
    """Convert a JSON value: 1.0 may be float or double, and a float's text is not its double."""
    if value is None:
        return None
    if kind == "float":
        return float(np.float32(value))
    return float(value) if kind == "double" else value
