"""Joins with aggregations in databases find what they find in an aggregation in the state."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import sqlalchemy as sa

from mesh.language.parser import parse
from mesh.model.stored import AnyKey
from mesh.operators.executor import ExecutionMode, Executor, InputRun
from mesh.plan.bind import bind
from mesh.spark.store_output import StoreOutput
from mesh.store.engine import engine_of
from tests.support.databases import new_database
from tests.support.recorder import stored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mesh.model.stored import Clause
    from mesh.plan.bound import BoundApp
    from tests.support.databases import TestDatabase

APP = """
define stream S (k string, n int, v double, since long);
define stream Q (k string, n int, v double, since long);
{store} @purge(enable='false') define aggregation A from S
select k, n as m, sum(n) as t, avg(v) as a, count() as c, min(v) as lo, v as last,
distinctCount(v) as d, distinctCount(k) as e
group by k, n aggregate every sec...hour;
{store} @purge(enable='false') define aggregation Whole from S
select sum(n) as t, distinctCount(k) as d aggregate every min;
from Q join A on Q.k == A.k within 0L, 9000000L per 'min'
select A.AGG_TIMESTAMP as b, A.k as k, A.m as m, A.t as t, A.a as a, A.c as c insert into O;
from Q[n > 0]#window.length(1) join A on A.m < Q.n and (A.k == Q.k or A.k == 'null')
within Q.since, 9000000L per 'seconds'
select A.AGG_TIMESTAMP as b, A.k as k, A.m as m, A.t as t, A.lo as a, A.c as c insert into O;
from Q#window.length(2) left outer join A on A.t > Q.n and A.k != Q.k
within 0L, 9000000L per 'hours'
select A.AGG_TIMESTAMP as b, A.k as k, A.m as m, A.t as t, A.last as a, A.c as c insert into O;
from S join A on A.k == S.k and A.m == S.n within 0L, 9000000L per 'sec'
select A.AGG_TIMESTAMP as b, A.k as k, A.m as m, A.t as t, A.a as a, A.c as c insert into O;
from Q join A on A.k == Q.k within 0L, 9000000L per 'min'
select A.AGG_TIMESTAMP as b, A.k as k, A.m as m, A.d as t, 0.5 as a, A.e as c insert into O;
from Whole join S within 0L, 9000000L per 'min'
select AGG_TIMESTAMP as b, S.k as k, S.n as m, t, S.v as a, d as c insert into O;
"""
Event = tuple[str, int, str | None, int | None, float, int | None]


def events_of(count: int, seed: int) -> list[Event]:
    """Stream, time, and attributes, in halves so that sums do not depend on their order."""
    chance = np.random.default_rng(seed)
    time, made = 1000, list[Event]()
    for _ in range(count):
        time += int(chance.integers(1, 9000))
        k, n = ("a", "b", "c", None)[chance.integers(4)], (0, 1, 2, None)[chance.integers(4)]
        v, since = int(chance.integers(9)) / 2, None if n is None else n * 60_000
        made.append((str(chance.choice(["S", "S", "Q"])), time, k, n, v, since))
    return made


class Life:
    """An executor whose process may end after any run, and how its aggregations are read."""

    def __init__(
        self,
        store: str,
        events: list[Event],
        app: str | BoundApp = APP,
        **options: Any,
    ) -> None:
        if isinstance(app, str):
            app = bind(parse(app.replace("{store}", store)))
        self.app = app
        self.events, self.options, self.epoch = events, options, 0
        self.kept: tuple[int, Any] = (0, None)
        #: Rows by position, of all lives.
        self.rows: dict[int, set[str]] = {}
        self.lookups: list[Clause] = []
        self.begin()

    def begin(self) -> None:
        self.epoch += 1
        self.executor = Executor(self.app, ("O", "!"), **{"salt": "p", **self.options})
        self.output = StoreOutput.of(self.executor, self.epoch)
        self.at, state = self.kept
        if state is not None:
            self.executor.restore(state)
        if self.output is not None:
            self.output.recall(self.executor)
        for reads in self.executor.bucket_reads:
            self._count(reads)

    def _count(self, reads: Any) -> None:
        find = reads.find_rows

        def counted(clause: Clause) -> pa.RecordBatch:
            self.lookups.append(clause)
            found: pa.RecordBatch = find(clause)
            return found

        reads.find_rows = counted

    def run(self, stop: int, *, writes: bool = True, keeps: bool = True) -> None:
        """Process events to below ``stop``, write, and keep the state."""
        known = self.events[stop - 1][1] + 1 if stop else 0
        runs = []
        for stream in ("S", "Q"):
            given = [(i + 1, e) for i, e in enumerate(self.events) if e[0] == stream]
            given = [(i, e) for i, e in given if self.at < i <= stop]
            types = (pa.string(), pa.int32(), pa.float64(), pa.int64())
            arrays = [pa.array([e[2 + at] for _, e in given], t) for at, t in enumerate(types)]
            rows = pa.RecordBatch.from_arrays(arrays, names=["k", "n", "v", "since"])
            times = np.array([e[1] for _, e in given], dtype=np.int64)
            sequence = np.array([i for i, _ in given], dtype=np.int64)
            runs += [InputRun(stream, sequence, times, rows)] if given else []
        if self.output is not None:
            self.output.prepare()
        made = self.executor.run(runs, dict.fromkeys("SQ", known))
        if self.output is not None:
            self.output.record(self.executor)
            made = self.output.take(made)
        for run in made:
            listed = zip(run.position.tolist(), run.rows.to_pylist(), strict=True)
            for position, row in listed:
                self.rows.setdefault(position, set()).add(f"{run.stream} {row}")
        self.at = stop
        if writes and self.output is not None:
            self.output.commit()
        if writes and keeps:
            self.kept = stop, stored(self.executor.snapshot())

    def end(self) -> None:
        self.close()
        self.begin()

    def close(self) -> None:
        if self.output is not None:
            self.output.close()

    @property
    def found(self) -> list[str]:
        """All rows; the positions of those for tables are passed over."""
        assert all(len(one) == 1 for one in self.rows.values()), self.rows
        return sorted(one for found in self.rows.values() for one in found)


@pytest.fixture
def lives() -> Iterator[list[Life]]:
    made: list[Life] = []
    yield made
    for life in made:
        life.close()


_numbers = itertools.count(1)


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("mode", [ExecutionMode.AUTO, ExecutionMode.STEP])
def test_events_find_what_they_find_in_the_state(
    store: TestDatabase, lives: list[Life], mode: ExecutionMode
) -> None:
    events = events_of(60, 3)
    plain, life = Life("", events, mode=mode), Life(store.store(), events, mode=mode)
    lives += [plain, life]
    plain.run(len(events))
    for stop in (0, 1, 7, 30, 31, 60):
        life.run(stop)
    assert life.found == plain.found
    assert len(plain.found) > 300


@pytest.mark.thorough
@pytest.mark.parametrize("others_write", [False, True])
def test_runs_that_end_anywhere_find_the_same_again(tmp_path: Path, others_write: bool) -> None:
    """They are repeated in other cuts, while another mesh writes."""
    chance = np.random.default_rng(11)
    for seed in range(2):
        events = events_of(30, seed)
        calm = Life(new_database(None, tmp_path, f"calm{next(_numbers)}").store(), events)
        store = new_database(None, tmp_path, f"fails{next(_numbers)}")
        life = Life(store.store(), events)
        try:
            for one in (calm, life):
                one.run(0)
            while calm.at < len(events):
                count, again, writes, keeps = chance.integers(0, [5, 4, 2, 2]).tolist()
                stop = min(calm.at + 1 + count, len(events))
                calm.run(stop)
                life.run(stop, writes=bool(writes) or not again, keeps=bool(keeps))
                if again:
                    life.end()
                    if others_write:
                        _add_elsewhere(store)
                    while life.at < stop:
                        is_kept, is_written = chance.integers(0, 2, 2).tolist()
                        stopped = min(life.at + again, stop)
                        life.run(stopped, writes=bool(is_written), keeps=bool(is_kept))
            assert all(len(found) == 1 for found in life.rows.values()), (seed, life.rows)
            if not others_write:
                assert life.rows == calm.rows
        finally:
            calm.close()
            life.close()


@pytest.mark.slow
def test_a_state_of_the_middle_of_a_repeated_run_has_what_left(
    tmp_path: Path, lives: list[Life]
) -> None:
    """It is restored once more before the run is whole."""
    events = events_of(80, 5)
    plain = Life("", events)
    life = Life(new_database(None, tmp_path, f"middle{next(_numbers)}").store(), events)
    lives += [plain, life]
    plain.run(len(events))
    life.run(52)
    life.run(62, writes=False)
    life.end()
    life.run(59)
    life.end()
    life.run(len(events))
    assert life.found == plain.found


@pytest.mark.extended
@pytest.mark.parametrize("seed", range(2))
def test_rows_that_an_earlier_life_has_written_are_told_from_those_that_left_with_them(
    tmp_path: Path, lives: list[Life], seed: int
) -> None:
    """Lives end anywhere, also while they repeat runs, so that runs are written in pieces."""
    events = events_of(80, 5)
    plain = Life("", events)
    life = Life(new_database(None, tmp_path, f"pieces{next(_numbers)}").store(), events)
    lives += [plain, life]
    plain.run(len(events))
    chance = np.random.default_rng(seed)
    ends = 0
    while life.at < len(events):
        steps, writes, keeps = chance.integers(0, [7, 3, 2]).tolist()
        is_kept = bool(writes and keeps)
        stop = min(life.at + 1 + steps, len(events))
        life.run(stop, writes=bool(writes), keeps=is_kept)
        if not is_kept:
            life.end()
            ends += 1
    assert life.found == plain.found
    assert ends > 15


def _add_elsewhere(store: TestDatabase) -> None:
    """Another program adds to the rows that there are."""
    with engine_of(store.database).begin() as connection:
        for name in ("A_SECONDS", "A_MINUTES", "A_HOURS"):
            connection.execute(sa.text(f'UPDATE "{name}" SET "AGG_COUNT" = "AGG_COUNT" + 100'))


POINTS = """
define stream S (k string, n int, v double, since long);
define stream Q (k string, n int, v double, since long);
{store} define aggregation A from S select k as name, sum(n) as t group by k aggregate every min;
from Q join A on Q.k == A.name and A.t > Q.n within 0L, 9000000L per 'min'
select A.name as k, t, Q.n as n insert into O;
from S join A on A.name == S.k within S.since, 9000000L per 'min'
select A.name as k, t, S.n as n insert into O;
"""


def test_a_run_is_one_statement_with_its_keys(store: TestDatabase, lives: list[Life]) -> None:
    fill: list[Event] = [("S", 1000 + at, f"k{at}", 1, 1.0, 0) for at in range(40)]
    asks: list[Event] = [("Q", 70_000 + at, f"k{at % 7}", 0, 1.0, 0) for at in range(500)]
    more: list[Event] = [("S", 80_000 + at, f"k{at % 5}", 1, 1.0, 0) for at in range(50)]
    life = Life(store.store(), [*fill, *asks, *more], POINTS)
    lives.append(life)
    life.run(40)
    life.run(540)
    assert len(life.found) == 40 + 500
    life.lookups.clear()
    life.run(540)
    assert life.lookups == []
    life.end()
    life.run(590)
    # Events of the aggregation itself are run one by one, and their rows are loaded before.
    assert [len(_keys(one)) for one in life.lookups] == [5]
    reads = life.executor.bucket_reads[0]
    assert sum(len(rows) for rows in reads._batches) == 5
    # Each finds the minute that is over and its own.
    assert len(life.found) == 40 + 500 + 2 * 50
    assert sum("'t': 10" in row for row in life.found) == 5


def _keys(clause: Any) -> Any:
    return next(part.keys for part in clause.parts if isinstance(part, AnyKey))


def test_shares_of_other_meshes_are_found(store: TestDatabase, lives: list[Life]) -> None:
    text = POINTS.replace("{store}", "{store} @PartitionById")
    events: list[Event] = [("S", 1000, "a", 10, 1.0, 0), ("S", 2000, "a", 20, 1.0, 0)]
    other: list[Event] = [("S", 1500, "a", 10, 1.0, 0), ("S", 1600, "a", 30, 1.0, 0)]
    late: Event = ("Q", 70_000, "a", 0, 1.0, 0)
    here = Life(store.store(), [*events, late], text, shard="north")
    there = Life(store.store(), [*other, late], text, shard="south", salt="q")
    lives += [here, there]
    for life in lives:
        life.run(3)
    here.events = [*here.events, late]
    here.run(4)
    # The second event of each finds its own share; then each has written, and the other finds it.
    assert [row for row in here.found if "'n': 0}" in row][-1:] == ["O {'k': 'a', 't': 70, 'n': 0}"]


LATE = """
define stream S (k string, n int, v double, since long);
define stream Q (k string, n int, v double, since long);
{store} define aggregation A from S select k, sum(n) as t group by k aggregate every min;
from Q join A on Q.k == A.k within 0L, 9000000L per 'min' select A.k, t, Q.n as n insert into O;
"""


def test_rows_that_left_in_a_run_without_reads_count_once(
    tmp_path: Path, lives: list[Life]
) -> None:
    sends: list[Event] = [("S", at, "a", 1, 1.0, 0) for at in (1000, 12_000, 25_000)]
    life = Life(
        new_database(None, tmp_path, "late").store(),
        [*sends, ("Q", 31_000, "a", 0, 1.0, 0)],
        LATE,
    )
    lives.append(life)
    life.run(0)
    # The first row is written; then the process ends without its state.
    life.run(2, keeps=False)
    life.end()
    # Now two rows leave before the event, of which the database has one.
    life.run(4)
    assert [row for row in life.found if row.startswith("O")] == ["O {'k': 'a', 't': 3, 'n': 0}"]
