"""Tables that are read from their databases: answers and rows are those of a table in the state."""

from __future__ import annotations

import itertools
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.language.parser import parse
from mesh.model.stored import AnyKey, Backend
from mesh.operators.executor import Executor, InputRun
from mesh.plan.bind import bind
from mesh.spark.store_output import StoreOutput
from mesh.store.engine import engine_of
from tests.store.test_tables import EVENT, Event, events_of, runs_of
from tests.support.databases import new_database
from tests.support.examples import examples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mesh.model.stored import Clause
    from tests.support.databases import TestDatabase

APP = """
define stream S (op string, k string, n int, v double, flag bool);
{store} @PrimaryKey('k') @Index('n') define table T (k string, n int, v double, flag bool);
{store} @PrimaryKey('n', 'k') @Index('v', 'k') define table Pairs (k string, v double, n long);
from S[op == 'insert'] select k, n, v, flag insert into T;
from S[op == 'delete'] select n delete T on T.n == n;
from S[op == 'update'] select k, v update T set T.v = v, T.n = T.n + 1 on T.v < v;
from S[op == 'upsert'] select k, n, v, flag update or insert into T on T.k == k;
from S[op == 'rename'] select k, n update T set T.k = str:concat(k, 'x') on T.n == n;
from S select k, v, convert(n, 'long') as n update or insert into Pairs
set Pairs.v = v on Pairs.k == k and Pairs.n == n;
from S[op == 'delete']#window.length(2) select k delete Pairs on Pairs.k == k and Pairs.v > 1.0;
from S[(T.k == k) in T] select k, 1 as how insert into Known;
from S join T on S.n == T.n and not (T.v is null) select T.k as k, T.n as how insert into Known;
from S join Pairs as P on (P.v > S.v or str:contains(P.k, S.k)) and P.flag2 select P.k as k,
convert(P.n, 'int') as how insert into Known;
from S[(T.v * 2.0 > v and T.n >= 0) in T] select k, 3 as how insert into Known;
""".replace(" and P.flag2", "")


class Life:
    """An executor whose tables are in a database, or in its state alone."""

    def __init__(self, store: str, events: list[Event], order: str = "") -> None:
        # Two attributes of one index are for stores only.
        text = APP if store else APP.replace("('v', 'k')", "('v')")
        app = bind(parse(text.replace("{store}", store)))
        self.executor = Executor(app, ("Known", "!"), salt="p")
        self.output = StoreOutput.of(self.executor, 1)
        self.events = events
        self.at = 0
        self.known: list[str] = []
        #: The number of statements, by kind.
        self.reads = 0
        for table in self.executor.lookup_tables:
            self._count(table)

    def _count(self, table: Any) -> None:
        find = table.find_rows

        def counted(clause: Clause) -> pa.RecordBatch:
            self.reads += 1
            found: pa.RecordBatch = find(clause)
            return found

        table.find_rows = counted

    def run(self, stop: int) -> None:
        """Process events to below ``stop``, and write."""
        runs = runs_of(self.events, self.at, stop)
        if self.output is not None:
            self.output.prepare()
        made = self.executor.run(runs, {"S": stop * 10})
        made = made if self.output is None else self.output.take(made)
        for run in made:
            if run.stream == "Known":
                # Rows of one event have no order that databases share.
                at = [row["k"] + f" {row['how']}" for row in run.rows.to_pylist()]
                times = run.time_ms.tolist()
                self.known += [f"{t} {one}" for t, one in zip(times, at, strict=True)]
        if self.output is not None:
            self.output.commit()
        self.at = stop

    def tables(self) -> list[list[str]]:
        """All rows, as a query that asks for them finds them."""
        if self.output is not None:
            self.output.prepare()
        # A cache has at most three rows.
        assert all(len(table) <= 3 for table in self.executor.lookup_tables)
        tables = self.executor.tables.values()
        return [sorted(map(str, table.rows().to_pylist())) for table in tables]

    def close(self) -> None:
        if self.output is not None:
            self.output.close()


@pytest.fixture
def lives() -> Iterator[list[Life]]:
    made: list[Life] = []
    yield made
    for life in made:
        life.close()


