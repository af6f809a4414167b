"""Aggregations in a store: the same rows leave for any cut, and with the state they are the whole.

The whole is what an aggregation without a store has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.errors import MeshError
from mesh.language.parser import parse
from mesh.language.syntax import TimeUnit
from mesh.model.stored import rows_channel
from mesh.operators.aggregations.find import find
from mesh.operators.dataflow.aggregation_node import AggregationNode
from mesh.operators.executor import ExecutionMode, Executor
from mesh.plan.bind import bind
from mesh.spark.store_output import StoreOutput
from mesh.store.values import merged, to_arrow
from tests.support.examples import examples
from tests.support.recorder import EVENT, Log, Recorder, Step, log_of, run_in_pieces, stored

if TYPE_CHECKING:
    from mesh.model.stored import StoredTable
    from mesh.operators.aggregations.rollup import Aggregation
    from mesh.operators.executor import OutputRun

_SPREAD = 397
_END_MS = 1_000_000_000
STORE = "@store(type='rdbms', jdbc.url='jdbc:sqlite:/none') "
_SELECT = (
    "select s, sum(k) as t, avg(v) as a, count() as c, min(v) as lo, max(k) as hi, "
    "v as last, ifThenElse(v > 0.0, 'up', s) as word, distinctCount(v) as vs, "
    "distinctCount(s) as ss, distinctCount(v) * 10 as tens group by s"
)
_MADE = "define stream M (k int, v double, s string, ts long); "
_MAKE = "from S select k, v, s, k * 1700L as ts insert into M; "
APPS = {
    "by arrival": f"{STORE}define aggregation A from S[v != 1.0] {_SELECT} "
    "aggregate every sec...year; from S[k > 1] select k insert into O;",
    "by event time": f"{_MADE}{STORE}define aggregation A from M {_SELECT} "
    f"aggregate by ts every min, sec, year; {_MAKE}",
    "hours": f"{STORE}define aggregation A from S {_SELECT} aggregate every hour, day; "
    "from S#window.time(7 sec) select count() as n insert all events into O;",
    "purged": f"{STORE}@purge(interval='15 sec') define aggregation A from S {_SELECT} "
    "aggregate every sec...min; from S select k insert into O;",
    "in playback": f"{STORE}define aggregation A from S {_SELECT} "
    "aggregate every sec, min, hour; from S select k insert into O;",
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


class StoredRecorder(Recorder):
    """A recorder that keeps the rows for tables as a database would."""

    def __init__(self, text: str, mode: ExecutionMode = ExecutionMode.AUTO) -> None:
        super().__init__(text)
        self.inputs = ("S",)
        self.outputs = ("O",)
        self.mode, self.playback = mode, text == APPS["in playback"]
        self.executor = self._new()
        self.tables: dict[str, list[pa.RecordBatch]] = {}

    def _new(self) -> Executor:
        return Executor(self.app, self.outputs, mode=self.mode, playback=self.playback)

    def restart(self) -> None:
        state = stored(self.executor.snapshot())
        self.executor = self._new()
        self.executor.restore(state)

    def take(self, output: OutputRun) -> None:
        super().take(output)
        self.tables.setdefault(output.stream, []).append(output.rows)

    def cells(self) -> Aggregation:
        """The aggregation, with the rows of its tables."""
        (node,) = (n.work for n in self.executor.nodes if isinstance(n.work, AggregationNode))
        cells = node.cells
        tables = cells.tables
        if tables is not None:
            cells.find_rows = self._found
        return cells

    def _found(self, per: TimeUnit, start: int, end: int) -> list[pa.RecordBatch]:
        (node,) = (n.work for n in self.executor.nodes if isinstance(n.work, AggregationNode))
        assert node.cells.tables is not None
        return [self._rows_of(table, start, end) for table in node.cells.tables.of(per)]

    def _rows_of(self, table: StoredTable, start: int, end: int) -> pa.RecordBatch:
        parts = self.tables.get(rows_channel(table.name), [])
        if not parts:
            return to_arrow([], table)
        rows = merged(pa.Table.from_batches(parts).combine_chunks().to_batches()[0], table)
        found = [tuple(one.values()) for one in rows.to_pylist() if start <= one[table.time] < end]
        return to_arrow(found, table)


def _whole(text: str, log: Log, mode: ExecutionMode) -> StoredRecorder:
    recorder = StoredRecorder(text, mode)
    recorder.run([recorder.part(log, "S", 0, len(log["S"]))], {"S": _END_MS})
    return recorder


def _sorted(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: row[0])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", APPS)
@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(EVENT, max_size=30), data=st.data())
def test_cuts_and_restarts_change_no_row_and_no_position(
    name: str, steps: list[Step], data: Any
) -> None:
    recorder = StoredRecorder(APPS[name])
    log = _log(steps, recorder.inputs)
    run_in_pieces(recorder, log, data, -_END_MS)
    recorder.run([], {"S": _END_MS})
    expected = _sorted(_whole(APPS[name], log, ExecutionMode.STEP).rows)
    assert _sorted(recorder.rows) == expected
    assert _sorted(_whole(APPS[name], log, ExecutionMode.AUTO).rows) == expected


@pytest.mark.parametrize("name", ["by arrival", "by event time", "hours", "in playback"])
@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(EVENT, min_size=1, max_size=30), cut=st.integers(0, 30))
def test_tables_and_state_are_together_the_whole(name: str, steps: list[Step], cut: int) -> None:
    text = APPS[name].replace(STORE, f"{STORE}@purge(enable='false') ")
    here = StoredRecorder(text)
    embedded = StoredRecorder(text.replace(STORE, ""))
    log = _log(steps, here.inputs)
    for start, stop in ((0, cut), (cut, len(steps))):
        for recorder in (here, embedded):
            run = recorder.part(log, "S", start, stop)
            recorder.run([run], {"S": max((t for t, _ in log["S"][:stop]), default=0)})
            recorder.restart()
        one, other = here.cells(), embedded.cells()
        for per in one.durations:
            span = (-(10**12), 10**12)
            found = find(one, span, per, now_ms=0).to_pylist()
            assert sorted(found, key=str) == sorted(
                find(other, span, per, now_ms=0).to_pylist(), key=str
            )


def test_a_state_of_a_store_has_no_closed_cells() -> None:
    recorder = StoredRecorder(APPS["by arrival"])
    log = _log([("S", 3, 1, 1.5, "a")] * 30, recorder.inputs)
    recorder.run([recorder.part(log, "S", 0, 30)], {"S": _END_MS})
    cells = recorder.cells()
    assert sum(len(store) for store in (*cells.closed.values(), *cells.running.values())) == 0
    assert cells.next_time() is None
    state = stored(recorder.executor.snapshot())
    assert not any("closed" in name for name in state.pieces)


def test_values_that_have_left_are_forgotten() -> None:
    recorder = StoredRecorder(
        f"{STORE}define aggregation A from S select s, distinctCount(k) as ks group by s "
        "aggregate every sec...year; from S select k insert into O;"
    )
    count = 3000
    rows = [(1000 + n // 10 * 100, [n, 1.0, "a"]) for n in range(10 * count)]
    for start in range(0, len(rows), count):
        run = recorder.part({"S": rows}, "S", start, start + count)
        recorder.run([run], {"S": rows[start + count - 1][0]})
        (values,) = recorder.cells().value_numbers.values()
        assert len(values) < 3 * count
    recorder.run([], {"S": _END_MS})
    cells = recorder.cells()
    found = find(cells, (0, 10**12), TimeUnit.YEAR, now_ms=_END_MS)
    assert found.column("ks").to_pylist() == [len(rows)]


def test_groups_that_have_left_are_forgotten() -> None:
    recorder = StoredRecorder(
        f"{STORE}define aggregation A from S select s, sum(k) as ks group by s "
        "aggregate every sec...sec; from S select k insert into O;"
    )
    count = 3000
    rows = [(1000 + n // 10 * 100, [1, 1.0, f"{n}"]) for n in range(10 * count)]
    for start in range(0, len(rows), count):
        run = recorder.part({"S": rows}, "S", start, start + count)
        recorder.run([run], {"S": rows[start + count - 1][0]})
        assert len(recorder.cells().groups) < 4 * count
    recorder.run([], {"S": _END_MS})
    found = find(recorder.cells(), (0, 10**12), TimeUnit.SECOND, now_ms=_END_MS)
    assert set(found.column("s").to_pylist()) == {f"{n}" for n in range(len(rows))}
    assert found.num_rows == len(rows)


def test_a_mesh_without_a_name_can_t_share_tables() -> None:
    text = APPS["by arrival"].replace(STORE, f"{STORE}@PartitionById ")
    app = bind(parse("define stream S (k int, v double, s string); " + text))
    with pytest.raises(MeshError, match="MESH-S144"):
        StoreOutput.of(Executor(app, ()), 1)
    assert Executor(app, (), shard="n1").stores[0].shard == ("SHARD_ID", "n1")
