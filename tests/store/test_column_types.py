"""Tables that others made: each column type through a store, with its exact text or its number."""

from __future__ import annotations

import itertools
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from mesh.errors import MeshError
from mesh.language.parser import parse
from mesh.model.column_texts import form
from mesh.model.stored import (
    UNFIT,
    AnyKey,
    Backend,
    Compared,
    Comparison,
)
from mesh.model.types import AttributeType as A
from mesh.operators.executor import Executor, InputRun
from mesh.plan.bind import bind
from mesh.spark.store_output import StoreOutput
from mesh.store.writer import StoreWriter
from tests.support.column_types import (
    MARIADB,
    POSTGRESQL,
    TYPES,
    created,
    execute,
    table_of,
    written,
)
from tests.support.databases import has_xml, new_database

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.support.databases import DatabaseServer, TestDatabase

_numbers = itertools.count(1)


@pytest.fixture(
    params=[Backend.POSTGRESQL, pytest.param(Backend.MYSQL, marks=pytest.mark.thorough)]
)
def server(request: pytest.FixtureRequest) -> DatabaseServer:
    names = {Backend.POSTGRESQL: "postgresql", Backend.MYSQL: "mariadb"}
    running: DatabaseServer = request.getfixturevalue(names[request.param])
    return running


@pytest.fixture
def database(server: DatabaseServer, tmp_path: Path) -> TestDatabase:
    made = new_database(server, tmp_path, f"types{next(_numbers)}")
    if server.backend is Backend.POSTGRESQL:
        execute(made, *TYPES.split(";"))
    return made


@pytest.fixture
def writers() -> Iterator[list[StoreWriter]]:
    made: list[StoreWriter] = []
    yield made
    for writer in made:
        writer.close()


@pytest.mark.slow
def test_each_type_is_its_text_read_written_and_compared(
    database: TestDatabase, writers: list[StoreWriter]
) -> None:
    """Rows are written singly, and over the bulk path; the server shows them all alike."""
    is_postgresql = database.database.backend is Backend.POSTGRESQL
    found = []
    cases: Iterable[tuple[str, str, str]] = POSTGRESQL if is_postgresql else MARIADB
    if not has_xml():
        cases = [one for one in cases if one[0] != "xml"]
    for number, (declared, value, text) in enumerate(cases):
        name = f"t{number}"
        created(database, name, declared, value)
        table = table_of(name, A.STRING)
        writer = StoreWriter(database.database, f"p{number}", 1, [table])
        writers.append(writer)
        read = writer.rows(table).column(1).to_pylist()
        actual = writer.tables[0].columns[1].actual
        assert actual is not None
        writer.commit([written(table, ["b"], text, 1)])
        writer.commit([written(table, [f"c{n}" for n in range(300)], text, 2)])
        again = set(writer.rows(table).column(1).to_pylist())
        lookups = (
            AnyKey(("v",), ((text,), ("nonsense",))),
            Compared("v", Comparison.EQUAL, text),
            Compared("v", Comparison.CONTAINS, text[:3]),
            AnyKey(("k", "v"), (("b", text), ("c1", text), ("c2", "nonsense"))),
        )
        counts = [writer.find(table, one).num_rows for one in lookups]
        shown = "format('%s', v)" if is_postgresql else "v"
        same = database.rows(f"select count(distinct {shown}) from {name}")
        found.append((declared, value, read, form(actual, text), again, counts, same))
    assert found == [
        (declared, value, [text], text, {text}, [302, 302, 302, 2], [(1,)])
        for declared, value, text in cases
    ]