_numbers = itertools.count(1)
CACHES = (
    "",
    "@cache(size='3')",
    "@cache(size='2', cache.policy='LRU')",
    "@cache(size='2', cache.policy='LFU')",
)


def in_database(store: TestDatabase, cache: str = "") -> str:
    if not cache:
        return store.store(kept="false")
    return f"{store.store()[:-1]}, {cache})"


@pytest.mark.slow
def test_queries_find_what_they_find_in_the_state(
    any_store: TestDatabase, lives: list[Life]
) -> None:
    events = events_of(50, 4)
    plain, life = Life("", events), Life(in_database(any_store), events)
    lives += [plain, life]
    for stop in (1, 3, 20, 50):
        plain.run(stop)
        life.run(stop)
        assert life.tables() == plain.tables()
    assert sorted(life.known) == sorted(plain.known)
    assert len(plain.known) > 20


@settings(
    max_examples=examples(8),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    events=st.lists(EVENT, max_size=15),
    cuts=st.lists(st.integers(0, 15), max_size=4),
    cache=st.sampled_from(CACHES),
)
def test_any_cuts_and_caches_find_the_same(
    tmp_path: Path, events: list[Event], cuts: list[int], cache: str
) -> None:
    store = new_database(None, tmp_path, f"looked{next(_numbers)}")
    plain, life = Life("", events), Life(in_database(store, cache), events)
    try:
        plain.run(len(events))
        for stop in (*sorted(cuts), len(events)):
            if life.at <= stop <= len(events):
                life.run(stop)
        assert sorted(life.known) == sorted(plain.known)
        assert life.tables() == plain.tables()
    finally:
        life.close()


SMALL = """
define stream S (k string, n int);
{store} @PrimaryKey('k') define table T (k string, n int, f float, flag bool);
from S join T on T.k == S.k select S.k as k, T.n as n insert into Out;
from S join T on T.n == S.n and T.flag == true select S.k as k, T.n + 100 as n insert into Out;
from S[n < 0] select k update T set T.n = T.n + 1000 on T.k == k;
"""


class Small:
    """An executor of a text, and what its events find."""

    def __init__(self, store: str, text: str = SMALL) -> None:
        self.executor = Executor(bind(parse(text.replace("{store}", store))), ("Out",), salt="s")
        output = StoreOutput.of(self.executor, 1)
        assert output is not None
        self.output, self.at = output, 0
        (self.table,) = self.executor.lookup_tables
        self.clauses: list[Any] = []
        find = self.table.find_rows
        assert find is not None

        def counted(clause: Clause) -> pa.RecordBatch:
            self.clauses.append(clause)
            return find(clause)

        self.table.find_rows = counted

    def send(self, *events: tuple[str | None, int]) -> list[tuple[str, int]]:
        columns = list(zip(*events, strict=True))
        rows = pa.RecordBatch.from_arrays(
            [pa.array(columns[0], pa.string()), pa.array(columns[1], pa.int32())], names=["k", "n"]
        )
        sequence = np.arange(len(events)) + self.at + 1
        self.at += len(events)
        self.output.prepare()
        made = self.executor.run([InputRun("S", sequence, sequence, rows)], {"S": self.at})
        found = [row for run in self.output.take(made) for row in run.rows.to_pylist()]
        self.output.commit()
        return sorted((f"{row['k']}", row["n"]) for row in found)


@pytest.fixture
def smalls() -> Iterator[list[Small]]:
    made: list[Small] = []
    yield made
    for one in made:
        one.output.close()


def change(store: TestDatabase, text: str) -> None:
    """Another program changes the database."""
    quote = "`" if store.database.backend is Backend.MYSQL else '"'
    with engine_of(store.database).begin() as connection:
        connection.execute(sa.text(text.replace("#", quote)))


