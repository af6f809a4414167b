"""Column types of tables that others made, with values and their exact texts.

The texts are what the server itself shows, in UTC, with ISO dates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.model.stored import MergeRule, StoredColumn, StoredTable, changes_channel, changes_schema
from mesh.model.types import AttributeType as A
from mesh.store.engine import engine_of
from mesh.store.writer import StoredRows

if TYPE_CHECKING:
    from tests.support.databases import TestDatabase

TYPES = """
create type mood as enum ('happy', 'so so');
create domain positive as integer check (value > 0);
create type pair as (a int, b text)
"""
#: Type, value as others write it, and its text.
POSTGRESQL = (
    ("uuid", "'A0EEBC99-9C0B-4EF8-BB6D-426614174000'", "a0eebc99-9c0b-4ef8-bb6d-426614174000"),
    ("timestamptz", "'2026-11-29 10:00:00.120+05:30'", "2026-11-29 04:30:00.12+00"),
    ("timestamptz", "'infinity'", "infinity"),
    ("timestamptz", "'20260-01-01 00:00:00+00'", "20260-01-01 00:00:00+00"),
    ("timestamp(3)", "'2026-11-29 10:00:00.5'", "2026-11-29 10:00:00.5"),
    ("timestamp", "'0044-03-15 10:00:00 BC'", "0044-03-15 10:00:00 BC"),
    ("date", "'2026-11-29'", "2026-11-29"),
    ("date", "'-infinity'", "-infinity"),
    ("time", "'24:00:00'", "24:00:00"),
    ("timetz", "'10:00:00.5+05:30'", "10:00:00.5+05:30"),
    ("interval", "'1 year 2 months -3 days 04:05:06.7'", "1 year 2 mons -3 days +04:05:06.7"),
    ("interval", "'-30 minutes'", "-00:30:00"),
    ("json", """'{"a":1,  "a":2.0}'""", '{"a":1,  "a":2.0}'),
    (
        "jsonb",
        r"""'{"b":1.50,"aa":1e2,"c":"\u00e9\n","a":null,"d":[true,-0,1e-3,18446744073709551616]}'""",
        (
            '{"a": null, "b": 1.50, "c": "é\\n", "d": [true, 0, 0.001, 18446744073709551616], '
            '"aa": 100}'
        ),
    ),
    (
        "uuid[]",
        "'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,NULL}'",
        "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,NULL}",
    ),
    ("text[]", "array['a b','','NULL','x\"y\\',null,'é']", '{"a b","","NULL","x\\"y\\\\",NULL,é}'),
    ("int[]", "'{{1,2},{3,4}}'", "{{1,2},{3,4}}"),
    ("bool[]", "'{t,f}'", "{t,f}"),
    ("numeric(5,2)[]", "'{1.5}'", "{1.50}"),
    ("mood[]", "'{\"so so\"}'", '{"so so"}'),
    ("numeric", "1.10", "1.10"),
    ("numeric", "123456789012345678901234567890.5", "123456789012345678901234567890.5"),
    ("numeric", "'NaN'", "NaN"),
    ("numeric(10,2)", "12.5", "12.50"),
    ("bytea", r"'\x00ff'", r"\x00ff"),
    ("bit(4)", "b'0101'", "0101"),
    ("bit varying", "b'01'", "01"),
    ("money", "1234.5", "$1,234.50"),
    ("money", "-0.5", "-$0.50"),
    ("char(5)", "'ab'", "ab   "),
    ("varchar(20)", "'ab '", "ab "),
    ("text", "'x'", "x"),
    ("xml", "'<a>x</a>y'", "<a>x</a>y"),
    ("inet", "'10.0.0.0'", "10.0.0.0"),
    ("inet", "'10.0.0.1/8'", "10.0.0.1/8"),
    ("inet", "'::FFFF:1.2.3.4'", "::ffff:1.2.3.4"),
    ("cidr", "'10.0.0.0/8'", "10.0.0.0/8"),
    ("macaddr", "'08-00-2b-01-02-03'", "08:00:2b:01:02:03"),
    ("macaddr8", "'08-00-2b-01-02-03-04-05'", "08:00:2b:01:02:03:04:05"),
    ("double precision", "1e15", "1e+15"),
    ("double precision", "0.1", "0.1"),
    ("real", "0.1", "0.1"),
    ("boolean", "true", "true"),
    ("smallint", "5", "5"),
    ("integer", "-5", "-5"),
    ("bigint", "9223372036854775807", "9223372036854775807"),
    ("mood", "'so so'", "so so"),
    ("positive", "5", "5"),
    ("pair", "'(1,\"a b\")'", '(1,"a b")'),
    ("int4range", "'[1,3)'", "[1,3)"),
    ("point", "'(1,2)'", "(1,2)"),
)
MARIADB = (
    ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-426614174000'", "a0eebc99-9c0b-4ef8-bb6d-426614174000"),
    ("inet4", "'10.0.0.0'", "10.0.0.0"),
    ("inet6", "'2001:DB8::1'", "2001:db8::1"),
    ("datetime", "'2026-11-29 10:00:00'", "2026-11-29 10:00:00"),
    ("datetime(3)", "'2026-11-29 10:00:00.5'", "2026-11-29 10:00:00.500"),
    ("timestamp(6)", "'2026-11-29 10:00:00.5'", "2026-11-29 10:00:00.500000"),
    ("timestamp", "'2026-11-29 10:00:00'", "2026-11-29 10:00:00"),
    ("date", "'2026-11-29'", "2026-11-29"),
    ("time", "'-25:00:01'", "-25:00:01"),
    ("time(2)", "'838:59:59'", "838:59:59.00"),
    ("year", "2026", "2026"),
    ("enum('a','it''s')", "'it''s'", "it's"),
    (r"enum('a','b\\c')", r"'b\\c'", "b\\c"),
    ("set('x','y','z')", "'z,x'", "x,z"),
    ("set('x')", "''", ""),
    ("bit(5)", "b'00101'", "00101"),
    ("bit(64)", "18446744073709551615", "1" * 64),
    ("bigint unsigned", "18446744073709551615", "18446744073709551615"),
    ("bigint", "-9223372036854775808", "-9223372036854775808"),
    ("int unsigned", "4294967295", "4294967295"),
    ("int", "-5", "-5"),
    ("int(5) zerofill", "5", "00005"),
    ("mediumint", "7", "7"),
    ("smallint unsigned", "65535", "65535"),
    ("tinyint(1)", "1", "1"),
    ("decimal(10,2)", "12.5", "12.50"),
    ("decimal(65,30)", "12.5", "12.500000000000000000000000000000"),
    ("float", "0.1", "0.10000000149011612"),
    ("double", "0.1", "0.1"),
    ("double", "123456789.12345679", "123456789.12345679"),
    ("json", """'{"a":1,  "b":1.0}'""", '{"a":1,  "b":1.0}'),
    ("char(5)", "'ab'", "ab"),
    ("varchar(20)", "'ab '", "ab "),
    ("varchar(20) character set latin1", "'é'", "é"),
    ("binary(4)", "x'0a000000'", "0a000000"),
    ("varbinary(10)", "x'00ff00'", "00ff00"),
    ("blob", "x'00'", "00"),
    ("tinytext", "'x'", "x"),
    ("text", "'x'", "x"),
    ("longtext", "'x'", "x"),
)


def execute(database: TestDatabase, *texts: str) -> None:
    with engine_of(database.database).connect() as connection, connection.begin():
        for text in texts:
            connection.exec_driver_sql(text.replace("%", "%%"))


def created(database: TestDatabase, name: str, declared: str, *values: str) -> None:
    """A table as another program makes it, with a row for each value."""
    execute(
        database,
        f"create table {name} (k varchar(20) primary key, v {declared})",
        *(f"insert into {name} values ('a{n}', {value})" for n, value in enumerate(values)),
    )


def table_of(name: str, attribute: A) -> StoredTable:
    columns = (
        StoredColumn("k", A.STRING, MergeRule.KEY),
        StoredColumn("v", attribute, MergeRule.LATEST),
    )
    return StoredTable(name, columns)


def written(table: StoredTable, keys: list[str], value: Any, first: int) -> StoredRows:
    arrays = [
        pa.array(keys),
        pa.array([value] * len(keys), table.columns[1].type.arrow),
        pa.array([False] * len(keys)),
    ]
    rows = pa.RecordBatch.from_arrays(arrays, schema=changes_schema(table))
    return StoredRows(changes_channel(table.name), first + np.arange(len(keys)), rows)
