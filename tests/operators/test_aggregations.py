"""Incremental aggregations: exact for any cut of the input, and equal to a plain model of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.language.parser import parse, parse_on_demand_query
from mesh.language.syntax import TimeUnit
from mesh.model.types import AttributeType
from mesh.operators.aggregations.find import find, find_on_demand, groups_with
from mesh.operators.aggregations.times import time_of
from mesh.operators.executor import ExecutionMode, Executor
from mesh.operators.state_migration import remap
from mesh.plan.bind import bind
from mesh.plan.bind.on_demand import bind_on_demand
from mesh.plan.bound import Constant
from tests.support.aggregations import APP, SELECT, add, few_cells, new_aggregation, random
from tests.support.examples import examples
from tests.support.recorder import EVENT, Log, Recorder, Step, log_of, run_in_pieces, stored
from tools.cases import batch

__all__ = ("few_cells",)

#: Times of ``log_of`` are spread by this, so that buckets end between events.
_SPREAD = 97
_END_MS = 1_000_000_000
_FOUND = "s, A.t as t, a, c, lo, hi, n, last, word, more"
_MADE = "define stream M (k int, v double, s string, ts long); "
_MAKE = "from S select k, v, s, k * 1700L as ts insert into M; "
APPS = {
    "by arrival": f"define aggregation A from S[v != 1.0] {SELECT} aggregate every sec...hour; "
    f"from T join A on A.hi >= T.k within 0L, 100000000L per 'hours' select T.k, {_FOUND} "
    "insert into O; from T as x left outer join A as y on x.k == y.c within "
    f"0L, 100000000L per 'sec' select AGG_TIMESTAMP, {_FOUND.replace('A.', 'y.')} insert into P;",
    "by event time": f"{_MADE}define aggregation A from M {SELECT} "
    f"aggregate by ts every min, sec, year; {_MAKE} from T join A within 0L, 100000000L per 'min' "
    f"select T.k, AGG_TIMESTAMP, {_FOUND} insert into O; from T join A within -9000L, 100000000L "
    f"per 'years' select T.k, {_FOUND} insert into P;",
    "purged": f"{_MADE}@purge(interval='3 sec') define aggregation A from M {SELECT} "
    f"aggregate by ts every sec...min; {_MAKE} from T#window.length(2) join A on A.c > T.k "
    f"within -100000L, 100000000L per 'sec' select T.k, AGG_TIMESTAMP, {_FOUND} "
    "insert all events into O;",
    "of the same stream": f"define aggregation A from S {SELECT} aggregate every sec, min; "
    "from S join A on S.s == A.s within 0L, 100000000L per 'sec' select S.k, A.s as s, t, a, "
    "_START as b, _END as e insert into O;",
    "in a partition": f"define aggregation A from S {SELECT} aggregate every sec, min; "
    "partition with (k of T) begin from T join A on T.k <= A.hi within 0L, 100000000L per 'min' "
    "select T.k, s, t insert into O; end;",
}


def _log(steps: list[Step], streams: tuple[str, ...]) -> Log:
    """Events whose values are halves, so that sums don't depend on their order."""
    log = log_of(steps, streams)
    return {
        stream: [
            (
                1000 + (time - 1000) * _SPREAD,
                [r[0], None if r[1] is None else round(r[1]) / 2, *r[2:]],
            )
            for time, r in events
        ]
        for stream, events in log.items()
    }


@pytest.fixture(scope="module")
def recorders() -> dict[str, Recorder]:
    return {}


def _recorder(text: str, mode: ExecutionMode = ExecutionMode.AUTO) -> Recorder:
    recorder = Recorder(text)
    recorder.inputs = tuple(s for s in ("S", "T") if s in recorder.executor.input_schemas)
    recorder.outputs = ("O", "P")
    recorder.executor = Executor(recorder.app, recorder.outputs, mode=mode)
    return recorder


def _whole(text: str, log: Log, mode: ExecutionMode) -> list[Any]:
    recorder = _recorder(text, mode)
    runs = [recorder.part(log, s, 0, len(log[s])) for s in recorder.inputs]
    recorder.run(runs, dict.fromkeys(recorder.inputs, _END_MS))
    return sorted(recorder.rows, key=lambda row: row[0])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", APPS)
@settings(max_examples=examples(6), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(EVENT, max_size=30), data=st.data())
def test_cuts_and_restarts_change_nothing(name: str, steps: list[Step], data: Any) -> None:
    recorder = _recorder(APPS[name])
    log = _log(steps, recorder.inputs)
    run_in_pieces(recorder, log, data, 0)
    recorder.run([], dict.fromkeys(recorder.inputs, _END_MS))
    expected = _whole(APPS[name], log, ExecutionMode.STEP)
    assert sorted(recorder.rows, key=lambda row: row[0]) == expected
    assert _whole(APPS[name], log, ExecutionMode.AUTO) == expected


