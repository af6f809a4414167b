"""Patterns and sequences: cut anywhere, stored anywhere, fast or exact, the output is the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.patterns import BESIDE, EVENT, shape
from tests.support.recorder import (
    END_MS,
    Recorder,
    Step,
    log_of,
    run_in_pieces,
)

#: Before all events, late ones too.
START_MS = 900
APPS = {
    "sequence": shape("every e1=S[v > 0], e2=S[k == e1.k], e3=T within 30 sec", "e1.k, e3.v as w"),
    "counts": shape("every e1=S<1:3> -> e2=T[k == e1[0].k]", "e1[last].k as a, e2.v as b"),
    "optional": shape("every e1=S[v > 0]*, e2=T[v > e1[last].v]?, e3=S", "e1[0].v as a, e3.v as b"),
    "absent": shape("every e1=S -> not T[k == e1.k] for 10 sec", "e1.k, e1.v"),
    "absent first": shape("every not T for 10 sec -> e1=S", "e1.s, e1.v"),
    "and": shape("every (e1=S[v > 0] and e2=T) -> e3=S[s == e1.s]", "e1.s, e2.v as w, e3.v as x"),
    "or": shape("every (e1=S or e2=T) -> e3=S[not (e1 is null)] within 30 sec", "e1.v as a, e3.v"),
    "and not": shape("every e1=S and not T for 10 sec -> e2=T[v > e1.v + 1]", "e1.v as a, e2.v"),
    "chain": shape(
        "every e1=S[v > 0] -> e2=S[k == e1.k and v >= e1.v + 1] -> e3=T[k == e1.k] within 30 sec",
        "e1.s, e2.v as w, e3.v as x",
    ),
    "times": shape(
        "every e1=S -> e2=T[eventTimestamp() > e1.k * 9 + 1000 or currentTimeMillis() % 2 == e1.k]",
        "e1.k as a, e2.v as w",
    ),
    "divided": "@purge(enable='true', interval='20 milliseconds', idle.period='25 milliseconds') "
    "partition with (k of S, k of T) begin "
    + shape("every e1=S[v > 0] -> e2=S[v > e1.v] -> e3=T within 30 sec", "e1.k, e3.v as x")
    + f" end; {BESIDE}",
    "evaluated": shape(
        "every e1=S[v > 0] -> e2=S[k == e1.k and maximum(v, e1.v) > 2.0] -> "
        "e3=T[ifThenElse(v > e2.v, e1.v > 1, k == e1.k)] within 30 sec",
        "e1.s, e2.v as w, e3.v as x",
    ),
    "evaluated counts": shape(
        "every (e1=S[v > 0]<1:2> -> e2=T[maximum(e1[0].v, v) > 2.0])", "e1[last].k as a, e2.v as b"
    ),
    "several": shape("every (e1=S -> e2=T[k == e1.k]) -> e3=S within 30 sec", "e1.k, e3.v"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", APPS)
@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(EVENT, max_size=30), data=st.data())
def test_cuts_and_restarts_change_nothing(name: str, steps: list[Step], data: Any) -> None:
    text = APPS[name]
    recorder = Recorder(text)
    log = log_of(steps, recorder.inputs)
    recorder.run([], dict.fromkeys(recorder.inputs, START_MS))
    clocks = run_in_pieces(recorder, log, data, START_MS)
    recorder.run([], dict.fromkeys(recorder.inputs, 2000))
    whole = Recorder(text)
    whole.run([], dict.fromkeys(whole.inputs, START_MS))
    whole.run([whole.part(log, s, 0, len(log[s])) for s in whole.inputs], clocks)
    whole.run([], dict.fromkeys(whole.inputs, 2000))
    assert sorted(recorder.rows) == sorted(whole.rows)


def test_what_nothing_holds_on_to_is_swept_out() -> None:
    text = shape("every e1=S, e2=S[k == e1.k + 1]", "e1.v as a, e2.v as b")
    recorder = Recorder(text)
    log = {"S": [(1000 + n, [n, float(n), "x"]) for n in range(20_000)]}
    for start in range(0, 20_000, 1000):
        recorder.run([recorder.part(log, "S", start, start + 1000)], {"S": END_MS})
    assert len(recorder.rows) == 19_999
    size = sum(piece.nbytes for piece in recorder.executor.snapshot().pieces.values())
    assert size < 20_000
