"""However the input is cut, and wherever the state is stored and loaded, the output is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.errors import MeshError
from mesh.operators.base import State
from tests.support.recorder import (
    END_MS,
    EVENT,
    Log,
    Recorder,
    Step,
    at_once,
    log_of,
    run_in_pieces,
)

APPS = {
    "window": "from S#window.time(20)[v > -4.0] select k, avg(v) as a, sum(k) as t, count() as c, "
    "min(v) as lo, max(v) as hi, stdDev(v) as d group by s insert all events into O;",
    "for ever": "from S[v != 1.0] select s, sum(v) as t, min(v) as lo, max(k) as hi, avg(k) as a "
    "group by s, k having t > 0.0 insert into O;",
    "pattern": "from every e1=S[v > 0] -> e2=S[k == e1.k and v >= e1.v + 1] -> e3=S[s == e1.s] "
    "within 25 sec select e1.k, e1.v as v1, e2.v as v2, e3.v as v3 insert into O;".replace(
        "25 sec", "25 milliseconds"
    ),
    "matches that change": "from every e1=S<2:3> -> e2=T[k == e1[0].k] within 30 milliseconds "
    "select e1[0].v as v1, e1[last].v as v2, e2.v as v3 insert into O; "
    "from every e1=S -> not T[k == e1.k] for 10 milliseconds "
    "select e1.v as v1, e1.v as v2, e1.v as v3 insert into O; "
    "from every e1=S -> e2=S[k == e1.k] and e3=T[k == e1.k] select e1.v as v1, e2.v as v2, "
    "e3.v as v3 insert into O; "
    "from every e1=S, e2=S[k == e1.k]*, e3=T select e1.v as v1, e2[0].v as v2, e3.v as v3 "
    "insert into P;",
    "chain": "@info(name='a') from S#window.time(15) select k, count() as c insert all events "
    "into M; @info(name='b') from S select k, 0L as c insert into O; "
    "@info(name='c') from M#window.time(10) select k, c insert all events into O; "
    "@info(name='d') from M[k > 0] select k, c insert into O; "
    "@info(name='e') from every e1=S -> e2=M[k == e1.k] select e1.k, e2.c insert into O;",
    "output rates": "from S#window.timeLength(20, 3) select k, sum(k) as t group by k "
    "output all every 10 milliseconds insert all events into O; "
    "from S#window.session(15 millisec, s, 5 millisec) select k, count() as t "
    "output snapshot every 5 milliseconds insert all events into O; "
    "from S#window.lengthBatch(2) select k, 0L as t output first every 3 events "
    "insert all events into P;",
    "two inputs": "from every e1=S -> e2=T[k == e1.k] within 30 milliseconds "
    "select e1.k, e1.v as v1, e2.v as v2 insert into O; "
    "from T#window.time(12) select k, sum(v) as t insert expired events into P;",
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", APPS)
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(EVENT, max_size=30), data=st.data())
def test_cuts_and_restarts_change_nothing(name: str, steps: list[Step], data: Any) -> None:
    recorder = Recorder(APPS[name])
    log = log_of(steps, recorder.inputs)
    run_in_pieces(recorder, log, data, 0)
    recorder.run([], dict.fromkeys(recorder.inputs, END_MS))
    expected = at_once(APPS[name], log)
    assert sorted(recorder.rows, key=lambda row: row[0]) == expected
    assert [row[0] for row in expected] == list(range(1, len(expected) + 1))
    assert recorder.executor.outputs_count == len(expected)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", APPS)
def test_a_name_stands_for_one_content_however_the_input_is_cut(name: str) -> None:
    rng = np.random.default_rng(3)
    steps: list[Step] = [
        (
            "ST"[int(rng.integers(2))],
            int(rng.choice([0, 0, 1, 2, 5, 12, -30])),
            int(rng.integers(3)),
            float(rng.integers(-5, 9)),
            "ab"[int(rng.integers(2))],
        )
        for _ in range(300)
    ]
    seen: dict[str, pa.RecordBatch] = {}
    names = 0
    for cut in (1, 7, 40):
        recorder = Recorder(APPS[name])
        log = log_of(steps, recorder.inputs)
        for start in range(0, max(map(len, log.values())), cut):
            stops = {s: min(start + cut, len(log[s])) for s in log}
            runs = [recorder.part(log, s, start, stop) for s, stop in stops.items() if stop > start]
            clocks = {s: max(t for t, _ in log[s][:stop]) for s, stop in stops.items()}
            recorder.run(runs, clocks)
            pieces = recorder.executor.snapshot().pieces
            names += len(pieces)
            for piece, content in pieces.items():
                assert seen.setdefault(piece, content).equals(content), piece
    assert len(seen) < names


def test_a_large_window_is_stored_in_chunks_that_stay() -> None:
    text = "from S#window.time(100000) select k, sum(v) as t insert into O;"
    recorder = Recorder(text)
    before: set[str] = set()
    for step in range(20):
        log: Log = {"S": [(1000 + step, [i, 1.0, "a"]) for i in range(1000)]}
        recorder.run([recorder.part(log, "S", 0, 1000)], {"S": 1000 + step})
        pieces = {p for p in recorder.executor.snapshot().pieces if "/window/" in p}
        assert len(pieces - before) == 1
        before = pieces
    assert len(before) == 5


def test_events_wait_until_every_input_has_passed_their_time() -> None:
    recorder = Recorder(APPS["two inputs"])
    log: Log = {"S": [(1000, [1, 1.0, None])], "T": [(1001, [1, 2.0])]}
    recorder.run([recorder.part(log, "T", 0, 1)], {"S": 1000, "T": 1001})
    assert recorder.rows == []
    assert recorder.executor.next_time() == 1002
    recorder.run([recorder.part(log, "S", 0, 1)], {"S": 1001, "T": 1001})
    assert recorder.rows == []
    recorder.run([], {"S": 1002, "T": 1002})
    assert [row[1:] for row in recorder.rows] == [("O", 1001, "[1, 1.0, 2.0]")]
    assert recorder.executor.next_time() == 1013


def test_timers_fire_by_the_clock_alone() -> None:
    recorder = Recorder("from S#window.time(20) select k insert expired events into O;")
    log: Log = {"S": [(1000, [1, 1.0, None]), (1005, [2, 1.0, None])]}
    recorder.run([recorder.part(log, "S", 0, 2)], {"S": 1005})
    assert recorder.executor.next_time() == 1020
    recorder.run([], {"S": 1019})
    assert recorder.rows == []
    recorder.run([], {"S": 1020})
    assert recorder.rows == [(1, "O", 1020, "[1]")]
    recorder.run([], {"S": 2000})
    assert recorder.rows[1:] == [(2, "O", 1025, "[2]")]
    assert recorder.executor.next_time() is None


def test_a_state_of_another_format_is_refused() -> None:
    recorder = Recorder(APPS["window"])
    with pytest.raises(MeshError) as error:
        recorder.executor.restore(State({}, {"own/version": 99}))
    assert error.value.code == "MESH-O105"
