"""Calls evaluated on rows, with the failures of these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from mesh.functions.vectors import python_values
from mesh.language.parser import parse
from mesh.operators.base import EventBatch
from mesh.operators.expressions import Frame, compile_expression
from mesh.plan.bind import bind

STREAM = "define stream S (s string, n int, o object); "


def evaluated(call: str, rows: list[dict[str, Any]]) -> tuple[list[Any], dict[int, str]]:
    bound = bind(parse(f"{STREAM}from S select {call} as r insert into Out;"))
    columns = pa.RecordBatch.from_pylist(
        [{"s": None, "n": None, "o": None} | row for row in rows], bound.stream("S").arrow
    )
    none = np.zeros(len(rows), dtype=np.int64)
    events = EventBatch(none, none, none, none, none, none.astype(np.int8), none, columns)
    frame = Frame.of_events(events)
    vector = compile_expression(bound.queries[0].outputs[0].expression)(frame)
    return python_values(vector.spread(len(rows))), frame.failures
