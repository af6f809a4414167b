"""Patterns and sequences: cut anywhere, stored anywhere, fast or exact, the output is the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.operators.patterns import batch, conditions
from mesh.operators.patterns.evaluation import PredicateEvaluator
from tests.support.examples import examples
from tests.support.recorder import (
    END_MS,
    Log,
    Recorder,
    Step,
    at_once,
    log_of,
    run_in_pieces,
)

#: Before all events, late ones too.
START_MS = 900
TIMES = {"30 sec": "30 milliseconds", "10 sec": "10 milliseconds"}


#: Annotation with which a recorder observes the streams of a partition.
BESIDE = (
    "from O select * insert into P; from S select k insert into X; from T select k insert into X;"
)


def shape(text: str, select: str) -> str:
    for written, meant in TIMES.items():
        text = text.replace(written, meant)
    return f"from {text} select {select} insert into O;"


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

_VALUE = st.one_of(st.none(), st.floats(-5, 5).map(lambda x: round(x, 1)))
_EVENT = st.tuples(
    st.sampled_from("ST"),
    st.integers(-40, 12),
    st.one_of(st.none(), st.integers(-1, 2)),
    _VALUE,
    st.sampled_from([None, "a", "b", "null"]),
)


@pytest.mark.parametrize("name", APPS)
@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(_EVENT, max_size=30), data=st.data())
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


#: Conditions that a program can compute, and beside each the same for Python: functions of several
#: events that change nothing.
EVALUATED = {
    "chain": (
        "every e1=S[v > 0] -> e2=S[k == e1.k and {}] within 30 sec",
        "v >= e1.v + 1",
        "ifThenElse(e1.v < v, v >= e1.v + 1, false)",
    ),
    "one after the other": (
        "every (e1=S -> e2=S[{}])",
        "v > e1.v",
        "ifThenElse(v > e1.v, k == k or k is null, false)",
    ),
    "three": (
        "every e1=S -> e2=T[k == e1.k] -> e3=S[{}]",
        "s == e1.s and v != e2.v",
        "s == e1.s and ifThenElse(v != e2.v, true, v != e2.v)",
    ),
    "sequence": ("every e1=S, e2=S[{}], e3=T", "k == e1.k", "ifThenElse(k == e1.k, true, false)"),
    "counts": (
        "every e1=S<1:3> -> e2=T[{}]",
        "v > e1[last].v",
        "ifThenElse(v > e1[last].v, v == v, false)",
    ),
    "and": (
        "every (e1=S and e2=T) -> e3=S[{}]",
        "v > e2.v",
        "ifThenElse(v > e2.v, e1.k == e1.k or e1.k is null, e1 is null)",
    ),
    "or": (
        "every (e1=S or e2=T) -> e3=S[{}]",
        "not (e1 is null) and v > e1.v",
        "ifThenElse(e1 is null, false, v > e1.v)",
    ),
    "absent": (
        "every e1=S -> not T[{}] for 10 sec",
        "k == e1.k",
        "ifThenElse(k == e1.k, true, false)",
    ),
    "times": (
        "every e1=S -> e2=T[{}]",
        "eventTimestamp() > e1.k * 9 + 1000 and v > e1.v",
        "ifThenElse(v > e1.v, eventTimestamp() > e1.k * 9 + 1000, false)",
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("is_divided", [False, True])
@pytest.mark.parametrize("name", EVALUATED)
@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(_EVENT, max_size=40))
def test_what_python_computes_is_what_a_program_computes(
    name: str, is_divided: bool, steps: list[Step]
) -> None:
    text, programmed, evaluated = EVALUATED[name]
    apps = [shape(text.format(f), "e1.k, e1.v as a") for f in (programmed, evaluated)]
    if is_divided:
        apps = [f"partition with (k of S, k of T) begin {app} end; {BESIDE}" for app in apps]
    log = log_of(steps, Recorder(apps[0]).inputs)
    assert at_once(apps[1], log) == at_once(apps[0], log)


def test_functions_of_several_events_are_evaluated() -> None:
    text = shape("every e1=S -> e2=S[maximum(e1.v, v) == 3.0]", "e1.v as a, e2.v as b")
    rows = at_once(text, {"S": [(1000 + n, [n, float(n), "x"]) for n in range(5)]})
    assert [row[3] for row in rows] == ["[0.0, 3.0]", "[1.0, 3.0]", "[2.0, 3.0]"]


EVALUATIONS = {
    "every e1=S -> e2=S[maximum(e1.v, v) > e1.v]": 3999,
    "every e1=S -> e2=S[maximum(e1.v, v) == 100.0]": 100,
    "every (e1=S -> e2=S[maximum(e1.v, v) > e1.v])": 2000,
    "every e1=S, e2=S[maximum(e1.v, v) > e1.v]": 3999,
    "every e1=S<2:3> -> e2=S[maximum(e1[0].v, v) > e1[0].v]": None,
}


@pytest.mark.parametrize("text", EVALUATIONS)
def test_many_events_ask_python_at_once(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    answer = PredicateEvaluator.answer

    def counted(self: PredicateEvaluator, *arguments: Any) -> None:
        asked.append(1)
        answer(self, *arguments)

    monkeypatch.setattr(PredicateEvaluator, "answer", counted)
    count = 500 if "100.0" in text else 4000
    log = {"S": [(1000 + n, [n, float(n), "x"]) for n in range(count)]}
    rows = at_once(shape(text, "e2.k, e2.v as b"), log)
    assert EVALUATIONS[text] in (None, len(rows))
    assert len(asked) < count / 20


QUICK = [
    "every e1=S -> e2=S[v > e1.v] within 10 sec",
    "every e1=S[v > 0] -> e2=T[k == e1.k and v >= e1.v + 1] -> e3=S[e1.s == s or v > e2.v]",
    "every (e1=S -> e2=T[e1.v < v]) -> e3=S[k + 1 > e2.k] within 30 sec",
    "every e1=S[v > 0] -> not T[k == e1.k] for 10 sec",
    "e1=S<1:2> -> e2=S[v > e1[0].v] -> e3=T[e2.k <= k] within 30 sec",
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("is_divided", [False, True])
@pytest.mark.parametrize("text", QUICK)
@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(_EVENT, max_size=40))
def test_what_is_asked_first_and_taken_by_instance_changes_nothing(
    text: str, is_divided: bool, steps: list[Step]
) -> None:
    app = shape(text, "e1.k, e1.v as a")
    if is_divided:
        app = f"partition with (k of S, k of T) begin {app} end; {BESIDE}"
    log = log_of(steps, Recorder(app).inputs)
    with pytest.MonkeyPatch.context() as patch:
        quick = at_once(app, log)
        patch.setattr(batch, "REGROUPED_FROM", 0)
        assert at_once(app, log) == quick
        patch.setattr(conditions, "_is_quick", lambda *_: False)
        assert at_once(app, log) == quick


def test_what_nothing_holds_on_to_is_swept_out() -> None:
    text = shape("every e1=S, e2=S[k == e1.k + 1]", "e1.v as a, e2.v as b")
    recorder = Recorder(text)
    log = {"S": [(1000 + n, [n, float(n), "x"]) for n in range(20_000)]}
    for start in range(0, 20_000, 1000):
        recorder.run([recorder.part(log, "S", start, start + 1000)], {"S": END_MS})
    assert len(recorder.rows) == 19_999
    size = sum(piece.nbytes for piece in recorder.executor.snapshot().pieces.values())
    assert size < 20_000


def test_a_batch_writes_what_comes_and_goes() -> None:
    text = shape("every e1=S -> e2=T[k == e1.k]", "e1.s, e2.v as b")
    recorder = Recorder(text)
    waiting, batch_size = 50_000, 100
    log: Log = {
        "S": [(1000 + n, [n, float(n), "x"]) for n in range(waiting + 1000)],
        "T": [(1000 + waiting + n, [(n * 7919) % waiting, 0.0]) for n in range(1000)],
    }

    def run(first: int, last: int, *streams: str) -> None:
        runs = [recorder.part(log, stream, first, last) for stream in streams]
        recorder.run(runs, dict.fromkeys(recorder.inputs, log[streams[0]][last - 1][0]))

    def size(names: set[str]) -> int:
        return sum(pieces[name].nbytes for name in names)

    run(0, waiting, "S")
    pieces = recorder.executor.snapshot().pieces
    before = {name for name in pieces if "/match/" in name}
    whole = size(before)
    written = []
    for start in range(0, 1000, batch_size):
        if start % 200:
            run(waiting + start, waiting + start + batch_size, "S")
        else:
            run(start // 2, start // 2 + batch_size, "T")
        pieces = recorder.executor.snapshot().pieces
        after = {name for name in pieces if "/match/" in name}
        written.append(size(after - before))
        before = after
    assert len(recorder.rows) == 500
    # A bit for each waiting match, and the events, some of them together with the previous one.
    assert sum(written) / len(written) < waiting // 8 + 300 * batch_size < whole // 50
    # Events of the last moment wait for one another.
    recorder.run([], {"S": 10**6, "T": 10**6})
    pieces = recorder.executor.snapshot().pieces
    recorder.run([], {"S": 10**6 + 5, "T": 10**6 + 5})
    assert recorder.executor.snapshot().pieces.keys() == pieces.keys()
    recorder.restart()
    run(500, 1000, "T")
    recorder.run([], {"S": END_MS, "T": END_MS})
    assert len(recorder.rows) == 1000
