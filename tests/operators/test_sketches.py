"""Ranks of values: those of a search among all values, and in time."""

from __future__ import annotations

import math
import time
from ast import literal_eval

from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.operators.base import CURRENT, EXPIRED
from mesh.operators.event_functions.sketches import Ranks
from tests.support.examples import examples
from tests.support.recorder import END_MS, Log, Recorder, at_once

START_MS = 1000


@settings(max_examples=examples(200), deadline=None)
@given(
    sign=st.sampled_from([-1, 1]),
    count=st.integers(1, 3),
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=40),
)
def test_ranks_are_those_of_a_search_among_all_values(
    sign: int, count: int, steps: list[tuple[bool, int]]
) -> None:
    own = Ranks(count, sign)
    for leaves, value in steps:
        # One that is made from a state searches.
        other = Ranks(count, sign)
        other.load_dump(own.dump())
        kind = EXPIRED if leaves else CURRENT
        assert own.step((value,), kind, 0) == other.step((value,), kind, 0)
        assert own.dump() == other.dump()


def test_many_values_are_ranked_in_time() -> None:
    own = Ranks(2, -1)
    started = time.thread_time()
    for number in range(30_000):
        own.step((number,), CURRENT, 0)
    # A search for each event takes a minute.
    assert time.thread_time() - started < 3


def test_a_number_that_is_none_has_one_rank() -> None:
    text = "from S#extrema:topK(v, 1) select Top1Frequency as a insert into O;"
    log: Log = {"S": [(START_MS + at, [0, v, ""]) for at, v in enumerate([math.nan, 1.0] * 3)]}
    recorder = Recorder(text)
    for at, (time_ms, _) in enumerate(log["S"]):
        recorder.run([recorder.part(log, "S", at, at + 1)], {"S": time_ms})
        recorder.restart()
    recorder.run([], {"S": END_MS})
    assert [literal_eval(row) for *_, row in recorder.rows] == [[1], [2], [3]]
    assert sorted(recorder.rows) == at_once(text, log)
