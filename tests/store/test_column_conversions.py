"""Each cell of the tables of databases in docs/types.md, on the real servers."""

from __future__ import annotations

import itertools
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from mesh.errors import MeshError
from mesh.model import column_conversions as page
from mesh.model.stored import EVERY_ROW, UNFIT
from mesh.model.types import AttributeType
from mesh.store.backends import read
from mesh.store.redis_client import connected
from mesh.store.writer import StoreWriter
from tests.support.column_types import TYPES, created, execute, table_of
from tests.support.conversions import AppRefusedError, EventRefusedError, Sample, cells, check
from tests.support.databases import has_xml, new_database
from tests.support.together import together

if TYPE_CHECKING:
    from pyspark_nats.conversions import ConversionCell, Conversions
    from tests.support.databases import DatabaseServer, TestDatabase

FIVE = {"string": "5", "int": 5, "long": 5, "float": 5.0, "double": 5.0}
ODD = ("float", "double")
#: By type of the page: the type and the value as SQL, and what attributes have of it.
POSTGRESQL: dict[str, tuple[str, Sample]] = {
    "smallint": ("smallint", Sample("1", FIVE | dict.fromkeys(("int", "long"), 1)
                 | dict.fromkeys(ODD, 1.0) | {"string": "1", "bool": True}, {"bool": "2"})),
    "integer": ("integer", Sample("5", FIVE)),
    "bigint": ("bigint", Sample("5", FIVE, {"double": "9007199254740993"})),
    "numeric": ("numeric", Sample("5", FIVE, {
        "int": "2147483648", "long": "1.5", "double": "0.12345678901234567890"})),
    "numeric(10,2)": ("numeric(10,2)", Sample("12.5", {"string": "12.50", "double": 12.5})),
    "real": ("real", Sample("1.5", {"string": "1.5", "float": 1.5, "double": 1.5})),
    "double precision": ("double precision", Sample("0.1", {"string": "0.1", "double": 0.1})),
    "boolean": ("boolean", Sample("true", {"string": "true", "bool": True})),
    "text, varchar, citext": ("text", Sample("'x '", {"string": "x "})),
    "char(5)": ("char(5)", Sample("'x'", {"string": "x    "})),
    "uuid": ("uuid", Sample("'A0EEBC99-9C0B-4EF8-BB6D-426614174000'", {
        "string": "a0eebc99-9c0b-4ef8-bb6d-426614174000"})),
    "date": ("date", Sample("'2026-11-29'", {"string": "2026-11-29"})),
    "time, time with time zone": ("timetz", Sample("'10:00+01'", {"string": "10:00:00+01"})),
    "timestamp": ("timestamp", Sample("'2026-11-29 10:00'", {"string": "2026-11-29 10:00:00"})),
    "timestamptz": ("timestamptz", Sample("'2026-11-29 10:00+01'", {
        "string": "2026-11-29 09:00:00+00"})),
    "interval": ("interval", Sample("'1 day'", {"string": "1 day"})),
    "json, jsonb": ("jsonb", Sample("""'{"a":1}'""", {"string": '{"a": 1}'})),
    "bytea": ("bytea", Sample(r"'\x00ff'", {"string": r"\x00ff"})),
    "bit, bit varying": ("bit(4)", Sample("b'0101'", {"string": "0101"})),
    "money": ("money", Sample("1.5", {"string": "$1.50"})),
    "xml": ("xml", Sample("'<a/>'", {"string": "<a/>"})),
    "inet, cidr": ("inet", Sample("'10.0.0.1'", {"string": "10.0.0.1"})),
    "macaddr": ("macaddr", Sample("'08002b010203'", {"string": "08:00:2b:01:02:03"})),
    "enumerations": ("mood", Sample("'happy'", {"string": "happy"})),
    "arrays": ("int[]", Sample("'{1,NULL}'", {"string": "{1,NULL}"})),
    "composite and other types": ("pair", Sample("'(1,x)'", {"string": "(1,x)"})),
}  # fmt: skip
MYSQL: dict[str, tuple[str, Sample]] = {
    "tinyint": ("tinyint", Sample("1", {
        "string": "1", "int": 1, "long": 1, "float": 1.0, "double": 1.0, "bool": True},
        {"bool": "2"})),
    "smallint": ("smallint", Sample("1", {
        "string": "1", "int": 1, "long": 1, "float": 1.0, "double": 1.0, "bool": True},
        {"bool": "2"})),
    "int": ("int", Sample("5", FIVE)),
    "int unsigned": ("int unsigned", Sample("5", FIVE)),
    "bigint": ("bigint", Sample("5", FIVE, {"double": "9007199254740993"})),
    "bigint unsigned": ("bigint unsigned", Sample("5", FIVE, {
        "long": "18446744073709551615", "double": "9007199254740993"})),
    "year": ("year", Sample("2026", {
        "string": "2026", "int": 2026, "long": 2026, "float": 2026.0, "double": 2026.0})),
    "decimal(10,2)": ("decimal(10,2)", Sample("12.5", {"string": "12.50", "double": 12.5})),
    "decimal(30,0)": ("decimal(30,0)", Sample("5", FIVE, {
        "int": "2147483648", "long": "9223372036854775808", "double": "9007199254740993"})),
    "float": ("float", Sample("1.5", {"string": "1.5", "float": 1.5, "double": 1.5})),
    "double": ("double", Sample("1.5", {"string": "1.5", "float": 1.5, "double": 1.5},
               {"float": "0.123456789"})),
    "bit(1)": ("bit(1)", Sample("b'1'", {"string": "1", "int": 1, "long": 1, "bool": True})),
    "bit(20)": ("bit(20)", Sample("b'101'", {"string": "0" * 17 + "101", "int": 5, "long": 5})),
    "varchar, text": ("text", Sample("'x '", {"string": "x "})),
    "char(5)": ("char(5)", Sample("'x'", {"string": "x"})),
    "binary, varbinary, blob": ("binary(4)", Sample("x'0a000000'", {"string": "0a000000"})),
    "date": ("date", Sample("'2026-11-29'", {"string": "2026-11-29"})),
    "time": ("time", Sample("'-25:00:00'", {"string": "-25:00:00"})),
    "datetime": ("datetime", Sample("'2026-11-29 10:00'", {"string": "2026-11-29 10:00:00"})),
    "timestamp": ("timestamp", Sample("'2026-11-29 10:00'", {"string": "2026-11-29 10:00:00"})),
    "json": ("json", Sample("""'{"a":1}'""", {"string": '{"a":1}'})),
    "enum": ("enum('a','b')", Sample("'a'", {"string": "a"})),
    "set": ("set('a','b')", Sample("'b,a'", {"string": "a,b"})),
    "uuid": ("uuid", Sample("'A0EEBC99-9C0B-4EF8-BB6D-426614174000'", {
        "string": "a0eebc99-9c0b-4ef8-bb6d-426614174000"})),
    "inet4, inet6": ("inet4", Sample("'10.0.0.0'", {"string": "10.0.0.0"})),
}  # fmt: skip
ALL = FIVE | {"string": "1", "int": 1, "long": 1, "float": 1.0, "double": 1.0, "bool": True}
SQLITE: dict[str, tuple[str, Sample]] = {
    "integer, numeric, date": ("integer", Sample("1", ALL, dict.fromkeys(ALL, "x'00'"))),
    "real, double": ("real", Sample("1.0", ALL | {"string": "1.0"}, dict.fromkeys(ALL, "x'00'"))),
    "text, varchar": ("text", Sample("'x'", {"string": "x"}, {"string": "x'00'"})),
    "blob": ("blob", Sample("1", ALL, dict.fromkeys(ALL, "x'00'"))),
}
_numbers = itertools.count(1)


