"""Whole apps: in bulk or step by step, in any pieces, restored anywhere, they do the same."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.language.parser import parse_app
from mesh.operators.executor import ExecutionMode, Executor, InputRun
from mesh.plan.bind import bind
from tests.support.examples import examples
from tests.support.recorder import stored
from tools.cases import batch, values

DEFINE = "define stream S (k string, v int); define stream T (k string, w int); "
PURGE = "@purge(enable='true', interval='1 sec', idle.period='1 sec') "
#: The input streams, and the app.
APPS = {
    "chain": "from S[v > 1] select k, v insert into A; from A#window.length(3) select k, "
    "sum(v) as t insert all events into O; from A select k, v * 2 as v insert into O2; "
    "from O2#window.time(30) select k, count() as n group by k insert into P;",
    "two readers of batches": "from S#window.lengthBatch(3) select k, v insert all events into A; "
    "from A#window.length(2) select k, sum(v) as t insert into O; "
    "from A#window.timeBatch(40) select k, count() as n insert into P;",
    "value partition": "partition with (k of S) begin from S#window.length(2) select k, "
    "sum(v) as t insert all events into O; from S select k, count() as t insert into O; end;",
    "windows in a partition": "partition with (k of S) begin from S#window.time(25) select k, "
    "sum(v) as t insert all events into #I; from #I#window.lengthBatch(2) select k, t "
    "insert into O; from #I select k, t insert into P; end; from P select k insert into Q;",
    "ranges": "partition with (v < 2 as 'low' or v < 5 as 'mid' or v >= 4 as 'high' of S) begin "
    "from S select k, count() as n insert into O; from S#window.time(20) select k, "
    "count() as n insert expired events into O; end;",
    "two keyed streams": "partition with (k of S, k of T) begin from S select k, v insert into #I; "
    "from T select k, w as v insert into #I; from #I#window.length(3) select k, sum(v) as t "
    "insert into O; end;",
    "a stream without a key": "partition with (k of S) begin from S select k, v insert into O; "
    "from T#window.length(2) select k, sum(w) as t insert into P; end;",
    "two partitions": "partition with (k of S) begin from S select k, sum(v) as v insert into A; "
    "end; partition with (v % 2 of A) begin from A select k, count() as n insert into O; "
    "from A#window.time(15) select k, v insert expired events into P; end;",
    "purged": f"{PURGE} partition with (k of S) begin from S select k, sum(v) as t insert into O; "
    "from S#window.time(700) select k, v insert expired events into P; end;",
    "named window": "define window W (k string, v int) length(3) output all events; "
    "from S[v > 0] select k, v insert into W; from T select k, w as v insert into W; "
    "from W select k, sum(v) as t insert all events into O; from W[v > 2] select k, v "
    "insert expired events into P;",
    "named time window": "define window W (k string, v int) time(20) output all events; "
    "from S select k, v insert into W; from W select k, count() as n insert all events into O;",
    "trigger": "define trigger G at every 900 milliseconds; define trigger H at 'start'; "
    "from G select triggered_time as t insert into O; from H select triggered_time as t "
    "insert into P; from S#window.time(10) select k, v insert all events into Q;",
    "pattern": "from S#window.lengthBatch(2) select k, v insert into A; "
    "from every a=A -> b=T[k == a.k] select a.k as k, a.v as v, b.w as w insert into O;",
    "pattern in a partition": "partition with (k of S, k of T) begin "
    "from every a=S -> b=T[w > a.v] select a.k as k, a.v as v, b.w as w insert into O; "
    "from S select k insert into P; end;",
    "join": "from S#window.length(2) as a join T#window.time(20) as b on a.k == b.k "
    "select a.k as k, a.v as v, b.w as w insert into O;",
}
#: Equal times are likely, so timers and events coincide; late events too.
_EVENT = st.tuples(
    st.sampled_from("SST"),
    st.sampled_from([0, 0, 0, 1, 5, 10, 20, 500, 1500, -5]),
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "c", None]), st.one_of(st.none(), st.integers(0, 6))),
        min_size=1,
        max_size=4,
    ),
)
#: A chunk: its time and its rows.
Chunk = tuple[int, list[tuple[str | None, int | None]]]
Rows = dict[str, list[str]]
START_MS, END_MS = 1_000, 100_000


class Driver:
    """An executor with the app that it runs."""

    def __init__(self, text: str, mode: ExecutionMode) -> None:
        self.app = bind(parse_app(DEFINE + text))
        self.mode = mode
        self.names = [s.name for s in self.app.streams if s.name not in "ST"]
        self.executor = Executor(self.app, self.names, mode=mode)
        self.rows: Rows = {}
        self.sent = {"S": 0, "T": 0}

    def run(self, chunks: dict[str, list[Chunk]], clocks: dict[str, int]) -> None:
        runs = []
        for stream, listed in chunks.items():
            rows = [row for _, part in listed for row in part]
            if not rows:
                continue
            times = [time_ms for time_ms, part in listed for _ in part]
            number = [n for n, (_, part) in enumerate(listed) for _ in part]
            first = self.sent[stream]
            self.sent[stream] += len(rows)
            runs.append(
                InputRun(
                    stream,
                    np.arange(first, first + len(rows)),
                    np.array(times, dtype=np.int64),
                    batch(self.app.stream(stream), [list(row) for row in rows]),
                    np.array(number, dtype=np.int64),
                )
            )
        for output in self.executor.run(runs, clocks):
            found = zip(output.time_ms.tolist(), values(output.rows), strict=True)
            self.rows.setdefault(output.stream, []).extend(f"{t} {row}" for t, row in found)

    def shown(self) -> tuple[Any, ...]:
        """The output so far, and the state."""
        state = self.executor.snapshot()
        pieces = {name: piece.to_pylist() for name, piece in state.pieces.items()}
        return {**self.rows}, sum(map(len, self.rows.values())), state.scalars, pieces

    def restart(self) -> None:
        state = stored(self.executor.snapshot())
        self.executor = Executor(self.app, self.names, mode=self.mode)
        self.executor.restore(state)


def log_of(steps: list[Any]) -> list[tuple[str, Chunk]]:
    """The input, in order, with its time."""
    now_ms, log = START_MS, []
    for stream, step_ms, rows in steps:
        at_ms = now_ms + step_ms
        now_ms = max(now_ms, at_ms)
        log.append((stream, (at_ms, rows)))
    return log


def of_streams(log: list[tuple[str, Chunk]]) -> dict[str, list[Chunk]]:
    return {name: [chunk for stream, chunk in log if stream == name] for name in "ST"}


def at_once(text: str, log: list[tuple[str, Chunk]], mode: ExecutionMode) -> Rows:
    driver = Driver(text, mode)
    driver.run(of_streams(log), dict.fromkeys("ST", END_MS))
    return driver.rows


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", APPS)
@settings(max_examples=examples(6), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(_EVENT, max_size=25))
def test_bulk_is_as_step_by_step(name: str, steps: list[Any]) -> None:
    log = log_of(steps)
    assert at_once(APPS[name], log, ExecutionMode.AUTO) == at_once(
        APPS[name], log, ExecutionMode.STEP
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", APPS)
@settings(max_examples=examples(6), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(_EVENT, max_size=25), data=st.data())
def test_cuts_and_restarts_change_nothing(name: str, steps: list[Any], data: Any) -> None:
    log = log_of(steps)
    mode = data.draw(st.sampled_from(ExecutionMode))
    driver = Driver(APPS[name], mode)
    at, clocks = 0, {"S": 0, "T": 0}
    while at < len(log):
        stop = data.draw(st.integers(at + 1, len(log)))
        part = log[at:stop]
        for stream, (time_ms, _) in part:
            clocks[stream] = max(clocks[stream], time_ms)
        driver.run(of_streams(part), dict(clocks))
        at = stop
        if driver.executor.is_settled(clocks):
            before = driver.shown()
            driver.run({}, dict(clocks))
            assert driver.shown() == before
        if data.draw(st.booleans()):
            driver.restart()
    driver.run({}, dict.fromkeys("ST", END_MS))
    assert driver.rows == at_once(APPS[name], log, ExecutionMode.AUTO)


def test_a_run_without_events_is_left_out_where_it_changes_nothing() -> None:
    driver = Driver(APPS["named time window"], ExecutionMode.AUTO)
    clocks = dict.fromkeys("ST", START_MS)
    assert not driver.executor.is_settled(clocks)
    driver.run({"S": [(START_MS, [("a", 1)])]}, clocks)
    assert driver.executor.is_settled(dict(clocks))
    # The event expires.
    assert not driver.executor.is_settled(dict.fromkeys("ST", START_MS + 20))