def test_rows_of_other_programs_are_found(store: TestDatabase, smalls: list[Small]) -> None:
    small = Small(in_database(store))
    smalls.append(small)
    assert small.send(("a", 1)) == []
    insert = "INSERT INTO #T# (#k#, #n#, #f#, #flag#) VALUES "
    change(store, f"{insert} ('a', 1, 0.1, {'true' if 'post' in store.url else '1'})")
    change(store, f"{insert} ('b%_', 1, NULL, NULL)")
    assert small.send(("a", 1), (None, 1), ("b%_", 5), ("a\0", 2)) == [
        ("None", 101), ("a", 1), ("a", 101), ("b%_", 1),
    ]  # fmt: skip
    # The row is read again, and written with what has changed since.
    change(store, "UPDATE #T# SET #n# = 7 WHERE #k# = 'a'")
    assert small.send(("a", -1)) == [("a", 7)]
    assert small.send(("a", 1007)) == [("a", 1007), ("a", 1107)]
    quote = "`" if store.database.backend is Backend.MYSQL else '"'
    n, f, flag = store.rows(f"SELECT n, f, flag FROM {quote}T{quote} WHERE k = 'a'")[0]
    assert (n, round(f, 3), bool(flag)) == (1007, 0.1, True)


@pytest.mark.slow
def test_the_keys_of_a_run_are_one_statement(any_store: TestDatabase, smalls: list[Small]) -> None:
    small = Small(in_database(any_store))
    smalls.append(small)
    small.send(*((f"k{number}", number) for number in range(700)))
    # One by the primary key, and one by the other column.
    assert len(small.clauses) == 2
    assert sorted(len(_keys(clause)) for clause in small.clauses) == [700, 700]
    small.clauses.clear()
    small.send(("k1", 1), ("k2", 1), ("k1", 1))
    assert [_keys(clause) for clause in small.clauses] == [(("k1",), ("k2",)), ((1, True),)]


SUMS = """
define stream S (k string, n int);
{store} @PrimaryKey('k') define table T (k string, n int, flag bool);
from S select k, n, n > 1 as flag update or insert into T set T.n = T.n + n on T.k == k;
"""


@pytest.mark.parametrize("is_kept", [True, False])
def test_set_changes_the_row_that_is_there(any_store: TestDatabase, is_kept: bool) -> None:
    store = any_store.store() if is_kept else in_database(any_store)
    executor = Executor(bind(parse(SUMS.replace("{store}", store))), ("!",), salt="s")
    output = StoreOutput.of(executor, 1)
    assert output is not None
    for at, run in enumerate(([("a", 1), ("a", 2), ("b", 5)], [("a", 4), ("c", 1)])):
        keys, numbers = zip(*run, strict=True)
        columns: list[Any] = [pa.array(keys, pa.string()), pa.array(numbers, pa.int32())]
        rows = pa.RecordBatch.from_arrays(columns, names=["k", "n"])
        sequence = np.arange(len(run)) + 10 * at + 1
        output.prepare()
        output.take(executor.run([InputRun("S", sequence, sequence, rows)], {"S": 10 * at + 9}))
        output.commit()

    output.close()
    # Another reader finds what has been written.
    reader = Executor(
        bind(parse(SUMS.replace("{store}", in_database(any_store)))), ("!",), salt="r"
    )
    with closing(cast("StoreOutput", StoreOutput.of(reader, 1))) as there:
        there.prepare()
        (table,) = reader.lookup_tables
        found = sorted(table.rows().to_pylist(), key=lambda row: str(row["k"]))
    assert found == [
        {"k": "a", "n": 7, "flag": False},
        {"k": "b", "n": 5, "flag": True},
        {"k": "c", "n": 1, "flag": False},
    ]


def _keys(clause: Any) -> Any:
    return clause.keys if isinstance(clause, AnyKey) else clause.parts[0].keys


def test_a_cache_answers_until_its_rows_are_too_old(
    store: TestDatabase, smalls: list[Small], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = [10**18]
    monkeypatch.setattr("mesh.spark.store_output.time.monotonic_ns", lambda: now_ns[0])
    small = Small(in_database(store, "@cache(size='10', retention.period='1 min')"))
    smalls.append(small)
    small.send(("x", 1))
    change(store, "INSERT INTO #T# (#k#, #n#) VALUES ('a', 1)")
    assert small.send(("a", 50)) == [("a", 1)]
    change(store, "UPDATE #T# SET #n# = 2")
    small.clauses.clear()
    assert small.send(("a", 50)) == [("a", 1)]
    # Other columns than the key are asked in the database.
    assert [clause.columns for clause in small.clauses] == [("n", "flag")]
    now_ns[0] += 60 * 10**9
    assert small.send(("a", 50)) == [("a", 2)]
