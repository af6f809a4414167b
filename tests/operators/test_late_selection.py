"""A selector that follows its window by row numbers agrees with one that reads its events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.language.parser import parse
from mesh.operators.executor import Executor
from mesh.operators.query.late_selection import can_select_late
from mesh.operators.select import groups, selector
from mesh.plan.bind import bind
from tests.support.recorder import DEFINE, END_MS, Recorder, at_once, log_of

if TYPE_CHECKING:
    import pyarrow as pa

    from tests.support.recorder import Step

WINDOWS = (
    "length(3)",
    "time(12)",
    "externalTime(t, 12)",
    "timeLength(12, 3)",
    "lengthBatch(3)",
    "lengthBatch(3, true)",
    "timeBatch(12)",
    "timeBatch(12, 3, true)",
    "externalTimeBatch(t, 12)",
    "batch()",
)
SELECTS = {
    "aggregates": "select k, s, v, avg(v) as a, sum(k) as t, count() as c, min(v) as lo, "
    "max(k) as hi, stdDev(v) as d, minForever(v) as f, sum(v) / count() + k as e",
    "by text": "select s, sum(v) as t, count(k) as c, max(v + 1.0) as hi group by s",
    "by two": "select k, s, min(k) as lo, avg(k) as a group by s, k",
    "columns": "select v, k, s",
    "count alone": "select count() as c",
    "groups alone": "select s, k group by k",
    "ordered": "select k, sum(v) as t group by s order by t desc, k limit 2",
    "having": "select k, sum(v) as t group by k having t > 0.0 and k > 0",
}
#: ``t`` for windows by an attribute: it rises as the events' own times do.
TIMED = "define stream E (k int, v double, s string, t long); "
LOGGED = "from S select k, v, s, eventTimestamp() as t insert into E; "
_EVENT = st.tuples(
    st.just("S"),
    st.integers(-40, 12),
    st.one_of(st.none(), st.integers(-1, 3)),
    st.one_of(st.none(), st.floats(-5, 5).map(lambda x: round(x, 1))),
    st.sampled_from([None, "a", "b", "null"]),
)


def text_of(window: str, select: str, is_partitioned: bool) -> str:
    query = f"from E#window.{window} {SELECTS[select]} insert into O;"
    if is_partitioned:
        query = f"partition with (k of E) begin {query} end;"
    return LOGGED + query


def text_and_whether(window: str, select: str, is_partitioned: bool) -> tuple[str, bool]:
    """The app, and whether its query follows its window."""
    text = TIMED + text_of(window, select, is_partitioned)
    app = bind(parse(DEFINE + text))
    queries = [*app.queries, *(q for p in app.partitions for q in p.queries)]
    query = next(q for q in queries if q.target.name == "O")
    source: Any = query.input
    return text, can_select_late(query, source)


#: Groups that are as if they had never been are dropped at once.
FEW_GROUPS = patch("mesh.operators.select.selector._SPARE_GROUPS", 1)
CASES = [
    (window, select, is_partitioned)
    for window in WINDOWS
    for select in SELECTS
    for is_partitioned in (False, True)
    if not is_partitioned or select in ("aggregates", "by text", "groups alone", "ordered")
]


class Outputs(Recorder):
    """A recorder of ``O``, also if a query inside a partition emits it."""

    def __init__(self, text: str) -> None:
        self.app = bind(parse(DEFINE + text))
        self.inputs = ("S",)
        self.outputs = ("O",)
        self.executor = Executor(self.app, self.outputs)
        self.rows = []


def run(text: str, steps: list[Step], cuts: list[tuple[int, bool]]) -> list[Any]:
    """The rows of O when the input is cut by ``cuts``, with a store and a load at each cut."""
    recorder = Outputs(text)
    log = log_of(steps, recorder.inputs)
    at = clock = 0
    for length, restarts in cuts:
        stop = min(at + length, len(log["S"]))
        clock = max([clock, *(t for t, _ in log["S"][at:stop])])
        recorder.run([recorder.part(log, "S", at, stop)] if stop > at else [], {"S": clock})
        at = stop
        if restarts:
            recorder.restart()
    if at < len(log["S"]):
        clock = max(t for t, _ in log["S"])
        recorder.run([recorder.part(log, "S", at, len(log["S"]))], {"S": clock})
    recorder.run([], {"S": END_MS})
    return recorder.rows


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("window", "select", "is_partitioned"), CASES)
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=st.lists(_EVENT, max_size=40),
    cuts=st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=8),
)
def test_the_same_goes_on_whichever_way_is_taken(
    window: str, select: str, is_partitioned: bool, steps: list[Step], cuts: list[Any]
) -> None:
    text, _ = text_and_whether(window, select, is_partitioned)
    with FEW_GROUPS:
        found = run(text, steps, cuts)
    with patch("mesh.operators.query.stream.can_select_late", lambda query, source: False):
        assert found == run(text, steps, [])
        if "group by" in text:
            with FEW_GROUPS:
                assert found == run(text, steps, cuts)


def test_most_are_followed() -> None:
    ways = {case: text_and_whether(*case)[1] for case in CASES}
    refused = {(window, select) for (window, select, _), follows in ways.items() if not follows}
    assert {select for _, select in refused} == {"having"}
    assert not any("Batch" not in window and window != "batch()" for window, _ in refused)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("is_partitioned", [False, True])
@pytest.mark.parametrize("window", WINDOWS)
def test_a_name_stands_for_one_content_however_the_input_is_cut(
    window: str, is_partitioned: bool, few: bool
) -> None:
    rng = np.random.default_rng(3)
    steps: list[Step] = [
        ("S", int(rng.choice([0, 0, 1, 2, 5, 12, -30])), int(rng.integers(3)),
         float(rng.integers(-5, 9)), "ab"[int(rng.integers(2))])
        for _ in range(200)
    ]  # fmt: skip
    seen: dict[str, pa.RecordBatch] = {}
    text, _ = text_and_whether(window, "by text", is_partitioned)
    if few:
        FEW_GROUPS.start()
    for cut in (3, 7, 40):
        recorder = Outputs(text)
        log = log_of(steps, recorder.inputs)["S"]
        for start in range(0, len(log), cut):
            stop = min(start + cut, len(log))
            clock = max(t for t, _ in log[:stop])
            recorder.run([recorder.part({"S": log}, "S", start, stop)], {"S": clock})
            for piece, content in recorder.executor.snapshot().pieces.items():
                assert seen.setdefault(piece, content).equals(content), piece
    if few:
        FEW_GROUPS.stop()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", ["insert into O", "insert all events into O"])
@pytest.mark.parametrize("key", ["k", "s", "s, k"])
def test_groups_that_have_left_the_window_are_dropped(
    way: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "_SPARE", 4096)
    monkeypatch.setattr(selector, "_SPARE_GROUPS", 4096)
    count, step = 24_000, 4_000
    query = f"from S#window.length(10) select k, sum(k) as t, max(k) as m group by {key} {way};"
    recorder = Outputs(query)
    for start in range(0, count, step):
        log = [(1000 + n, [n, 1.0, f"text {n}"]) for n in range(start, start + step)]
        part = recorder.part({"S": log}, "S", 0, step)
        (out,) = recorder.executor.run([part], {"S": 1000 + start + step})
        current = [row for row in out.rows.to_pylist() if row["t"] is not None]
        assert current == [{"k": n, "t": n, "m": n} for n in range(start, start + step)]
    pieces = recorder.executor.snapshot().pieces
    assert sum(piece.num_rows for piece in pieces.values()) < 2 * count // 3
    recorder.restart()
    log = [(END_MS, [5, 1.0, "text 5"])]
    (out,) = recorder.executor.run([recorder.part({"S": log}, "S", 0, 1)], {"S": END_MS})
    assert {"k": 5, "t": 5, "m": 5} in out.rows.to_pylist()


def test_rows_that_stay_long_cost_no_room_for_those_that_left() -> None:
    """One key's rows stay while another's are replaced: the kept rows are compacted."""
    query = "from S#window.length(2) select k, sum(v) as t insert into O;"
    text = f"partition with (k of S) begin {query} end;"
    log = [(1000, [1, 1.0, "a"])] + [(1000 + n, [2, 1.0, "a"]) for n in range(1, 300_000)]
    recorder = Outputs(text)
    for start in range(0, len(log), 50_000):
        part = recorder.part({"S": log}, "S", start, start + 50_000)
        recorder.executor.run([part], {"S": 1000 + start + 50_000})
    pieces = recorder.executor.snapshot().pieces
    assert sum(piece.num_rows for piece in pieces.values()) < 150_000
    log = [(END_MS, [1, 5.0, "a"])]
    (out,) = recorder.executor.run([recorder.part({"S": log}, "S", 0, 1)], {"S": END_MS})
    assert out.rows.to_pylist() == [{"k": 1, "t": 6.0}]


def test_at_once_is_as_before() -> None:
    text = "from S#window.length(2) select k, sum(v) as t insert into O;"
    log = log_of([("S", 1, 1, 1.0, "a"), ("S", 1, 1, 2.0, "a"), ("S", 1, 1, 4.0, "a")], ("S",))
    assert [row[3] for row in at_once(text, log)] == ["[1, 1.0]", "[1, 3.0]", "[1, 6.0]"]
