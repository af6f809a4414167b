"""``#reorder:kslack`` and ``akslack``: the order of events, and how long they wait."""

from __future__ import annotations

import itertools
from ast import literal_eval
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.processors import pieces_of
from tests.support.recorder import Step, at_once, log_of

SLACK = """from S select k, s, convert(v, 'long') as t insert into M;
from M#reorder:kslack(t, 30L) select t insert into O;"""


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    late=st.lists(st.integers(0, 6), max_size=40),
    steps=st.lists(st.integers(0, 9), min_size=40, max_size=40),
    data=st.data(),
)
def test_events_that_are_no_later_than_one_before_are_in_order(
    late: list[int], steps: list[int], data: Any
) -> None:
    # The second event is 6 late, and so is none of the others; a new greatest time follows.
    times = [100, 94, 101, *(102 + at - one for at, one in enumerate(late))]
    events: list[Step] = [
        ("S", step, 0, float(one), "a") for one, step in zip(times, steps, strict=False)
    ]
    found = pieces_of(SLACK, events, data)
    assert sorted(row for *_, row in found) == sorted(repr([one]) for one in times)
    log = log_of(events, ("S",))["S"]
    assert found == at_once(SLACK, {"S": log})
    # Without the timeout, which lets all go.
    text = SLACK.replace("30L", "-1L, -1L, true")
    whole = at_once(text, {"S": log})
    rest = [int(row.strip("[]")) for *_, row in whole[1:]]
    assert rest == sorted(rest)
    ordered: list[Step] = [("S", 1, 0, float(one), "a") for one in sorted(set(times))]
    same = at_once(text, log_of(ordered, ("S",)))
    assert [row for *_, row in same] == [repr([one]) for one in sorted(set(times))]


def test_an_adaptive_slack_loses_nothing_and_waits_less_than_the_latest_event() -> None:
    rng = Random(1)
    times = [at * 10 - (rng.randrange(400) if rng.random() < 0.05 else 0) for at in range(600)]
    # The field deviates by 1 percent, so that few events decide its mean.
    events: list[Step] = [("S", 1, 100 + at % 3, float(one), "a") for at, one in enumerate(times)]
    log = log_of(events, ("S",))
    made = "from S select convert(v, 'long') as t, k as f insert into M; from M#reorder:"

    def released(call: str) -> list[int]:
        found = at_once(f"{made}{call} select t insert into O;", log)
        return [literal_eval(row)[0] for *_, row in found]

    fixed, adaptive = released("kslack(t)"), released("akslack(t, f, 50L)")
    # What still waits at the end is not emitted.
    assert len(adaptive) > len(fixed) > 500
    unordered = [sum(b < a for a, b in itertools.pairwise(one)) for one in (fixed, adaptive, times)]
    assert unordered == sorted(set(unordered))
    whole = released("akslack(t, f, 50L, 100000L)")
    assert sorted(whole) == sorted(times)
