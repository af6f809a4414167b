"""Events without the attribute that is a window's time fail, as in the reference engine.

Each was played in Siddhi 5.1.7: it logs a NullPointerException and drops the event.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from mesh.language.parser import parse
from mesh.operators.executor import ExecutionMode, Executor, InputRun
from mesh.operators.failures import FAILED
from mesh.plan.bind import bind
from tools.cases import batch, values

ROWS: list[list[Any]] = [[1000, 1], [None, 2], [1100, 3], [2500, 4], [None, 5], [3600, 6]]
SLIDING = [[1000, 1], [1100, 2], [2500, 1], [3600, 1]]
JOIN = (
    "from S#window.externalTime(ts, 1 sec) as a join S#window.length(1) as b on a.v == b.v "
    "select a.ts as ts, a.v as n insert into O;"
)
NAMED = (
    "define window W (ts long, v int) externalTime(ts, 1 sec) output current events; "
    "from S insert into W; from W select ts, v as n insert into O;"
)
QUERY = "from S#window.{}(ts, 1 sec) select ts, count() as n insert into O;"
APPS: dict[str, tuple[str, list[Any]]] = {
    "externalTime": (QUERY.format("externalTime"), SLIDING),
    "externalTimeBatch": (QUERY.format("externalTimeBatch"), [[1100, 2], [2500, 1]]),
    "named window": (NAMED, [[1000, 1], [1100, 3], [2500, 4], [3600, 6]]),
    "join": (JOIN, []),
}


@pytest.mark.parametrize("mode", [ExecutionMode.AUTO, ExecutionMode.STEP])
@pytest.mark.parametrize("app", APPS)
def test_an_event_without_a_time_fails_and_is_not_counted(app: str, mode: ExecutionMode) -> None:
    text, expected = APPS[app]
    bound = bind(parse(f"define stream S (ts long, v int); {text}"))
    executor = Executor(bound, ["O", FAILED], mode=mode)
    rows = batch(bound.stream("S"), ROWS)
    times = np.arange(len(ROWS)) + 10_000
    run = InputRun("S", np.arange(len(ROWS)), times, rows)
    out: dict[str, list[Any]] = {"O": [], FAILED: []}
    for made in executor.run([run], {"S": int(times[-1]) + 1}):
        out[made.stream] += values(made.rows)
    if expected:
        assert out["O"] == expected
    failed = [(reason, json.loads(event)["v"]) for _, _, reason, event in out[FAILED]]
    assert failed == [('"ts" is null, and it is the window\'s time', v) for v in (2, 5)]
