"""Events of a batch whose conditions are asked first, and that are taken by instance."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.operators.patterns import conditions, layout
from tests.support.examples import examples
from tests.support.patterns import BESIDE, EVENT, shape
from tests.support.recorder import Recorder, Step, at_once, log_of

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
@given(steps=st.lists(EVENT, max_size=40))
def test_what_is_asked_first_and_taken_by_instance_changes_nothing(
    text: str, is_divided: bool, steps: list[Step]
) -> None:
    app = shape(text, "e1.k, e1.v as a")
    if is_divided:
        app = f"partition with (k of S, k of T) begin {app} end; {BESIDE}"
    log = log_of(steps, Recorder(app).inputs)
    with pytest.MonkeyPatch.context() as patch:
        quick = at_once(app, log)
        patch.setattr(layout, "REGROUPED_FROM", 0)
        assert at_once(app, log) == quick
        patch.setattr(conditions, "_is_quick", lambda *_: False)
        assert at_once(app, log) == quick
