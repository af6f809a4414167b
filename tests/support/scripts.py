"""Functions of apps, evaluated without an app."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa

from mesh.functions.scripts import compile_scripts
from mesh.functions.vectors import python_values
from mesh.language.parser import parse
from mesh.operators.base import EventBatch
from mesh.operators.expressions import Environment, Frame, compile_expression, using
from mesh.plan.bind import bind

STREAM = "define stream S (i int, d double, s string, b bool); "
ROWS: list[dict[str, Any]] = [
    {"i": 1, "d": 0.5, "s": "a,b", "b": True},
    {"i": None, "d": math.nan, "s": None, "b": None},
    {"i": 0, "d": None, "s": "", "b": False},
    {"i": 4, "d": 2.0, "s": "c,c", "b": True},
]


def events_of(rows: pa.RecordBatch) -> EventBatch:
    count = rows.num_rows
    none = np.zeros(count, dtype=np.int64)
    order = 2 * np.arange(count) + 1
    return EventBatch(none, none, order, none, none, none.astype(np.int8), none, rows)


def evaluated(functions: str, call: str, rows: list[dict[str, Any]]) -> tuple[list[Any], Any]:
    app = bind(parse(f"{STREAM}{functions} from S select {call} as r insert into Out;"))
    with using(Environment(compile_scripts(app.scripts))):
        evaluate = compile_expression(app.queries[0].outputs[0].expression)
    batch = pa.RecordBatch.from_pylist(rows, app.stream("S").arrow)
    frame = Frame.of_events(events_of(batch))
    return python_values(evaluate(frame).spread(len(rows))), frame.failures
