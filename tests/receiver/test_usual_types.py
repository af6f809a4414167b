"""The usual column types of PostgreSQL and MariaDB, by every way in and out: one value everywhere.

A row that another program wrote is read by a store and by the source ``cdc`` in both modes, as its
own Siddhi type and as text.  What was read is written by a store and by the sink ``rdbms``: the
database then has the same value three times.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from mesh.connect.contract import Context, NodeAccess, Record
from mesh.mapping.sinks import plain_json_sink
from mesh.model.stored import (
    Backend,
    MergeRule,
    StoredColumn,
    StoredTable,
    changes_channel,
    changes_schema,
)
from mesh.model.types import AttributeType as A
from mesh.receiver.types.rdbms_sink import RdbmsSink
from mesh.store.writer import StoredRows, StoreWriter
from tests.support.cdc import MODES, Case, execute, new
from tests.support.column_types import TYPES
from tests.support.databases import PASSWORD, USER

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.databases import TestDatabase

#: Type of a column, a value in SQL, an attribute's type, its value, and the text of the value.
POSTGRESQL: list[tuple[str, str, A, Any, str]] = [
    ("smallint", "-32768", A.INT, -32768, "-32768"),
    ("integer", "2147483647", A.INT, 2147483647, "2147483647"),
    ("bigint", "-9223372036854775808", A.LONG, -(2**63), "-9223372036854775808"),
    ("numeric(12,2)", "12.5", A.DOUBLE, 12.5, "12.50"),
    ("numeric(20,0)", "9007199254740993", A.STRING, "9007199254740993", "9007199254740993"),
    ("numeric", "1.10", A.STRING, "1.10", "1.10"),
    ("real", "0.1", A.FLOAT, float(np.float32(0.1)), "0.1"),
    ("double precision", "0.1", A.DOUBLE, 0.1, "0.1"),
    ("boolean", "true", A.BOOL, True, "true"),
    ("text", "''", A.STRING, "", ""),
    ("varchar(20)", "' é''\"\\,'", A.STRING, " é'\"\\,", " é'\"\\,"),
    ("char(5)", "'ab'", A.STRING, "ab   ", "ab   "),
    ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-426614174000'", A.STRING,
     "a0eebc99-9c0b-4ef8-bb6d-426614174000", "a0eebc99-9c0b-4ef8-bb6d-426614174000"),
    ("date", "'0044-03-15 BC'", A.STRING, "0044-03-15 BC", "0044-03-15 BC"),
    ("time", "'24:00:00'", A.STRING, "24:00:00", "24:00:00"),
    ("timetz", "'10:00:00.5+05:30'", A.STRING, "10:00:00.5+05:30", "10:00:00.5+05:30"),
    ("timestamp", "'2026-03-29 02:30:00.000001'", A.STRING, "2026-03-29 02:30:00.000001",
     "2026-03-29 02:30:00.000001"),
    ("timestamptz", "'2026-11-29 10:00:00.120+05:30'", A.STRING, "2026-11-29 04:30:00.12+00",
     "2026-11-29 04:30:00.12+00"),
    ("interval", "'1 year -3 days 04:05:06.7'", A.STRING, "1 year -3 days +04:05:06.7",
     "1 year -3 days +04:05:06.7"),
    ("json", "'{\"a\":  1.0}'", A.STRING, '{"a":  1.0}', '{"a":  1.0}'),
    ("jsonb", "'{\"n\": 36893488147419103232}'", A.STRING, '{"n": 36893488147419103232}',
     '{"n": 36893488147419103232}'),
    ("bytea", r"'\x00ff'", A.STRING, r"\x00ff", r"\x00ff"),
    ("inet", "'10.0.0.1/8'", A.STRING, "10.0.0.1/8", "10.0.0.1/8"),
    ("cidr", "'10.0.0.0/8'", A.STRING, "10.0.0.0/8", "10.0.0.0/8"),
    ("macaddr", "'08-00-2b-01-02-03'", A.STRING, "08:00:2b:01:02:03", "08:00:2b:01:02:03"),
    ("integer[]", "'{1,null,3}'", A.STRING, "{1,NULL,3}", "{1,NULL,3}"),
    ("text[]", "array['a b','',null]", A.STRING, '{"a b","",NULL}', '{"a b","",NULL}'),
    ("mood", "'so so'", A.STRING, "so so", "so so"),
    ("positive", "5", A.INT, 5, "5"),
    ("bit(8)", "b'00000101'", A.STRING, "00000101", "00000101"),
    ("money", "-1234.5", A.STRING, "-$1,234.50", "-$1,234.50"),
]  # fmt: skip
MARIADB: list[tuple[str, str, A, Any, str]] = [
    ("boolean", "true", A.BOOL, True, "1"),
    ("tinyint", "-128", A.INT, -128, "-128"),
    ("smallint unsigned", "65535", A.INT, 65535, "65535"),
    ("mediumint", "-8388608", A.INT, -8388608, "-8388608"),
    ("int", "-2147483648", A.INT, -2147483648, "-2147483648"),
    ("int unsigned", "4294967295", A.LONG, 4294967295, "4294967295"),
    ("bigint", "9223372036854775807", A.LONG, 2**63 - 1, "9223372036854775807"),
    ("bigint unsigned", "18446744073709551615", A.STRING, "18446744073709551615",
     "18446744073709551615"),
    ("decimal(12,2)", "-0.5", A.DOUBLE, -0.5, "-0.50"),
    ("decimal(20,0)", "9007199254740993", A.LONG, 9007199254740993, "9007199254740993"),
    ("decimal(30,10)", "1.5", A.STRING, "1.5000000000", "1.5000000000"),
    ("float", "0.1", A.FLOAT, float(np.float32(0.1)), "0.10000000149011612"),
    ("double", "123456789.12345679", A.DOUBLE, 123456789.12345679, "123456789.12345679"),
    ("bit(1)", "b'1'", A.BOOL, True, "1"),
    ("bit(12)", "b'101'", A.STRING, "000000000101", "000000000101"),
    ("char(5)", "'ab'", A.STRING, "ab", "ab"),
    ("varchar(20) character set utf8mb4", "' é''\"😀 '", A.STRING, " é'\"😀 ", " é'\"😀 "),
    ("varchar(9) character set latin1", "'€é'", A.STRING, "€é", "€é"),
    ("text", "''", A.STRING, "", ""),
    ("longtext", "repeat('x', 70000)", A.STRING, "x" * 70000, "x" * 70000),
    ("json", "'{\"a\":  12.50}'", A.STRING, '{"a":  12.50}', '{"a":  12.50}'),
    ("binary(4)", "x'0a00'", A.STRING, "0a000000", "0a000000"),
    ("varbinary(4)", "x'0a00'", A.STRING, "0a00", "0a00"),
    ("blob", "x'ff00'", A.STRING, "ff00", "ff00"),
    ("enum('x','y''z')", "'y''z'", A.STRING, "y'z", "y'z"),
    ("set('b','a')", "'a,b'", A.STRING, "b,a", "b,a"),
    ("date", "'2026-03-29'", A.STRING, "2026-03-29", "2026-03-29"),
    ("time(3)", "'-30:00:00.5'", A.STRING, "-30:00:00.500", "-30:00:00.500"),
    ("datetime", "'2026-03-29 02:30:00'", A.STRING, "2026-03-29 02:30:00", "2026-03-29 02:30:00"),
    ("datetime(6)", "'9999-12-31 23:59:59.000001'", A.STRING, "9999-12-31 23:59:59.000001",
     "9999-12-31 23:59:59.000001"),
    ("timestamp(3) null", "'2026-03-29 02:30:00'", A.STRING, "2026-03-29 02:30:00.000",
     "2026-03-29 02:30:00.000"),
    ("year", "2026", A.INT, 2026, "2026"),
    ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-426614174000'", A.STRING,
     "a0eebc99-9c0b-4ef8-bb6d-426614174000", "a0eebc99-9c0b-4ef8-bb6d-426614174000"),
    ("inet6", "'2001:DB8::'", A.STRING, "2001:db8::", "2001:db8::"),
]  # fmt: skip
TABLES = {Backend.POSTGRESQL: POSTGRESQL, Backend.MYSQL: MARIADB}


@pytest.fixture(
    params=[Backend.POSTGRESQL, pytest.param(Backend.MYSQL, marks=pytest.mark.thorough)]
)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    names = {Backend.POSTGRESQL: "postgresql", Backend.MYSQL: "mariadb"}
    made = new(request.getfixturevalue(names[request.param]), tmp_path)
    types = TYPES.split(";") if request.param is Backend.POSTGRESQL else ()
    columns = ", ".join(f"c{at} {row[0]}" for at, row in enumerate(TABLES[request.param]))
    execute(made.database, *types, f"create table t (id integer primary key, {columns})")
    return made


@pytest.mark.parametrize("is_text", [False, True], ids=["typed", "text"])
async def test_a_value_is_the_same_by_every_way(case: Case, is_text: bool) -> None:
    database = case.database
    is_postgresql = database.database.backend is Backend.POSTGRESQL
    types = TABLES[database.database.backend]
    assert len(types) >= 30
    kinds = {f"c{at}": A.STRING if is_text else row[2] for at, row in enumerate(types)}
    # The same moment whatever zone the writing session has.
    first = () if is_postgresql else ("set time_zone = '+00:00'",)
    insert = f"insert into t values (%s, {', '.join(row[1] for row in types)})"
    expected = {f"c{at}": row[4] if is_text else row[3] for at, row in enumerate(types)}
    read: dict[str, dict[str, Any]] = {}

    # In: the source in both modes, and a store.
    attributes = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    for mode in MODES:
        (read[mode],) = await in_thread(case, attributes, *first, insert % 1, mode=mode)
        if mode != MODES[-1]:
            execute(database, "delete from t")
    key = StoredColumn("id", A.INT, MergeRule.KEY)
    columns = (StoredColumn(name, kind, MergeRule.LATEST) for name, kind in kinds.items())
    table = StoredTable("t", (key, *columns))
    writer = StoreWriter(database.database, "p", 1, [table])
    try:
        (read["store"],) = writer.rows(table).drop_columns(["id"]).to_pylist()
        assert read == dict.fromkeys(["listening", "polling", "store"], expected)

        # Out: a store and the sink.
        schema = pa.schema([("id", pa.int32()), *((n, k.arrow) for n, k in kinds.items())])
        rows = [pa.RecordBatch.from_pylist([{"id": n, **expected}], schema) for n in (2, 3)]
        arrays = [*rows[0].columns, pa.array([False])]
        stored = pa.RecordBatch.from_arrays(arrays, schema=changes_schema(table))
        writer.commit([StoredRows(changes_channel("t"), np.array([1]), stored)])
        assert writer.rows(table).drop_columns(["id"]).to_pylist() == [expected] * 2
    finally:
        writer.close()
    await sink(database, plain_json_sink().encode(rows[1])[0])
    shown = "format('%s', {})" if is_postgresql else "cast({} as binary)"
    asked = ", ".join(f"count(distinct {shown.format(name)})" for name in kinds)
    (counts,) = database.rows(f"select count(*), {asked} from t")
    differing = [types[at][0] for at, one in enumerate(counts[1:]) if one != 1]
    assert (counts[0], differing) == (3, [])


async def in_thread(case: Case, attributes: str, *changes: str, mode: str) -> list[Any]:
    """The events of a source, which has an event loop of its own."""
    return await asyncio.to_thread(case.events, attributes, *changes, mode=mode)


async def sink(database: TestDatabase, payload: bytes) -> None:
    given = {"username": USER, "password": PASSWORD, "jdbc.url": database.url, "table.name": "t"}
    made = RdbmsSink()
    try:
        await made.open(Context("a", "S", given, NodeAccess(), producer="s", epoch=1), None)
        await made.write([Record("k", payload, sequence=1)])
    finally:
        await made.close()