#: Type, value as others write it, attribute, and the value there; None if it has none.
PG_NUMBERS: tuple[tuple[str, str, A, Any], ...] = (
    ("smallint", "5", A.INT, 5),
    ("bigint", "9007199254740993", A.LONG, 2**53 + 1),
    ("bigint", "9007199254740993", A.DOUBLE, None),
    ("bigint", "5", A.DOUBLE, 5.0),
    ("numeric", "5", A.LONG, 5),
    ("numeric", "1.5", A.LONG, None),
    ("numeric", "9223372036854775808", A.LONG, None),
    ("numeric(10,2)", "12.5", A.DOUBLE, 12.5),
    ("numeric", "0.1", A.DOUBLE, 0.1),
    ("numeric", "0.12345678901234567890", A.DOUBLE, None),
    ("real", "0.1", A.FLOAT, float(np.float32(0.1))),
    ("real", "0.1", A.DOUBLE, 0.1),
    ("double precision", "'-infinity'", A.DOUBLE, float("-inf")),
    ("boolean", "true", A.BOOL, True),
)
MARIADB_NUMBERS: tuple[tuple[str, str, A, Any], ...] = (
    ("tinyint(1)", "1", A.BOOL, True),
    ("tinyint(1)", "2", A.BOOL, None),
    ("bit(1)", "b'1'", A.BOOL, True),
    ("bit(20)", "b'101'", A.INT, 5),
    ("int unsigned", "4294967295", A.LONG, 4294967295),
    ("bigint unsigned", "5", A.LONG, 5),
    ("bigint unsigned", "18446744073709551615", A.LONG, None),
    ("bigint", "9007199254740993", A.LONG, 2**53 + 1),
    ("bigint", "9007199254740993", A.DOUBLE, None),
    ("decimal(10,2)", "12.5", A.DOUBLE, 12.5),
    ("decimal(30,20)", "0.12345678901234567890", A.DOUBLE, None),
    ("decimal(20,0)", "5", A.LONG, 5),
    ("float", "0.1", A.FLOAT, float(np.float32(0.1))),
    ("double", "0.1", A.FLOAT, float(np.float32(0.1))),
    ("double", "0.123456789", A.FLOAT, None),
    ("double", "0.1", A.DOUBLE, 0.1),
    ("year", "2026", A.INT, 2026),
)


@pytest.mark.slow
def test_numbers_are_those_of_the_column_or_have_a_reason(
    database: TestDatabase, writers: list[StoreWriter]
) -> None:
    cases = PG_NUMBERS if database.database.backend is Backend.POSTGRESQL else MARIADB_NUMBERS
    found = []
    for number, (declared, value, attribute, expected) in enumerate(cases):
        created(database, f"t{number}", declared, value)
        table = table_of(f"t{number}", attribute)
        writer = StoreWriter(database.database, f"p{number}", 1, [table])
        writers.append(writer)
        rows = writer.rows(table)
        found.append((declared, value, attribute, rows.column(1)[0].as_py()))
        if expected is None:
            assert f"no {attribute} is" in rows.column(UNFIT)[0].as_py()
            continue
        # What was read is written, singly and over the bulk path, and stays the same.
        writer.commit([written(table, ["b"], expected, 1)])
        writer.commit([written(table, [f"c{n}" for n in range(300)], expected, 2)])
        # A float is written as the double that it is, which 0.1 as a double is not.
        values = 2 if (declared, attribute) == ("double", A.FLOAT) else 1
        assert database.rows(f"select count(distinct v) from t{number}") == [(values,)], declared
    assert found == list(cases)


def test_a_type_that_does_not_fit_is_named_with_those_that_do(database: TestDatabase) -> None:
    is_postgresql = database.database.backend is Backend.POSTGRESQL
    time = "timestamptz" if is_postgresql else "datetime"
    created(database, "t", time)
    writer = StoreWriter(database.database, "p", 1, [table_of("t", A.LONG)])
    with pytest.raises(MeshError) as caught:
        writer.open()
    assert caught.value.code == "MESH-S146"
    shown = "timestamp with time zone" if is_postgresql else "datetime"
    assert caught.value.detail == (
        f'column "v" is {shown}, and attribute "v" long; fitting: string.'
    )


APP = """
define stream S (op string, k string, v {type});
{store} @PrimaryKey('k') define table T (k string, v {type});
from S[op == 'upsert'] select k, v update or insert into T on T.k == k;
from S[op == 'update'] select k, v update T set T.v = v on T.k == k;
from S[op == 'ask'] select k insert into Ask;
from Ask join T on T.k == Ask.k select Ask.k as k, T.v as v insert into Known;
from S[op == 'find'] select v insert into Find;
from Find join T on T.v == Find.v select T.k as k, T.v as v insert into Known;
"""
Row = tuple[str, str | None, Any]


