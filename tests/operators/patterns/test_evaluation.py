"""Conditions of patterns that Python computes: they are those of a program, and asked at once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.operators.patterns.evaluation import PredicateEvaluator
from tests.support.examples import examples
from tests.support.patterns import BESIDE, EVENT, shape
from tests.support.recorder import Recorder, Step, at_once, log_of

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
@given(steps=st.lists(EVENT, max_size=40))
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


@pytest.mark.sampled(3)
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
