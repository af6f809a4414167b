"""Rows that a database refuses by a rule of its own: failed events; the others are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
import sqlalchemy as sa

from mesh.errors import MeshError
from mesh.model.stored import (
    DELETED,
    Backend,
    MergeRule,
    StoredColumn,
    StoredTable,
    changes_channel,
    changes_schema,
    rows_channel,
)
from mesh.model.types import AttributeType
from mesh.plan.build import plan
from mesh.store.engine import engine_of
from mesh.store.stored_rows import write_most
from mesh.store.writer import StoredRows, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.databases import TestDatabase

T = AttributeType
TABLE = StoredTable(
    "T",
    (
        StoredColumn("k", T.STRING, MergeRule.KEY, 20),
        StoredColumn("n", T.INT, MergeRule.LATEST),
        StoredColumn("text", T.STRING, MergeRule.LATEST, 100),
    ),
)
#: A table that others have made, with rules of its own.
RULES = (
    "CREATE TABLE {q}T{q} ({q}k{q} varchar(20) {bin} PRIMARY KEY, "
    "{q}n{q} integer NOT NULL {unique}, "
    "{q}text{q} varchar(100), CHECK ({q}n{q} >= 0), CHECK (length({q}text{q}) <= 5))"
)
Change = tuple[str, int | None, str | None, bool]


def quoted(store: TestDatabase, text: str) -> str:
    is_mysql = store.database.backend is Backend.MYSQL
    binary = "COLLATE utf8mb4_bin" if is_mysql else ""
    # MySQL updates the row with which another one collides.
    unique = "" if is_mysql else "UNIQUE"
    return text.format(q="`" if is_mysql else '"', bin=binary, unique=unique)


def colliding(store: TestDatabase, number: int) -> int:
    """A number that another row has; one that breaks another rule where that is none."""
    return -number if store.database.backend is Backend.MYSQL else number


def run_sql(store: TestDatabase, text: str) -> None:
    with engine_of(store.database).begin() as connection:
        connection.execute(sa.text(quoted(store, text)))


def rows_in(store: TestDatabase) -> list[tuple[Any, ...]]:
    return sorted(store.rows(quoted(store, "select k, n, {q}text{q} from {q}T{q}")))


def changes(first: int, *rows: Change) -> StoredRows:
    names = ["k", "n", "text", DELETED]
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    position = np.arange(first, first + len(rows), dtype=np.int64)
    batch = pa.RecordBatch.from_pydict(columns, changes_schema(TABLE))
    return StoredRows(changes_channel("T"), position, batch)


def put(k: str, n: int | None, text: str | None = "") -> Change:
    return (k, n, text, False)


def writer_of(store: TestDatabase, epoch: int = 1, **options: Any) -> StoreWriter:
    return StoreWriter(store.database, "p", epoch, [TABLE], refusable=["T"], **options)


#: As a trigger refuses a row.
RAISES = {
    Backend.SQLITE: """
        create trigger f before insert on T when new.n = 13 begin
        select raise(abort, 'unlucky'); end""",
    Backend.MYSQL: """
        create trigger f before insert on T for each row begin if new.n = 13 then
        signal sqlstate '45000' set message_text = 'unlucky'; end if; end""",
    Backend.POSTGRESQL: """
        create function f() returns trigger as $$ begin if new.n = 13 then
        raise exception 'unlucky'; end if; return new; end $$ language plpgsql;
        create trigger f before insert on "T" for each row execute function f()""",
}


def positions(one: StoreWriter) -> list[int]:
    return [row.position for row in one.refused(0)]


# --- halving


def test_one_refused_row_of_many_costs_some_attempts() -> None:
    tried: list[int] = []

    def attempt(rows: Sequence[int]) -> str | None:
        tried.append(len(rows))
        return "no" if 6_789 in rows else None

    assert write_most(range(10_000), attempt) == {6_789: "no"}
    assert len(tried) <= 2 * 14 + 2


def test_each_row_is_written_once_and_only_refused_ones_are_left() -> None:
    chance = np.random.default_rng(7)
    for count in (0, 1, 2, 3, 17, 64):
        for share in (0.0, 0.3, 1.0):
            bad = set(np.flatnonzero(chance.random(count) < share).tolist())
            written: list[int] = []

            def attempt(
                rows: Sequence[int], bad: set[int] = bad, written: list[int] = written
            ) -> str | None:
                if bad & set(rows):
                    return "no"
                written.extend(rows)
                return None

            assert set(write_most(range(count), attempt)) == bad
            assert sorted(written) == sorted(set(range(count)) - bad)


# --- the writer


@pytest.mark.parametrize("copy_rows", [1, 1000], ids=["bulk", "few"])
def test_a_row_that_a_trigger_refuses_costs_itself(store: TestDatabase, copy_rows: int) -> None:
    run_sql(store, RULES)
    with engine_of(store.database).begin() as connection:
        connection.exec_driver_sql(RAISES[store.database.backend])
    one = writer_of(store)
    one.copy_rows = copy_rows
    one.commit([changes(1, put("a", 1), put("b", 13), put("c", 2))])
    (refused,) = one.refused(0)
    assert (refused.position, "unlucky" in refused.reason) == (2, True)
    assert [row[0] for row in rows_in(store)] == ["a", "c"]
    one.close()


@pytest.mark.parametrize("copy_rows", [1, 1000], ids=["bulk", "few"])
def test_rows_that_break_a_rule_are_refused_and_the_others_written(
    store: TestDatabase, copy_rows: int
) -> None:
    run_sql(store, RULES)
    one = writer_of(store)
    one.copy_rows = copy_rows
    one.commit([changes(1, put("a", 1), put("b", 2))])
    assert positions(one) == []
    given = [
        put("c", 3, "fine"),
        put("check", -1),
        put("unique", colliding(store, 2)),
        put("null", None),
        put("long", 9, "too long"),
        put("d", 4),
        # A state before the last one is taken if the last one is refused.
        put("e", 5),
        put("e", -5),
        ("b", 2, "", True),
        put("now free", 2),
    ]
    one.commit([changes(3, *given)])
    assert one.position == 12
    assert rows_in(store) == [
        ("a", 1, ""),
        ("c", 3, "fine"),
        ("d", 4, ""),
        ("e", 5, ""),
        ("now free", 2, ""),
    ]
    found = one.refused(0)
    assert [row.position for row in found] == [4, 5, 6, 7, 10]
    assert all(row.table == "T" and "the database refuses the row" in row.reason for row in found)
    assert orjson.loads(found[0].event) == {"k": "check", "n": -1, "text": ""}
    # They are told once, and to the next writer until they are dropped.
    assert positions(one) == []
    one.close()
    two = writer_of(store, 2)
    two.commit([changes(3, *given)])
    assert positions(two) == [4, 5, 6, 7, 10]
    two.drop_refused(6)
    two.close()
    three = writer_of(store, 3)
    assert positions(three) == [7, 10]
    three.close()


def test_one_row_of_ten_thousand_is_found_with_few_statements(store: TestDatabase) -> None:
    run_sql(store, RULES)
    one = writer_of(store)
    one.open()
    statements: list[str] = []
    engine = engine_of(store.database)

    def note(_c: Any, name: str, *_more: Any) -> None:
        statements.append(name)

    sa.event.listen(engine, "savepoint", note)
    given = [put(f"k{n:05}", n) for n in range(10_000)]
    given[6_789] = put("bad", -1)
    one.commit([changes(1, *given)])
    sa.event.remove(engine, "savepoint", note)
    assert positions(one) == [6_790]
    assert store.rows(quoted(store, "select count(*) from {q}T{q}")) == [(9_999,)]
    assert 14 <= len(statements) <= 2 * 14 + 2
    one.close()


@pytest.mark.slow
@pytest.mark.sampled(2)
def test_all_rows_may_be_refused(store: TestDatabase) -> None:
    run_sql(store, RULES)
    one = writer_of(store)
    one.commit([changes(1, *[put(f"k{n}", -1 - n) for n in range(300)])])
    assert positions(one) == list(range(1, 301))
    assert (rows_in(store), one.position) == ([], 300)
    one.close()


def test_a_deleted_row_that_another_table_refers_to_is_refused(store: TestDatabase) -> None:
    if store.database.backend is Backend.SQLITE:
        pytest.skip("foreign keys are not checked there")
    run_sql(store, RULES)
    run_sql(
        store,
        "CREATE TABLE other ({q}k{q} varchar(20) {bin}, FOREIGN KEY ({q}k{q}) REFERENCES "
        "{q}T{q} ({q}k{q}))",
    )
    one = writer_of(store)
    one.commit([changes(1, put("a", 1), put("b", 2))])
    run_sql(store, "INSERT INTO other VALUES ('a')")
    one.commit([changes(3, ("a", 1, "", True), ("b", 2, "", True))])
    assert positions(one) == [3]
    assert rows_in(store) == [("a", 1, "")]
    one.close()


def test_rules_that_are_checked_at_the_end_refuse_rows_too(store: TestDatabase) -> None:
    if store.database.backend is not Backend.POSTGRESQL:
        pytest.skip("it has no such rules")
    run_sql(
        store,
        'CREATE TABLE "T" (k varchar(20) PRIMARY KEY, n int UNIQUE DEFERRABLE INITIALLY DEFERRED, '
        "text varchar(100))",
    )
    one = writer_of(store)
    one.commit([changes(1, put("a", 1), put("b", 1), put("c", 2))])
    assert positions(one) == [2]
    assert rows_in(store) == [("a", 1, ""), ("c", 2, "")]
    one.close()


def test_without_the_option_a_refused_row_holds_the_others(store: TestDatabase) -> None:
    run_sql(store, RULES)
    one = StoreWriter(store.database, "p", 1, [TABLE])
    with pytest.raises(MeshError):
        one.commit([changes(1, put("a", 1), put("check", -1))])
    assert (rows_in(store), one.position) == ([], 0)
    assert not sa.inspect(engine_of(store.database)).has_table("mesh_refused")


def test_an_older_writer_keeps_no_refused_rows(store: TestDatabase) -> None:
    run_sql(store, RULES)
    old, new = writer_of(store), writer_of(store, 2)
    old.open()
    new.open()
    with pytest.raises(MeshError, match="MESH-S141"):
        old.commit([changes(1, put("check", -1))])
    assert positions(new) == []
    new.close()


@pytest.mark.parametrize("reason", ["deadlock", "serialization", "lock timeout", "lost"])
def test_a_database_that_is_away_refuses_no_row(store: TestDatabase, reason: str) -> None:
    """Failures while refused rows are looked for, too."""
    run_sql(store, RULES)
    one = writer_of(store)
    one.commit([changes(1, put("a", 1))])
    engine = engine_of(store.database)
    left = [3]

    def fail(_c: Any, _u: Any, statement: str, *_more: Any) -> None:
        if not statement.startswith("INSERT INTO") or "mesh_" in statement:
            return
        left[0] -= 1
        if not left[0]:
            driver = engine.dialect.loaded_dbapi
            raise sa.exc.OperationalError(statement, {}, driver.OperationalError(reason))

    sa.event.listen(engine, "before_cursor_execute", fail)
    given = changes(2, put("check", -1), put("b", 2), put("c", 3))
    with pytest.raises(MeshError, match="MESH-S140"):
        one.commit([given])
    sa.event.remove(engine, "before_cursor_execute", fail)
    assert left[0] == 0
    assert rows_in(store) == [("a", 1, "")]
    assert positions(one) == []
    again = writer_of(store)
    again.commit([given])
    assert positions(again) == [2]
    assert rows_in(store) == [("a", 1, ""), ("b", 2, ""), ("c", 3, "")]
    again.close()
    one.close()


def test_rows_of_one_table_in_several_parts_are_copied_once(store: TestDatabase) -> None:
    """Amounts between purges: the temporary table has only those of one part."""
    table = StoredTable(
        "Sums",
        (StoredColumn("at", T.LONG, MergeRule.KEY), StoredColumn("n", T.LONG, MergeRule.SUM)),
        "at",
    )
    one = StoreWriter(store.database, "p", 1, [table])
    one.copy_rows = 1
    rows = pa.RecordBatch.from_pydict({"at": [5, 5], "n": [30, 40]}, table.arrow)
    purge = pa.RecordBatch.from_pydict({"before_ms": [1]})
    one.commit(
        [
            StoredRows(rows_channel("Sums"), np.array([1, 3]), rows),
            StoredRows("@purge Sums", np.array([2]), purge),
        ]
    )
    assert store.rows(quoted(store, "select n from {q}Sums{q}")) == [(70,)]
    one.close()


# --- the option


APP = """@App:name('Refusing')
define stream S (k string, n int, v string);
{store} @PrimaryKey('k') define table T (k string, n int, text string);
from S select k, n, v as text update or insert into T on T.k == k;
from S select k insert into Out;
"""


def refusing(store: str, more: str = ", kept='false', on.error='STORE'") -> str:
    return APP.format(store=store.removesuffix(")") + f"{more})")


@pytest.mark.parametrize(
    "more", [", on.error='STORE'", ", on.error='STORE', @cache(size='9')"], ids=["kept", "cached"]
)
def test_rows_that_the_mesh_has_too_are_not_refused(more: str) -> None:
    with pytest.raises(MeshError, match="MESH-P900") as told:
        plan(refusing("@store(type='rdbms', jdbc.url='jdbc:postgresql://h/d')", more))
    assert "kept='false'" in str(told.value.hint)