def new(running: DatabaseServer | None, tmp: pytest.TempPathFactory) -> TestDatabase:
    return new_database(running, tmp.mktemp("cells"), f"cells{next(_numbers)}")


@pytest.fixture(scope="module")
def postgresql_cells(
    postgresql: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> TestDatabase:
    made = new(postgresql, tmp_path_factory)
    execute(made, *TYPES.split(";"))
    return made


@pytest.fixture(scope="module")
def mariadb_cells(
    mariadb: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> TestDatabase:
    return new(mariadb, tmp_path_factory)


def compare(
    database: TestDatabase, declared: str, column: str, cell: ConversionCell, sample: Sample
) -> None:
    def convert(value: str) -> Any:
        name = f"t{next(_numbers)}"
        created(database, name, declared, value)
        table = table_of(name, AttributeType(column))
        try:
            with closing(StoreWriter(database.database, name, 1, [table])) as writer:
                rows = writer.rows(table)
        except MeshError as error:
            if error.code != "MESH-S146":
                raise
            raise AppRefusedError from None
        if UNFIT in rows.schema.names:
            assert '"v"' in rows.column(UNFIT)[0].as_py()
            raise EventRefusedError
        return rows.column(1)[0].as_py()

    check(cell, sample, column, convert)


def of_tables(table: Conversions) -> list[Any]:
    """The cells of attributes of tables, which are no objects."""
    return [one for one in cells(table) if one.values[1] != "object"]


@pytest.mark.slow
@together(("kind", "column", "cell"), of_tables(page.POSTGRESQL))
def test_postgresql_is_as_the_table_says(
    postgresql_cells: TestDatabase,
    kind: str,
    column: str,
    cell: ConversionCell,
) -> None:
    declared, sample = POSTGRESQL[kind]
    if declared != "xml" or has_xml():
        compare(postgresql_cells, declared, column, cell, sample)


@pytest.mark.thorough
@together(("kind", "column", "cell"), of_tables(page.MYSQL))
def test_mariadb_is_as_the_table_says(
    mariadb_cells: TestDatabase,
    kind: str,
    column: str,
    cell: ConversionCell,
) -> None:
    declared, sample = MYSQL[kind]
    compare(mariadb_cells, declared, column, cell, sample)


@pytest.mark.parametrize(("kind", "column", "cell"), of_tables(page.REDIS))
def test_redis_is_as_the_table_says(
    in_redis: TestDatabase, kind: str, column: str, cell: ConversionCell
) -> None:
    client = connected(in_redis.database)

    def convert(value: str) -> Any:
        client.hset("t:1", "v", value.encode("latin-1"))
        rows, _ = read(in_redis.database, table_of("t", AttributeType(column)), EVERY_ROW, 2)
        if UNFIT in rows.schema.names:
            assert '"v"' in rows.column(UNFIT)[0].as_py()
            raise EventRefusedError
        return rows.column(1)[0].as_py()

    other = "\xff" if column == "string" else "1.5" if column in ("int", "long") else "x"
    check(cell, Sample("1", ALL, {column: other}), column, convert)
    client.close()


@pytest.mark.slow
@together(("kind", "column", "cell"), of_tables(page.SQLITE))
def test_sqlite_is_as_the_table_says(
    tmp_path_factory: pytest.TempPathFactory, kind: str, column: str, cell: ConversionCell
) -> None:
    declared, sample = SQLITE[kind]
    compare(new(None, tmp_path_factory), declared, column, cell, sample)
