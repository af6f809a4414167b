"""Column types of tables that others made, through the sink ``rdbms``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest

from mesh.connect.contract import Context, NodeAccess, Record, RefusedRecordsError
from mesh.model.stored import Backend
from mesh.receiver.types.rdbms_sink import RdbmsSink
from tests.support import databases
from tests.support.column_types import MARIADB, POSTGRESQL, TYPES, created, execute
from tests.support.databases import PASSWORD, USER

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.databases import DatabaseServer, TestDatabase


@pytest.fixture(
    params=[Backend.POSTGRESQL, pytest.param(Backend.MYSQL, marks=pytest.mark.thorough)]
)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> TestDatabase:
    names = {Backend.POSTGRESQL: "postgresql", Backend.MYSQL: "mariadb"}
    running: DatabaseServer = request.getfixturevalue(names[request.param])
    made = databases.new_database(running, tmp_path, "sinktypes")
    if running.backend is Backend.POSTGRESQL:
        execute(made, *TYPES.split(";"))
    return made


async def wrote(database: TestDatabase, table: str, *values: Any) -> dict[int, str]:
    """The reasons of those that the sink refuses, by number; the others are written."""
    payloads = [orjson.dumps({"k": f"b{n}", "v": value}) for n, value in enumerate(values)]
    return await written(database, table, *payloads)


async def written(database: TestDatabase, table: str, *payloads: bytes) -> dict[int, str]:
    """See ``wrote``."""
    given = {"username": USER, "password": PASSWORD, "jdbc.url": database.url, "table.name": table}
    context = Context("a", "S", given, NodeAccess(), producer=f"p-{table}", epoch=1)
    sink = RdbmsSink()
    refused: dict[int, str] = {}
    try:
        await sink.open(context, None)
        records = [Record("k", one, sequence=n) for n, one in enumerate(payloads, 1)]
        try:
            await sink.write(records)
        except RefusedRecordsError as error:
            refused = dict(error.reasons)
            good = [one for n, one in enumerate(records) if n not in refused]
            if good:
                await sink.write(good)
    finally:
        await sink.close()
    return refused


@pytest.mark.slow
async def test_each_type_is_written_by_its_text(database: TestDatabase) -> None:
    is_postgresql = database.database.backend is Backend.POSTGRESQL
    cases = POSTGRESQL if is_postgresql else MARIADB
    shown = "format('%s', v)" if is_postgresql else "v"
    for number, (declared, value, text) in enumerate(cases):
        created(database, f"t{number}", declared, value)
        assert await wrote(database, f"t{number}", text) == {}, declared
        # It is the value that the other program has written.
        same = database.rows(f"select count(*), count(distinct {shown}) from t{number}")
        assert same == [(2, 1)], declared


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("declared", "value", "expected"),
    [
        (
            "timestamptz",
            1764410400000,
            "is timestamp with time zone and can't have the whole number",
        ),
        ("timestamptz", "soon", "the string soon"),
        ("bytea", "text", "is bytea and can't have the string text"),
        ("bytea", r"\x00", ""),
        ("jsonb", '{"a": 1}', ""),
        ("jsonb", {"a": [1, "x"]}, ""),
        ("jsonb", "not json", "is jsonb"),
        ("uuid", "a0ee", "is uuid"),
        ("integer", 2**31, "is integer and can't have the whole number"),
        ("integer", 1.0, ""),
        ("integer", 1.5, "is integer and can't have the fraction 1.5"),
        ("numeric(5,2)", 1.25, ""),
        ("numeric(5,2)", 1.255, "more than 2 digits"),
        ("boolean", True, ""),
        ("boolean", 1, "is boolean"),
        ("varchar(3)", "abcd", "it has 4 characters, and the column 3"),
        ("varchar(3)", None, ""),
        ("mood", "angry", "is mood"),
        ("double precision", 0.1, ""),
        ("bigint", 2**53 + 1, ""),
    ],
)
async def test_a_value_is_written_or_refused_with_its_column(
    postgresql: DatabaseServer, tmp_path: Path, declared: str, value: Any, expected: str
) -> None:
    """One event that is refused leaves the others of its batch."""
    database = databases.new_database(postgresql, tmp_path, "sinkvalues")
    execute(database, *TYPES.split(";"))
    created(database, "t", declared)
    refused = await wrote(database, "t", None, value, None)
    if not expected:
        assert refused == {}
        found = database.rows("select v from t where k = 'b1'")[0][0]
        assert found == (orjson.loads(value) if value == '{"a": 1}' else found)
        assert database.rows("select count(*) from t") == [(3,)]
        return
    assert list(refused) == [1]
    assert 'column "v"' in refused[1]
    assert expected in refused[1]
    assert database.rows("select k from t order by k") == [("b0",), ("b2",)]


async def test_a_row_that_the_table_refuses_is_told_whatever_the_reason(
    database: TestDatabase,
) -> None:
    is_postgresql = database.database.backend is Backend.POSTGRESQL
    key = "k varchar(20) primary key"
    if is_postgresql:
        execute(
            database,
            f"create table t ({key}, v int check (v < 100))",
            "create function f() returns trigger as $$ begin if new.v = 13 then"
            " raise exception 'unlucky'; end if; return new; end $$ language plpgsql",
            "create trigger f before insert on t for each row execute function f()",
            f"create table g ({key}, v int generated always as (5) stored)",
        )
    else:
        execute(
            database,
            f"create table t ({key}, v int check (v < 100))",
            "create trigger f before insert on t for each row begin if new.v = 13 then"
            " signal sqlstate '45000' set message_text = 'unlucky'; end if; end",
            f"create table g ({key}, v int as (5) stored)",
        )
    execute(database, f"create table n ({key}, v int, w int not null)")
    refused = await wrote(database, "t", 1, 13, 100, 2)
    assert sorted(refused) == [1, 2]
    assert "unlucky" in refused[1]
    assert database.rows("select k from t order by k") == [("b0",), ("b3",)]
    for table in ("g", "n"):
        assert sorted(await wrote(database, table, 7)) == [0], table


async def test_events_of_one_batch_may_have_other_columns(database: TestDatabase) -> None:
    execute(database, "create table t (k varchar(20) primary key, v int default 5, w int)")
    events: list[dict[str, Any]] = [{"k": "a"}, {"k": "b", "v": 1}, {"w": 2, "k": "c"}, {"k": "d"}]
    assert await written(database, "t", *map(orjson.dumps, events)) == {}
    rows = [("a", 5, None), ("b", 1, None), ("c", 5, 2), ("d", 5, None)]
    assert database.rows("select k, v, w from t order by k") == rows