def _steps(count: int, seed: int = 3) -> list[Step]:
    rng = np.random.default_rng(seed)
    return [
        (
            "SSST"[int(rng.integers(4))],
            int(rng.choice([0, 0, 1, 2, 5, 12, -30])),
            int(rng.integers(3)),
            float(rng.integers(-5, 9)),
            "ab"[int(rng.integers(2))],
        )
        for _ in range(count)
    ]


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", APPS)
def test_a_name_stands_for_one_content_however_the_input_is_cut(name: str) -> None:
    seen: dict[str, pa.RecordBatch] = {}
    names = 0
    for cut in (1, 7, 40):
        recorder = _recorder(APPS[name])
        log = _log(_steps(100), recorder.inputs)
        for start in range(0, max(map(len, log.values())), cut):
            stops = {s: min(start + cut, len(log[s])) for s in log}
            runs = [recorder.part(log, s, start, stop) for s, stop in stops.items() if stop > start]
            clocks = {s: max(t for t, _ in log[s][:stop]) for s, stop in stops.items()}
            recorder.run(runs, clocks)
            pieces = recorder.executor.snapshot().pieces
            names += len(pieces)
            for piece, content in pieces.items():
                assert seen.setdefault(piece, content).equals(content), piece
    assert len(seen) < names


def test_an_on_demand_query_finds_the_rows_of_its_span() -> None:
    aggregation, events = new_aggregation(), random(100, 5)
    add(aggregation, events)
    asked = parse_on_demand_query("from A within '1970-01-** **:**:**' per 'hours' select *")
    store = bind_on_demand(asked, APP).store
    assert store is not None
    assert store.within is not None
    assert store.per is not None
    found = find_on_demand(aggregation, store.within, store.per, now_ms=10**6)
    whole = find(aggregation, (0, 31 * 86_400_000), TimeUnit.HOUR, now_ms=10**6)
    assert found.equals(whole)
    decades = Constant("decades", AttributeType.STRING)
    with pytest.raises(ValueError, match="knows no 'decades'"):
        find_on_demand(aggregation, store.within, decades, now_ms=10**6)


def test_a_question_about_groups_reads_these_alone() -> None:
    aggregation, events = new_aggregation(), random(200, 9)
    add(aggregation, events)
    groups = groups_with(aggregation, 0, ["a", "c", "nobody"])
    whole = (-(10**9), 10**9)
    some = find(aggregation, whole, TimeUnit.MINUTE, now_ms=10**6, groups=groups).to_pylist()
    every = find(aggregation, whole, TimeUnit.MINUTE, now_ms=10**6).to_pylist()
    assert some == [row for row in every if row["s"] in ("a", "c")]


def test_an_event_without_a_time_goes_to_the_fault_stream() -> None:
    app = bind(
        parse(
            "@OnError(action='STREAM') define stream M (k int, v double, s string, ts string); "
            "define stream Q (k int); "
            f"define aggregation A from M {SELECT} aggregate by ts every sec; "
            "from !M select k insert into Bad; "
            "from Q join A within 0L, 9999999999999L per 'sec' select AGG_TIMESTAMP as t0, c "
            "insert into Out;"
        )
    )
    executor = Executor(app, ("Bad", "Out"))
    texts = ["2019-10-07 10:00:00", "bad", None, "2019-10-07 10:00:00 +05:30"]
    rows = batch(app.stream("M"), [[n, 1.0, "a", text] for n, text in enumerate(texts)])
    made = []
    for row in range(len(texts)):
        made += executor.step(1000, "M", np.array([1000]), rows.slice(row, 1))
    made += executor.step(1000, "Q", np.array([1000]), batch(app.stream("Q"), [[1]]))
    values = [(run.stream, list(row.values())) for run in made for row in run.rows.to_pylist()]
    assert values == [
        ("Bad", [1]),
        ("Bad", [2]),
        ("Out", [time_of("2019-10-07 04:30:00"), 1]),
        ("Out", [time_of("2019-10-07 10:00:00"), 1]),
    ]


def test_an_aggregation_keeps_its_values_when_the_text_around_it_changes() -> None:
    text = (
        "{purge} define stream M (k int, v double, s string, ts long); define stream Q (k int); "
        f"define aggregation A from M {SELECT} aggregate by ts every sec, hour; "
        "{more} from Q join A within 0L, 99999999L per 'hours' select c insert into Out;"
    )
    before = bind(parse(text.format(purge="", more="")))
    changed = text.replace("define aggregation", "@purge(enable='false') define aggregation")
    after = bind(parse(changed.format(purge="", more="from Q select k insert into P;")))
    old = Executor(before, ("Out",))
    old.step(1000, "M", np.array([1000]), batch(before.stream("M"), [[1, 1.0, "a", 1]]))
    new = Executor(after, ("Out",))
    new.restore(remap(stored(old.snapshot()), before, after))
    new.step(2000, "M", np.array([2000]), batch(after.stream("M"), [[1, 1.0, "a", 1]]))
    (made,) = new.step(2001, "Q", np.array([2001]), batch(after.stream("Q"), [[1]]))
    assert made.rows.to_pylist() == [{"c": 2}]
