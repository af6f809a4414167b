"""Patterns whose matches are aggregated: bound, run, and equal to the reference engine's output."""

from __future__ import annotations

import pytest

from mesh.testing import app_tests
from mesh.testing.app_tests import TimedEvent
from tests.support import paths
from tools import cases

CASES = cases.read(paths.CASES / "plan" / "pattern_aggregates.jsonl")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_aggregates_over_matches_equal_the_reference_engines(case: cases.Case) -> None:
    assert sum(len(rows) for rows in case.expect.values()) >= 4
    assert cases.differences(case) == []


STATEMENT = """@App:name('A')
define stream S (k string, n int);
partition with (k of S) begin
  @info(name='look')
  from S[n > 1]#rdbms:query('DS', 'b int', 'select b from t where a = ?', k)[b > 0]
  select k, n, sum(b) as total insert into T;
end;
"""


def test_a_partition_reads_the_answers_of_its_statements_by_its_keys() -> None:
    asked = [
        TimedEvent(1, "S", {"k": "x", "n": 1}),
        TimedEvent(2, "S", {"k": "x", "n": 2}),
        TimedEvent(3, "S", {"k": "y", "n": 3}),
    ]
    answers = [
        TimedEvent(at, "look_rows", {"k": k, "n": 2, "b": b})
        for at, (k, b) in enumerate([("x", 5), ("y", 7), ("x", 0), ("x", 1), ("y", 2)], 4)
    ]
    found = app_tests.play(STATEMENT, [*asked, *answers])
    emitted = [(one.stream, [*(one.event or {}).values()]) for one in found]
    assert [event for stream, event in emitted if stream == "look_call"] == [["x", 2], ["y", 3]]
    sums = [["x", 2, 5], ["y", 2, 7], ["x", 2, 6], ["y", 2, 9]]
    assert [event for stream, event in emitted if stream == "T"] == sums


JOIN = """@App:name('A')
define stream S (k string, n int);
define stream R (k string, m int);
@info(name='look')
from S[S.n > 1]#rdbms:query('DS', 'b int', 'select b from t where a = ?', k)[S.b > 0]
#window.length(2) join R#window.length(1) as r on S.k == r.k
select S.k as k, S.n as n, S.b as b, r.m as m insert into T;
"""


def test_a_side_of_a_join_reads_the_answers_of_its_statements() -> None:
    events = [
        TimedEvent(1, "S", {"k": "x", "n": 1}),
        TimedEvent(2, "S", {"k": "x", "n": 2}),
        TimedEvent(3, "R", {"k": "x", "m": 10}),
        TimedEvent(4, "look_rows", {"k": "x", "n": 2, "b": 5}),
        TimedEvent(5, "look_rows", {"k": "x", "n": 2, "b": 0}),
        TimedEvent(6, "R", {"k": "x", "m": 20}),
    ]
    found = app_tests.play(JOIN, events)
    emitted = [(one.stream, [*(one.event or {}).values()]) for one in found]
    assert emitted == [
        ("look_call", ["x", 2]), ("T", ["x", 2, 5, 10]), ("T", ["x", 2, 5, 20]),
    ]  # fmt: skip
