"""Aggregators that collect values: the examples of their documentation, and removal."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.recorder import Recorder, Step, log_of

DATE = '{"date":"2013-11-19","time":"10:30"}'
LATER = '{"date":"2013-11-19","time":"12:20"}'


def results(call: str, values: list[str | None], window: str = "length(9)") -> list[str]:
    """The results of ``call`` after each event, with these values of ``s``."""
    steps: list[Step] = [("S", 1, n, float(n), one) for n, one in enumerate(values)]
    recorder = Recorder(f"from S#window.{window} select {call} as r insert into O;")
    log = log_of(steps, recorder.inputs)
    recorder.run([recorder.part(log, "S", 0, len(steps))], {"S": 10_000})
    assert len(recorder.rows) == len(values)
    return [row for *_, row in recorder.rows]


def shown(value: Any) -> str:
    return repr([value])


@pytest.mark.parametrize(
    ("call", "values", "result"),
    [
        ("str:groupConcat(s)", ["A", "B", "S", "C", "A"], "A,B,S,C,A"),
        ("str:groupConcat(s, '-', true, 'ASC')", ["A", "B", "S", "C", "A"], "A-B-C-S"),
        ("str:groupConcat(s, '-', false, 'DESC')", ["A", "B", None, "A"], "B-A-A"),
        ("str:groupConcat(k)", ["x", "y"], "0,1"),
        ("json:group(s)", [DATE, LATER], f"[{DATE},{LATER}]"),
        ("json:group(s, true)", [DATE, DATE], f"[{DATE}]"),
        ("json:group(s, 'result')", [DATE, LATER], f'{{"result":[{DATE},{LATER}]}}'),
        ("json:group(s, 'result', true)", [DATE, DATE], f'{{"result":[{DATE}]}}'),
        ("json:toString(json:groupAsObject(s, 'result'))", [DATE], f'{{"result":[{DATE}]}}'),
        ("json:toString(list:collect(s))", ["a", None, "a"], '["a",null,"a"]'),
        ("json:toString(list:collect(s, true))", ["a", "b", "a"], '["a","b"]'),
        ("json:toString(list:merge(list:create(s, 'x')))", ["a", "b"], '["a","x","b","x"]'),
        ("json:toString(list:merge(list:create(s, 'x'), true))", ["a", "b"], '["a","x","b"]'),
        ("map:toJSON(map:collect(s, k))", ["a", "b", "a"], '{"a":2,"b":1}'),
        ("map:toJSON(map:merge(map:create(s, k)))", ["a", "b"], '{"a":0,"b":1}'),
    ],
)
def test_the_documented_examples(call: str, values: list[str | None], result: str) -> None:
    assert results(call, values)[-1] == shown(result)


@pytest.mark.parametrize(
    ("percent", "count", "result"),
    [
        # The mean of two neighbours where the percentage of the count is whole, else the nearest.
        (50.0, 4, 1.5),
        (25.0, 4, 0.5),
        (100.0, 4, 3.0),
        (97.0, 10, 9.0),
        (10.0, 3, 0.0),
        (50.0, 3, 1.0),
    ],
)
def test_a_percentile_is_of_the_values_in_the_window(
    percent: float, count: int, result: float
) -> None:
    values: list[str | None] = ["x"] * count
    assert results(f"math:percentile(v, {percent})", values, "length(20)")[-1] == shown(result)


def test_an_expired_event_takes_the_oldest_equal_value_away() -> None:
    found = results("str:groupConcat(s)", ["a", "b", "a", None, "c"], "length(3)")
    assert found == [shown(one) for one in ("a", "a,b", "a,b,a", "b,a", "a,c")]


def test_a_batch_begins_with_nothing() -> None:
    steps: list[Step] = [("S", 1, n, 0.5, one) for n, one in enumerate("abcd")]
    recorder = Recorder(
        "from S#window.lengthBatch(2) select str:groupConcat(s) as r insert into O;"
    )
    log = log_of(steps, recorder.inputs)
    recorder.run([recorder.part(log, "S", 0, 4)], {"S": 10_000})
    assert [row for *_, row in recorder.rows] == [shown("a,b"), shown("c,d")]


def test_an_event_with_what_is_no_json_fails_alone() -> None:
    steps: list[Step] = [("S", 1, n, 0.5, one) for n, one in enumerate((DATE, "{", LATER))]
    recorder = Recorder("from S select json:group(s) as r insert into O;")
    log = log_of(steps, recorder.inputs)
    recorder.run([recorder.part(log, "S", 0, 3)], {"S": 10_000})
    assert [row for *_, row in recorder.rows] == [shown(f"[{DATE}]"), shown(f"[{DATE},{LATER}]")]
