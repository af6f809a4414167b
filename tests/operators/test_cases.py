"""Operators against the reference engine, case by case."""

from __future__ import annotations

import pytest

from tests.support import paths
from tools import cases

DIRECTORY = paths.CASES / "operators"
CASES = [
    pytest.param(case, id=f"{path.stem}: {case.name} ({case.source.split(', ')[1]})")
    for path in sorted(DIRECTORY.glob("*.jsonl"))
    for case in cases.read(path)
]


@pytest.mark.parametrize("case", CASES)
def test_a_case_equals_the_reference_engine(case: cases.Case) -> None:
    assert cases.differences(case) == []


def test_a_difference_is_seen_to_the_last_bit() -> None:
    case = next(c for c in cases.read(DIRECTORY / "windows.jsonl") if c.times)
    (stream,) = case.expect
    time_ms, values = case.expect[stream][3]
    for changed in ([time_ms + 1, values], [time_ms, [*values[:-1], 1e-300]]):
        rows = [*case.expect[stream][:3], changed, *case.expect[stream][4:]]
        assert cases.differences(
            cases.Case(case.name, case.source, case.app, case.steps, {stream: rows})
        )
    assert not cases.same(0.0, -0.0)
    assert not cases.same(1, 1.0)


MIN_APP = (
    "define stream S (v double); "
    "from S#window.time(100) select min(v) as lo, max(v) as hi insert all events into O;"
)


def test_an_equal_older_value_takes_the_newer_one_away() -> None:
    # An error of Siddhi 5.1.7, kept: it forgets the second 5 when the first leaves, and then has
    # no minimum at 1110.
    steps = [["S", 1000, [5.0]], ["S", 1010, [3.0]], ["S", 1020, [5.0]], 2000]
    expect = [
        [1000, [5.0, 5.0]], [1010, [3.0, 5.0]], [1020, [3.0, 5.0]],
        [1100, [3.0, 5.0]], [1110, [None, 5.0]], [1120, [None, None]],
    ]  # fmt: skip
    assert cases.differences(cases.Case("", "mesh", MIN_APP, steps, {"O": expect})) == []


def test_group_keys_are_not_joined_as_text() -> None:
    # Siddhi 5.1.7 joins the keys with ":-:" and treats these two as one group.
    app = (
        "define stream S (a string, b string); "
        "from S select a, b, count() as n group by a, b insert into O;"
    )
    steps = [["S", 1, ["a:-:b", "c"]], ["S", 2, ["a", "b:-:c"]]]
    expect = [[1, ["a:-:b", "c", 1]], [2, ["a", "b:-:c", 1]]]
    assert cases.differences(cases.Case("", "mesh", app, steps, {"O": expect})) == []
