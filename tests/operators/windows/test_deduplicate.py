"""``#unique:deduplicate``: duplicates within a time, and where it may stand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.errors import MeshError
from mesh.language.parser import parse
from mesh.plan.bind import bind
from mesh.plan.supported import check_supported
from tests.support.examples import examples
from tests.support.processors import STEP, pieces_of
from tests.support.recorder import DEFINE, Step, at_once, log_of

#: With each, the time, and the place of the key's attribute.
QUERIES = {
    "from S#unique:deduplicate(k, 10 millisec) select k, v, s insert into O;": (10, 0),
    "from S#unique:deduplicate(s, 30) select k, v, s insert into O;": (30, 2),
    """partition with (s of S) begin
    from S#unique:deduplicate(s, 10 millisec) select k, v, s insert into O; end;
    from S[false] select k, v, s insert into O;""": (10, 2),
}
IN_FRONT = """
from S[v > 0.0]#unique:deduplicate(k, 20)#window.time(30) select s, count() as n insert into O;
"""
TOGETHER = """
from S[v > 0.0]#unique:deduplicate(k, 20) select k, v, s insert into M;
from M#window.time(30) select s, count() as n insert into O;
"""


@pytest.mark.parametrize("text", QUERIES)
@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEP, max_size=30), data=st.data())
def test_a_duplicate_within_the_time_is_dropped(text: str, steps: list[Step], data: Any) -> None:
    """ "Removes duplicate events that arrive within the time interval gap from one another." """
    span_ms, key = QUERIES[text]
    expected: list[Any] = []
    kept: dict[str, int] = {}
    for time_ms, row in log_of(steps, ("S",))["S"]:
        if "partition" in text and row[key] is None:
            continue
        name = str(row[key]).replace("None", "null")
        if name not in kept or time_ms - kept[name] > span_ms:
            kept[name] = time_ms
            expected.append((time_ms, repr(row)))
    found = at_once(text, log_of(steps, ("S",)))
    assert [(time_ms, row) for _, _, time_ms, row in found] == expected
    assert pieces_of(text, steps, data) == found


@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEP, max_size=30), data=st.data())
def test_one_before_a_window_is_a_query_before_the_window(steps: list[Step], data: Any) -> None:
    found = pieces_of(IN_FRONT, steps, data)
    assert [row[1:] for row in found] == [
        row[1:] for row in at_once(TOGETHER, log_of(steps, ("S",)))
    ]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (
            "from S#window.time(9)#unique:deduplicate(k, 9) select k insert into O;",
            "after a window",
        ),
        (
            """from S#unique:deduplicate(k, 9)#window.time(9) as a join T#window.time(9) as b
            on a.k == b.k select a.k insert into O;""",
            "in a join",
        ),
    ],
)
def test_where_one_cannot_stand_is_said(text: str, where: str) -> None:
    with pytest.raises(MeshError, match="unique:deduplicate") as refusal:
        check_supported(bind(parse(DEFINE + text)))
    assert where in str(refusal.value)
