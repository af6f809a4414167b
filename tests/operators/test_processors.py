"""Stream functions with a state: what they emit, cut anywhere and restored anywhere."""

from __future__ import annotations

import itertools
import math
from ast import literal_eval
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.errors import MeshError
from mesh.language.parser import parse
from mesh.plan.bind import bind
from mesh.plan.supported import check_supported
from tests.support.examples import examples
from tests.support.recorder import DEFINE, END_MS, Recorder, Step, at_once, log_of, run_in_pieces

#: Events at rising times.
STEP = st.tuples(
    st.just("S"),
    st.integers(0, 12),
    st.one_of(st.none(), st.integers(-1, 2)),
    st.one_of(st.none(), st.floats(-5, 5).map(lambda x: round(x, 1))),
    st.sampled_from([None, "a", "b", "null"]),
)
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


def pieces_of(text: str, steps: list[Step], data: Any) -> list[Any]:
    recorder = Recorder(text)
    log = log_of(steps, recorder.inputs)
    run_in_pieces(recorder, log, data, 1000)
    recorder.run([], dict.fromkeys(recorder.inputs, END_MS))
    return sorted(recorder.rows, key=lambda row: row[0])


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


def ranked(rows: list[list[Any]], count: int, *, rarest: bool) -> list[Any]:
    """The values of ``s`` with their counts, most frequent first, of equal ones the first."""
    counts: dict[Any, int] = {}
    for row in rows:
        counts[row[2]] = counts.get(row[2], 0) + 1
    order = sorted(counts, key=lambda value: counts[value] if rarest else -counts[value])
    found = [part for value in order[:count] for part in (value, counts[value])]
    return found + [None] * (2 * count - len(found))


def changes(batches: list[list[list[Any]]], *, rarest: bool) -> list[str]:
    """Output for batches: ``k`` of the last event with two ranks, where they are others."""
    made, before = [], None
    for rows in batches:
        ranks = ranked(rows, 2, rarest=rarest)
        if ranks != before:
            made.append(repr([rows[-1][0], *ranks]))
        before = ranks
    return made


@pytest.mark.parametrize("side", ["Top", "Bottom"])
@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEP, max_size=40), data=st.data())
def test_the_ranks_of_a_batch_are_those_of_its_values(
    side: str, steps: list[Step], data: Any
) -> None:
    added = ", ".join(f"{side}{n}{what}" for n in (1, 2) for what in ("Element", "Frequency"))
    log = log_of(steps, ("S",))["S"]
    rows, rarest = [row for _, row in log], side == "Bottom"
    text = f"from S#extrema:{side.lower()}KLengthBatch(s, 4, 2) select k, {added} insert into O;"
    found = pieces_of(text, steps, data)
    batches = [rows[at : at + 4] for at in range(0, len(rows) - 3, 4)]
    assert [row for *_, row in found] == changes(batches, rarest=rarest)
    text = f"from S#extrema:{side.lower()}KTimeBatch(s, 30, 2) select k, {added} insert into O;"
    found = pieces_of(text, steps, data)
    # Periods without events give nothing.
    periods: dict[int, list[list[Any]]] = {}
    for time_ms, row in log:
        periods.setdefault((time_ms - log[0][0]) // 30, []).append(row)
    assert [row for *_, row in found] == changes(list(periods.values()), rarest=rarest)


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


def test_a_priority_sinks_until_it_is_gone() -> None:
    text = """from S#priority:time(s, k, 10 millisec)
    select s, priorityKey as p, currentPriority as c insert into O;"""
    events: list[Step] = [("S", 0, 2, 0.0, "a"), ("S", 5, 0, 0.0, "b"), ("S", 3, 1, 0.0, "a")]
    found = [(time_ms, row) for _, _, time_ms, row in at_once(text, log_of(events, ("S",)))]
    assert found == [
        (1000, "['a', 'a', 2]"),
        (1005, "['b', 'b', 0]"),
        (1008, "['a', 'a', 3]"),
        (1018, "['a', 'a', 2]"),
        (1028, "['a', 'a', 1]"),
        (1038, "['a', 'a', 0]"),
    ]


def test_the_extremes_of_a_wave_are_found_once() -> None:
    wave = [round(10 * math.sin(at / 5), 3) for at in range(120)]
    events: list[Step] = [("S", 1, at, value, "a") for at, value in enumerate(wave)]
    for call in ("kernelMinMax(v, 3, 14, 'minmax')", "kalmanMinMax(v, 1.0, 0.01, 25, 'minmax')"):
        text = f"from S#extrema:{call} select k, v, extremaType as e insert into O;"
        rows = [literal_eval(row) for *_, row in at_once(text, log_of(events, ("S",)))]
        assert len(rows) >= 6
        assert len({k for k, _, _ in rows}) == len(rows)
        assert all((v > 9.8) if e == "max" else (v < -9.8) for _, v, e in rows), call


@pytest.mark.parametrize(
    "text",
    [
        (
            "from S select k, s, convert(v, 'long') as t, v insert into M; "
            "from M#reorder:akslack(t, v, 15L, 9L, 4L, true, 0.1, 0.9) select s, t as c, 'x' as e "
            "insert into O;"
        ),
        "from S#priority:time(s, k, 7) select s, currentPriority as c, 'x' as e insert into O;",
        (
            "from S#extrema:kernelMinMax(v, 1, 5, 'minmax') select s, k as c, extremaType as e "
            "insert into O;"
        ),
        (
            "from S#timeseries:kalmanMinMax(v, 0.1, 0.1, 21, 'max') select s, k as c, "
            "extremaType as e insert into O;"
        ),
    ],
)
@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEP, max_size=40), data=st.data())
def test_those_that_keep_events_are_cut_and_restored_anywhere(
    text: str, steps: list[Step], data: Any
) -> None:
    assert pieces_of(text, steps, data) == at_once(text, log_of(steps, ("S",)))


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


def test_a_measurement_of_the_original_lets_the_events_pass() -> None:
    steps: list[Step] = [("S", 1, n, 0.5, "a") for n in range(3)]
    text = "from S#throughput:throughput(k, 3000, 'both', 6) select k insert into O;"
    assert [row for *_, row in at_once(text, log_of(steps, ("S",)))] == ["[0]", "[1]", "[2]"]


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