def played(database: TestDatabase, type: str, kept: str, *events: Row) -> dict[str, list[Any]]:
    """Rows that leave, by stream, after events that an app with the table ``T`` receives."""
    store = database.store(kept=kept)
    app = bind(parse(APP.replace("{store}", store).replace("{type}", type)))
    executor = Executor(app, ("Known", "!"), salt="p")
    output = StoreOutput.of(executor, 1)
    assert output is not None
    found: dict[str, list[Any]] = {"Known": [], "!": []}
    try:
        output.begin(executor)
        output.prepare()
        schema = executor.input_schemas["S"]
        columns = [
            pa.array(list(c), t)
            for c, t in zip(zip(*events, strict=True), schema.types, strict=True)
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema)
        at = np.arange(1, len(events) + 1)
        made = executor.run([InputRun("S", at, at * 10, rows)], {"S": len(events) * 10})
        for run in output.take(made):
            found[run.stream] += run.rows.to_pylist()
        output.commit()
    finally:
        output.close()
    return found


def name_of(database: TestDatabase) -> str:
    return '"T"' if database.database.backend is Backend.POSTGRESQL else "`T`"


@pytest.mark.parametrize("kept", ["true", "false"])
def test_rows_are_not_written_to_a_table_without_their_key(
    database: TestDatabase, kept: str
) -> None:
    """MySQL would insert them beside the rows of equal key."""
    execute(database, f"create table {name_of(database)} (k varchar(9), v varchar(9))")
    assert played(database, "string", kept, ("ask", "a", None)) == {"Known": [], "!": []}
    with pytest.raises(MeshError, match="has no unique key of k"):
        played(database, "string", kept, ("upsert", "a", "x"))
    assert database.rows(f"select * from {name_of(database)}") == []
    execute(database, f"alter table {name_of(database)} add unique (k)")
    found = played(database, "string", kept, ("upsert", "a", "x"), ("ask", "a", None))
    assert found["Known"] == [{"k": "a", "v": "x"}]


@pytest.mark.parametrize("kept", ["true", "false"])
def test_a_text_that_its_column_can_not_have_fails_its_event_alone(
    database: TestDatabase, kept: str
) -> None:
    is_postgresql = database.database.backend is Backend.POSTGRESQL
    created(database, name_of(database), "timestamptz" if is_postgresql else "timestamp(3)")
    found = played(
        database, "string", kept,
        ("upsert", "a", "2026-11-29T10:00:00.5Z"), ("upsert", "b", "yesterday"),
        ("upsert", "c", "2026-11-29 10:00:00.1234567+00"), ("upsert", "d", None),
        ("ask", "a", None), ("ask", "b", None),
        ("find", "", "2026-11-29 10:00:00.5+00" if is_postgresql else "2026-11-29 10:00:00.500"),
    )  # fmt: skip
    text = "2026-11-29 10:00:00.5+00" if is_postgresql else "2026-11-29 10:00:00.500"
    assert found["Known"] == [{"k": "a", "v": text}] * 2
    reasons = [row["reason"] for row in found["!"]]
    assert len(reasons) == 2
    assert all('"v" is the string' in reason and "timestamp" in reason for reason in reasons)
    shown = f"select k, cast(v as {'text' if is_postgresql else 'char'}) from {name_of(database)}"
    assert database.rows(f"{shown} order by k") == [("a", text), ("d", None)]


@pytest.mark.parametrize("kept", ["true", "false"])
def test_an_event_that_finds_a_value_of_no_long_fails_alone(
    database: TestDatabase, kept: str
) -> None:
    created(database, name_of(database), "numeric(30,0)", "5", "99999999999999999999")
    found = played(
        database, "long", kept,
        ("ask", "a0", 0), ("ask", "a1", 0), ("ask", "a0", 0), ("upsert", "a1", 7), ("ask", "a1", 0),
    )  # fmt: skip
    assert found["Known"] == [{"k": "a0", "v": 5}, {"k": "a0", "v": 5}, {"k": "a1", "v": 7}]
    (failed,) = found["!"]
    assert failed["reason"] == (
        'column "v" of table "T" has Decimal 99999999999999999999, which no long is'
    )


@pytest.mark.parametrize("kept", ["true", "false"])
def test_a_fraction_that_a_column_of_decimals_would_round_fails_its_event(
    database: TestDatabase, kept: str
) -> None:
    created(database, name_of(database), "numeric(6,2)")
    values = {"a": 12.5, "b": 0.125, "c": 12345.0, "d": 0.1 + 0.2, "e": float("inf"), "f": -9999.99}
    found = played(
        database, "double", kept, *(("upsert", key, value) for key, value in values.items())
    )
    assert len(found["!"]) == 4
    stored = database.rows(f"select k, v from {name_of(database)} order by k")
    assert stored == [("a", Decimal("12.50")), ("f", Decimal("-9999.99"))]
