"""Tables in stores: the database has what the state has, after any events, cuts and restarts."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.language.parser import parse
from mesh.model.stored import ROW_NUMBER
from mesh.operators.dataflow.merge import CHANGE_SCHEMA, CHANGES
from mesh.operators.executor import Executor, InputRun
from mesh.plan.bind import bind
from mesh.spark.store_output import StoreOutput
from tests.support.databases import new_database
from tests.support.examples import examples
from tests.support.recorder import stored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import TestDatabase

APP = """
define stream S (op string, k string, n int, v double, flag bool);
{store} @PrimaryKey('k') @Index('n') define table T (k string, n int, v double, flag bool);
{store} @PrimaryKey('n', 'k') define table Pairs (k string, v double, n long);
{store} define table Log (k string, n int, v double);
from S[op == 'insert'] select k, n, v, flag insert into T;
from S[op == 'insert' or op == 'rename'] select k, n, v insert into Log;
from S[op == 'delete'] select k delete Log on Log.k == k and Log.n > 1;
from S[op == 'update'] select n, v update Log set Log.v = v on Log.n == n;
from S[op == 'upsert'] select k, n, v update or insert into Log set Log.n = n on Log.k == k;
from S[op == 'delete'] select n delete T on T.n == n;
from S[op == 'update'] select k, v update T set T.v = v, T.n = T.n + 1 on T.v < v;
from S[op == 'upsert'] select k, n, v, flag update or insert into T on T.k == k;
from S[op == 'rename'] select k, n update T set T.k = str:concat(k, '''') on T.n == n;
from S select k, v, convert(n, 'long') as n update or insert into Pairs
set Pairs.v = v on Pairs.k == k and Pairs.n == n;
from S[op == 'delete']#window.length(2) select k delete Pairs on Pairs.k == k and Pairs.v > 1.0;
from S[(T.k == k) in T] select k insert into Known;
""".replace("''''", "'x'")
Event = tuple[str, str, int, float, bool | None]
EVENT = st.tuples(
    st.sampled_from(["insert", "delete", "update", "upsert", "rename"]),
    st.sampled_from(["a", "b", "c", "dé'"]),
    st.integers(0, 4),
    st.sampled_from([-1.0, 0.5, 2.0, 1e300]),
    st.sampled_from([None, True, False]),
)


class Life:
    """An executor with its databases; it may end after any run, with its state or without."""

    def __init__(self, store: TestDatabase, events: list[Event]) -> None:
        app = bind(parse(APP.replace("{store}", store.store())))
        self.app, self.store, self.events = app, store, events
        self.kept: tuple[int, Any] = (0, None)
        self.epoch = 0
        self.rows: list[Any] = []
        #: On-demand changes, by the number of the event that they follow.
        self.queries: dict[int, str] = {}
        self.begin()

    def begin(self) -> None:
        """A new process, which continues from the stored state."""
        self.epoch += 1
        self.executor = Executor(self.app, ("Known",), salt="p")
        output = StoreOutput.of(self.executor, self.epoch)
        assert output is not None
        self.output = output
        self.at, state = self.kept
        if state is None:
            self.output.begin(self.executor)
        else:
            self.executor.restore(state)

    def run(self, stop: int, *, keeps: bool) -> None:
        """Process events to below ``stop``, and write; ``keeps``: store the state too."""
        runs = runs_of(self.events, self.at, stop)
        for at, query in sorted(self.queries.items()):
            if self.at < at <= stop:
                row = pa.RecordBatch.from_pylist(
                    [{"id": f"{at}", "query": query, "refusal": None}], CHANGE_SCHEMA
                )
                runs.append(InputRun(CHANGES, np.array([at]), np.array([at * 10]), row))
        for run in self.output.take(self.executor.run(runs, {"S": stop * 10})):
            found = run.rows.to_pylist()
            self.rows += zip(run.position.tolist(), found, strict=True)
        self.output.commit()
        self.at = stop
        if keeps:
            self.kept = stop, stored(self.executor.snapshot())

    def end(self) -> None:
        self.output.close()
        self.begin()

    def in_state(self) -> list[list[Any]]:
        tables = self.executor.tables.values()
        return [sorted(map(str, table.rows().to_pylist())) for table in tables]

    def in_database(self) -> list[list[Any]]:
        found = []
        for target in self.executor.stores:
            (table,) = target.tables
            writer = self.output.writer_of[table.name]
            attributes = [name for name in table.arrow.names if name != ROW_NUMBER]
            rows = writer.rows(table).select(attributes).to_pylist()
            found.append(sorted(map(str, rows)))
        return found


@pytest.fixture
def lives() -> Iterator[list[Life]]:
    made: list[Life] = []
    yield made
    for life in made:
        life.output.close()


_numbers = itertools.count(1)


def events_of(count: int, seed: int) -> list[Event]:
    rng = np.random.default_rng(seed)
    ops = ["insert", "delete", "update", "upsert", "rename", "upsert", "insert"]
    return [
        (
            ops[int(rng.integers(len(ops)))],
            ["a", "b", "c", "dé'", "E"][int(rng.integers(5))],
            int(rng.integers(5)),
            float(rng.choice([-1.0, 0.5, 2.0, 1e300])),
            [None, True, False][int(rng.integers(3))],
        )
        for _ in range(count)
    ]


def runs_of(events: list[Event], start: int, stop: int) -> list[InputRun]:
    """Events from ``start`` to below ``stop`` as one run; none without events."""
    given = events[start:stop]
    if not given:
        return []
    names = ["op", "k", "n", "v", "flag"]
    types = (pa.string(), pa.string(), pa.int32(), pa.float64(), pa.bool_())
    arrays = [pa.array([e[at] for e in given], type) for at, type in enumerate(types)]
    rows = pa.RecordBatch.from_arrays(arrays, names=names)
    sequence = np.arange(start + 1, stop + 1)
    return [InputRun("S", sequence, sequence * 10, rows)]


def test_the_database_has_what_the_state_has(any_store: TestDatabase, lives: list[Life]) -> None:
    events = events_of(120, 1)
    life = Life(any_store, events)
    lives.append(life)
    for stop in (1, 2, 3, 10, 11, 40, 80, 120):
        life.run(stop, keeps=True)
        assert life.in_database() == life.in_state()
        assert len(life.in_state()[0]) > 0


@pytest.mark.sampled(2)
def test_a_replay_changes_nothing_that_is_written(
    any_store: TestDatabase, lives: list[Life]
) -> None:
    events = events_of(90, 2)
    life = Life(any_store, events)
    lives.append(life)
    life.run(20, keeps=False)
    before = life.in_database()
    # It had no state yet, so all events are read again.
    life.end()
    assert life.at == 0
    life.run(20, keeps=True)
    assert life.in_database() == life.in_state() == before
    life.run(35, keeps=False)
    life.run(60, keeps=False)
    life.end()
    assert life.at == 20
    life.run(90, keeps=True)
    assert life.in_database() == life.in_state()


def test_rows_that_were_there_before_are_found(any_store: TestDatabase, lives: list[Life]) -> None:
    first = Life(any_store, [("insert", "a", 1, 0.5, True), ("insert", "b", 2, 2.0, None)])
    lives.append(first)
    first.run(2, keeps=False)
    first.output.close()
    # Another app with the same tables: it has a marker of its own.
    other = Life(any_store, [("upsert", "b", 3, 0.5, False), ("upsert", "c", 4, 0.5, False)])
    lives.append(other)
    other.output.close()
    other.executor = Executor(other.app, ("Known",), salt="other")
    made = StoreOutput.of(other.executor, 1)
    assert made is not None
    other.output = made
    made.begin(other.executor)
    other.run(2, keeps=True)
    # The query after the change in the app finds both.
    assert [row["k"] for _, row in other.rows] == ["b", "c"]
    assert other.in_database() == other.in_state()
    assert len(other.in_state()[0]) == 3


def test_a_key_that_is_null_is_a_failed_event(store: TestDatabase, lives: list[Life]) -> None:
    life = Life(store, [("insert", None, 1, 0.5, True), ("insert", "a" * 300, 1, 0.5, True)])  # type: ignore[list-item]
    lives.append(life)
    life.executor.outputs.append("!")
    life.run(2, keeps=False)
    assert life.in_database() == life.in_state()
    *keyed, without_key = life.in_state()
    assert keyed == [[], []]
    assert len(without_key) == 1
    reasons = [row["reason"] for _, row in life.rows if "reason" in row]
    assert any("is null" in reason for reason in reasons)
    assert any("300 characters" in reason for reason in reasons)


@pytest.mark.extended
def test_rows_without_a_key_keep_their_numbers_when_others_leave(
    tmp_path: Path, lives: list[Life]
) -> None:
    events: list[Event] = [("insert", "a", 2, 0.5, None)] * 1500
    events[700:700] = [("insert", "a", 1, 0.5, None)] * 3
    # All but three leave, and the slots of the others are numbered again.
    events += [("delete", "a", 9, 0.5, None), ("update", "b", 1, 2.0, None)]
    events += [("insert", "b", 5, 0.5, None)]
    life = Life(new_database(None, tmp_path, "packed"), events)
    lives.append(life)
    life.run(len(events) - 2, keeps=True)
    life.end()
    life.run(len(events), keeps=True)
    assert life.in_database()[2] == life.in_state()[2]
    assert life.in_state()[2] == [
        *["{'k': 'a', 'n': 1, 'v': 2.0}"] * 3, "{'k': 'b', 'n': 5, 'v': 0.5}"
    ]  # fmt: skip


ADDED = "9 as n, 1e301 as v, true as flag insert into T"
#: No event changes the rows with n of 9.
ON_DEMAND = {
    3: f"select 'q' as k, {ADDED}",
    9: "update T set T.flag = false, T.k = 'r' on T.k == 'q'",
    15: "select 'a' as k, 4.0 as v, 3L as n update or insert into Pairs on Pairs.n == 3L",
    40: "delete Pairs on Pairs.k == 'a'",
    41: f"select 'r' as k, {ADDED}",
    60: "update T set T.k = str:concat(T.k, 'z') on T.n == 9",
    61: f"update T set T.k = '{'x' * 300}' on T.n == 9",
}


@pytest.mark.slow
@pytest.mark.sampled(2)
def test_on_demand_changes_are_written_in_their_place(
    store: TestDatabase, lives: list[Life]
) -> None:
    life = Life(store, events_of(90, 3))
    lives.append(life)
    life.queries = ON_DEMAND
    life.run(12, keeps=False)
    assert life.in_database() == life.in_state()
    assert any("'r'" in row for row in life.in_database()[0])
    life.run(30, keeps=False)
    # It was not stored: all is made again, and nothing is written again.
    life.end()
    life.run(45, keeps=True)
    life.run(70, keeps=False)
    life.end()
    life.run(90, keeps=True)
    assert life.in_database() == life.in_state()
    outcomes = life.executor._changes.outcomes
    assert outcomes["3"] == outcomes["9"] == outcomes["60"] == {"changed": 1}
    assert outcomes["41"]["error"]["code"] == "MESH-O111"
    assert "300 characters" in outcomes["61"]["error"]["detail"]
    # Each position has one content, however often it is read.
    assert len({position for position, _ in life.rows}) == len(set(map(str, life.rows)))


@settings(
    max_examples=examples(12),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    events=st.lists(EVENT, max_size=25),
    cuts=st.lists(st.tuples(st.integers(0, 25), st.booleans(), st.booleans()), max_size=6),
)
def test_any_cuts_and_ends_write_the_same(
    tmp_path: Path, events: list[Event], cuts: list[tuple[int, bool, bool]]
) -> None:
    calm = Life(new_database(None, tmp_path, f"calm{next(_numbers)}"), events)
    life = Life(new_database(None, tmp_path, f"cut{next(_numbers)}"), events)
    try:
        calm.run(len(events), keeps=True)
        for stop, keeps, ends in cuts:
            if life.at <= stop <= len(events):
                life.run(stop, keeps=keeps)
            if ends:
                life.end()
        life.run(len(events), keeps=True)
        assert life.in_database() == life.in_state() == calm.in_state() == calm.in_database()
        # Each position has one content, however often it is read.
        assert {p: str(r) for p, r in life.rows} == {p: str(r) for p, r in calm.rows}
    finally:
        calm.output.close()
        life.output.close()
