"""``unique:..`` windows: as the engine's where keys never repeat, as documented where they do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.errors import MeshError
from mesh.language.parser import parse
from mesh.plan.bind import bind
from mesh.plan.supported import check_supported
from tests.support import windows_driver as driver
from tests.support.examples import examples
from tests.support.paths import CASES
from tests.support.processors import STEP, pieces_of
from tests.support.recorder import DEFINE, Step, at_once, log_of

DIRECTORY = CASES / "windows"
EXTENSIONS = DIRECTORY / "extensions"
#: Windows of the engine, with the argument before which the key stands in those of the extension.
SAME = {
    "length": ("unique:length",),
    "time": ("unique:time",),
    "lengthBatch": ("unique:lengthBatch", "unique:firstLengthBatch"),
    "timeBatch": ("unique:timeBatch", "unique:firstTimeBatch"),
    "externalTimeBatch": ("unique:externalTimeBatch",),
}

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


def numbered(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The steps with another ``v`` in each event, which has the time of its arrival."""
    made, count = [], 0
    for step in steps:
        if "data" in step:
            k, _, d, t = step["data"]
            made.append({"data": [k, count, d, t], "ts": None})
            count += 1
        elif "events" in step:
            rows = [data for _, data in step["events"]]
            events = [[None, [k, count + i, d, t]] for i, (k, _, d, t) in enumerate(rows)]
            made.append({**step, "events": events})
            count += len(events)
        else:
            made.append(step)
    return made


def by_number(calls: list[driver.Call], engine: str) -> list[Any]:
    """Batches without their order, that of a map, and without the time, that of the batch."""
    if "Batch" not in engine:
        return calls
    return [
        (sorted(row[1] for _, row in current), sorted((row[1], time) for time, row in expired))
        for current, expired in calls
    ]


@pytest.mark.parametrize(("engine", "unique"), [(e, u) for e, us in SAME.items() for u in us])
def test_a_window_of_keys_that_never_repeat_is_the_engines(engine: str, unique: str) -> None:
    compared = 0
    for case in driver.read(DIRECTORY / f"{engine}.jsonl"):
        size, *others = case.arguments
        if len(others) > 1 or any(isinstance(one, bool) for one in others):
            continue
        if size == 0 or (isinstance(size, dict) and size["long"] == 0):
            continue
        with_keys = replace(case, steps=numbered(case.steps))
        ours = replace(with_keys, window=unique, arguments=[["v"], size, *others])
        expected = driver.run(with_keys)
        assert by_number(driver.run(ours), engine) == by_number(expected, engine), case.app
        compared += len(expected)
    assert compared > 20


def held(calls: list[driver.Call]) -> list[list[Any]]:
    """The events in a sliding window after each call."""
    window: list[Any] = []
    states = []
    for current, expired in calls:
        for _, row in expired:
            if row in window:
                window.remove(row)
        window += [row for _, row in current]
        states.append(list(window))
    return states


@pytest.mark.parametrize("name", ["ever", "length", "time"])
def test_a_sliding_window_holds_the_latest_event_of_each_key(name: str) -> None:
    for case in driver.read(EXTENSIONS / f"unique-{name}.jsonl"):
        if case.arguments[1:] == [0]:
            continue
        attributes = ["kvdt".index(a[0]) for a in case.arguments if isinstance(a, list)]
        size = case.arguments[-1] if name == "length" else None
        # Events that are sent at once would be one call.
        single = [step for step in case.steps if "events" not in step]
        for rows in held(driver.run(replace(case, steps=single))):
            keys = [tuple(row[a] for a in attributes) for row in rows]
            assert len(set(keys)) == len(keys), case.app
            assert size is None or len(keys) <= size


def sent(*rows: tuple[str, int]) -> list[dict[str, Any]]:
    return [{"data": [k, v, 0.5, 0], "ts": None} for k, v in rows]


@pytest.mark.parametrize(
    ("window", "arguments", "emitted", "expired"),
    [
        # "the previous event expires and new event is kept within the window"
        ("unique:length", [["k"], 10], [1, 2, 3, 4, 5], [1, 3]),
        ("unique:length", [["k"], 1], [1, 2, 3, 4, 5], [1, 2, 3, 4]),
        # "the existing event expires, and is replaced with the latest one"
        ("unique:ever", [["k"]], [1, 2, 3, 4, 5], [1, 3]),
        # "When a new event arrives with a key that is already in the window, that event is not
        # processed by the window."
        ("unique:first", [["k"]], [1, 2, 5], []),
        # "the previous event is replaced by the new event"
        ("unique:lengthBatch", [["k"], 3], [4, 2, 5], []),
        ("unique:firstLengthBatch", [["k"], 3], [1, 2, 5], []),
    ],
)
def test_the_documented_examples(
    window: str, arguments: list[Any], emitted: list[int], expired: list[int]
) -> None:
    steps = sent(("a", 1), ("b", 2), ("a", 3), ("a", 4), ("c", 5))
    calls = driver.run(driver.Case(window, arguments, steps, []))
    assert [row[1] for current, _ in calls for _, row in current] == emitted
    assert [row[1] for _, gone in calls for _, row in gone] == expired


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
