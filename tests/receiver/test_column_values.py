"""Values of databases by the source ``cdc``: each is exact in both modes, or is refused by name."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from mesh.language.parser import parse_app
from mesh.model.stored import Backend
from mesh.plan.bind import bind
from mesh.plan.connectors import connector_of, make_mapper
from mesh.receiver.types import column_values
from tests.support.cdc import MODES, Case, execute, new
from tests.support.conversions import AppRefusedError, EventRefusedError, Sample, cells, check
from tests.support.databases import has_xml
from tests.support.together import together

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark_nats.conversions import ConversionCell, Conversions
    from tests.support.databases import DatabaseServer

#: Type of a column, a value in SQL, an attribute's type, its value, and the text of the value.
POSTGRESQL: list[tuple[str, str, str, Any, str]] = [
    ("smallint", "-32768", "int", -32768, "-32768"),
    ("integer", "2147483647", "int", 2147483647, "2147483647"),
    ("bigint", "-9223372036854775808", "long", -(2**63), "-9223372036854775808"),
    ("numeric(20,0)", "9007199254740993", "long", 9007199254740993, "9007199254740993"),
    ("numeric(12,2)", "12.50", "double", 12.5, "12.50"),
    ("numeric", "'NaN'", "string", "NaN", "NaN"),
    ("numeric(5,2)", "5", "long", 5, "5.00"),
    ("real", "0.1", "float", 0.10000000149011612, "0.1"),
    ("double precision", "0.1", "double", 0.1, "0.1"),
    ("double precision", "'-infinity'", "double", float("-inf"), "-Infinity"),
    ("boolean", "true", "bool", True, "true"),
    ("char(4)", "'ab'", "string", "ab  ", "ab  "),
    ("varchar(9)", "'é''\"'", "string", "é'\"", "é'\""),
    ("text", "''", "string", "", ""),
    ("bytea", r"'\xde00'", "string", r"\xde00", r"\xde00"),
    ("date", "'2026-03-29'", "string", "2026-03-29", "2026-03-29"),
    ("date", "'infinity'", "string", "infinity", "infinity"),
    ("time(3)", "'24:00:00'", "string", "24:00:00", "24:00:00"),
    ("timetz", "'01:02:03+05:30'", "string", "01:02:03+05:30", "01:02:03+05:30"),
    ("timestamp", "'0044-03-15 12:00 BC'", "string", "0044-03-15 12:00:00 BC",
     "0044-03-15 12:00:00 BC"),
    ("timestamptz", "'2026-03-29 01:30:00.5+01'", "string", "2026-03-29 00:30:00.5+00",
     "2026-03-29 00:30:00.5+00"),
    ("timestamptz", "'infinity'", "string", "infinity", "infinity"),
    ("interval", "'1 day -02:00:00'", "string", "1 day -02:00:00", "1 day -02:00:00"),
    ("uuid", "'123E4567-e89b-12d3-a456-426614174000'", "string",
     "123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
    ("json", "'{\"a\":  12.50}'", "string", '{"a":  12.50}', '{"a":  12.50}'),
    ("jsonb", "'{\"n\": 36893488147419103232}'", "string", '{"n": 36893488147419103232}',
     '{"n": 36893488147419103232}'),
    ("inet", "'10.0.0.0'", "string", "10.0.0.0", "10.0.0.0"),
    ("cidr", "'10.0.0.0/8'", "string", "10.0.0.0/8", "10.0.0.0/8"),
    ("macaddr", "'08:00:2b:01:02:03'", "string", "08:00:2b:01:02:03", "08:00:2b:01:02:03"),
    ("integer[]", "'{1,null,3}'", "string", "{1,NULL,3}", "{1,NULL,3}"),
    ("text[]", "'{a,\"b c\"}'", "string", '{a,"b c"}', '{a,"b c"}'),
    ("mood", "'sad'", "string", "sad", "sad"),
    ("amount", "'7.10'", "double", 7.1, "7.10"),
    ("xml", "'<a/>'", "string", "<a/>", "<a/>"),
    ("money", "'1234.50'", "string", "$1,234.50", "$1,234.50"),
    ("bit(4)", "B'0101'", "string", "0101", "0101"),
    ("point", "'(1,2)'", "string", "(1,2)", "(1,2)"),
    ("int4range", "'[1,5)'", "string", "[1,5)", "[1,5)"),
    ("tsvector", "'a b'", "string", "'a' 'b'", "'a' 'b'"),
    ("oid", "4294967295", "long", 4294967295, "4294967295"),
]  # fmt: skip
MARIADB: list[tuple[str, str, str, Any, str]] = [
    ("boolean", "true", "bool", True, "1"),
    ("tinyint", "-128", "int", -128, "-128"),
    ("tinyint unsigned zerofill", "7", "int", 7, "7"),
    ("smallint unsigned", "65535", "int", 65535, "65535"),
    ("mediumint", "-8388608", "int", -8388608, "-8388608"),
    ("int", "-2147483648", "int", -2147483648, "-2147483648"),
    ("int unsigned", "4294967295", "long", 4294967295, "4294967295"),
    ("bigint", "9223372036854775807", "long", 2**63 - 1, "9223372036854775807"),
    ("bigint unsigned", "18446744073709551615", "string", "18446744073709551615",
     "18446744073709551615"),
    ("decimal(20,0)", "9007199254740993", "long", 9007199254740993, "9007199254740993"),
    ("decimal(30,10)", "-12345678901234567890.0000000001", "string",
     "-12345678901234567890.0000000001", "-12345678901234567890.0000000001"),
    ("decimal(12,2)", "-0.50", "double", -0.5, "-0.50"),
    ("decimal(9,3) zerofill", "1.5", "double", 1.5, "1.500"),
    ("float", "0.1", "float", 0.10000000149011612, "0.10000000149011612"),
    ("double", "1e22", "double", 1e22, "1e22"),
    ("double", "0.00001", "double", 0.00001, "0.00001"),
    ("bit(1)", "b'1'", "bool", True, "1"),
    ("bit(12)", "b'101'", "string", "000000000101", "000000000101"),
    ("char(5)", "'ab '", "string", "ab", "ab"),
    ("varchar(300) character set utf8mb4", "'aé😀'", "string", "aé😀", "aé😀"),
    ("varchar(9) character set latin1", "'€é'", "string", "€é", "€é"),
    ("varchar(9) character set ucs2", "'aé'", "string", "aé", "aé"),
    ("text", "''", "string", "", ""),
    ("longtext", "repeat('x', 70000)", "string", "x" * 70000, "x" * 70000),
    ("json", "'{\"a\":  12.50}'", "string", '{"a":  12.50}', '{"a":  12.50}'),
    ("binary(4)", "x'0a00'", "string", "0a000000", "0a000000"),
    ("varbinary(4)", "x'0a00'", "string", "0a00", "0a00"),
    ("blob", "x'ff00'", "string", "ff00", "ff00"),
    ("enum('x','y''z')", "'y''z'", "string", "y'z", "y'z"),
    (r"enum('x','a\\b','c\nd')", r"'a\\b'", "string", "a\\b", "a\\b"),
    (r"enum('x','a\\b','c\nd')", r"'c\nd'", "string", "c\nd", "c\nd"),
    (r"set('a\\b','c''\\')", r"'c''\\,a\\b'", "string", "a\\b,c'\\", "a\\b,c'\\"),
    ("set('b','a')", "'a,b'", "string", "b,a", "b,a"),
    ("set('b','a')", "''", "string", "", ""),
    ("date", "'2026-03-29'", "string", "2026-03-29", "2026-03-29"),
    ("date", "'0000-00-00'", "string", "0000-00-00", "0000-00-00"),
    ("date", "'2026-00-15'", "string", "2026-00-15", "2026-00-15"),
    ("time", "'838:59:59'", "string", "838:59:59", "838:59:59"),
    ("time(3)", "'-30:00:00.500'", "string", "-30:00:00.500", "-30:00:00.500"),
    ("datetime", "'0000-00-00'", "string", "0000-00-00 00:00:00", "0000-00-00 00:00:00"),
    ("datetime(1)", "'9999-12-31 23:59:59.5'", "string", "9999-12-31 23:59:59.5",
     "9999-12-31 23:59:59.5"),
    ("datetime(6)", "'2026-03-29 02:30:00.000001'", "string", "2026-03-29 02:30:00.000001",
     "2026-03-29 02:30:00.000001"),
    ("timestamp null", "'2026-03-29 00:30:00'", "string", "2026-03-29 00:30:00",
     "2026-03-29 00:30:00"),
    ("timestamp(3)", "'0000-00-00'", "string", "0000-00-00 00:00:00.000",
     "0000-00-00 00:00:00.000"),
    ("year", "2026", "int", 2026, "2026"),
    ("uuid", "'123e4567-e89b-12d3-a456-426614174000'", "string",
     "123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
    ("inet4", "'10.0.0.0'", "string", "10.0.0.0", "10.0.0.0"),
    ("inet6", "'2001:db8::'", "string", "2001:db8::", "2001:db8::"),
    ("inet6", "'::ffff:1.2.3.0'", "string", "::ffff:1.2.3.0", "::ffff:1.2.3.0"),
    ("point", "point(1, 2)", "string", "000000000101000000000000000000f03f0000000000000040",
     "000000000101000000000000000000f03f0000000000000040"),
]  # fmt: skip
SQLITE: list[tuple[str, str, str, Any, str]] = [
    ("integer", "9223372036854775807", "long", 2**63 - 1, "9223372036854775807"),
    ("boolean", "1", "bool", True, "1"),
    ("real", "0.1", "double", 0.1, "0.1"),
    ("real", "1e999", "double", float("inf"), "Infinity"),
    ("text", "'é'", "string", "é", "é"),
    ("datetime", "'infinity'", "string", "infinity", "infinity"),
    ("blob", "x'ff00'", "string", "ff00", "ff00"),
    ("numeric", "'12.5x'", "string", "12.5x", "12.5x"),
]
TABLES = {Backend.POSTGRESQL: POSTGRESQL, Backend.MYSQL: MARIADB, Backend.SQLITE: SQLITE}


@pytest.fixture(params=[Backend.POSTGRESQL, Backend.MYSQL, Backend.SQLITE])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Case]:
    """A database whose sessions have other zones and formats than usual."""
    if request.param is Backend.SQLITE:
        yield new(None, tmp_path)
    elif request.param is Backend.MYSQL:
        pytest.importorskip("pymysqlreplication")
        made = new(request.getfixturevalue("mariadb"), tmp_path)
        execute(made.database, "set global time_zone = '+05:00'",
                "set global sql_mode = 'PAD_CHAR_TO_FULL_LENGTH'")  # fmt: skip
        try:
            yield made
        finally:
            execute(made.database, "set global time_zone = 'SYSTEM'",
                    "set global sql_mode = default")  # fmt: skip
    else:
        made = new(request.getfixturevalue("postgresql"), tmp_path)
        settings = {
            "datestyle": "German, DMY", "intervalstyle": "iso_8601", "timezone": "Asia/Tokyo",
            "bytea_output": "escape", "extra_float_digits": "-3",
        }  # fmt: skip
        for name, value in settings.items():
            alter = f"alter database {made.database.database.database} set {name}"
            execute(made.database, f"{alter} = '{value}'")
        yield made


@pytest.mark.parametrize("is_text", [False, True])
def test_both_modes_have_the_values_of_the_table(case: Case, is_text: bool) -> None:
    backend = case.database.database.backend
    types = [row for row in TABLES[backend] if row[0] != "xml" or has_xml()]
    if backend is Backend.POSTGRESQL:
        execute(case.database, "create type mood as enum ('sad', 'ok')",
                "create domain price as numeric(9,2)", "create domain amount as price")  # fmt: skip
    columns = ", ".join(f"c{at} {row[0]}" for at, row in enumerate(types))
    execute(case.database, f"create table t (id integer primary key, {columns})")
    kinds = ["string" if is_text else row[2] for row in types]
    attributes = ", ".join(f"c{at} {kind}" for at, kind in enumerate(kinds))
    expected = {f"c{at}": row[4] if is_text else row[3] for at, row in enumerate(types)}
    values = ", ".join(row[1] for row in types)
    first = []
    if backend is Backend.MYSQL:
        first = ["set time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES'"]
    modes = MODES if backend is not Backend.SQLITE else ("polling",)
    for number, mode in enumerate(modes):
        rows = (f"({number}, {values})", f"({number + 9}{', null' * len(types)})")
        changes = [*first, *(f"insert into t values {row}" for row in rows)]
        found, other = case.events(attributes, *changes, mode=mode)
        differences = {
            name: (value, found[name]) for name, value in expected.items() if found[name] != value
        }
        assert not differences, mode
        assert not any(value is not None for value in other.values()), "null stays null"
        execute(case.database, "delete from t")


#: Reasons by the attribute of a column of PostgreSQL whose values it can't have.
REFUSALS = [
    ("numeric", "9007199254740993", "double",
     "is 9007199254740993, which a double can't hold exactly"),
    ("numeric", "5.5", "long", "is 5.5, which a long can't hold exactly"),
    ("bigint", "2147483648", "int", "is 2147483648, which an int can't hold exactly"),
    ("numeric", "'NaN'", "long", 'is "NaN", not a long'),
    ("double precision", "1e300", "float", "is 1e+300, which a float can't hold exactly"),
    ("timestamptz", "'infinity'", "long", 'is "infinity", not a long'),
    ("boolean", "true", "int", "is true, not an int"),
    ("integer", "2", "bool", "is 2, not a bool"),
]  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_an_odd_value_costs_itself(postgresql: DatabaseServer, tmp_path: Path, mode: str) -> None:
    case = new(postgresql, tmp_path)
    columns = ", ".join(f"c{at} {row[0]}" for at, row in enumerate(REFUSALS))
    execute(case.database, f"create table t (id integer primary key, {columns})")
    attributes = ", ".join(f"c{at} {row[2]}" for at, row in enumerate(REFUSALS))
    rows = [f"insert into t (id, c{at}) values ({2 * at}, {row[1]}), ({2 * at + 1}, null)"
            for at, row in enumerate(REFUSALS)]  # fmt: skip
    found = case.events(attributes, *rows, mode=mode)
    reasons = [f'attribute "c{at}" {row[3]}' for at, row in enumerate(REFUSALS)]
    nulls = {f"c{at}": None for at in range(len(REFUSALS))}
    assert found == [one for reason in reasons for one in (reason, nulls)]


ASCII = "encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C' template template0"


@pytest.mark.parametrize("mode", MODES)
def test_a_text_of_postgresql_in_no_encoding_costs_itself(
    postgresql: DatabaseServer, tmp_path: Path, mode: str
) -> None:
    case = new(postgresql, tmp_path, ASCII)
    execute(case.database, "create table t (id int primary key, name text)")
    found = case.events(
        "id int, name string", "insert into t values (1, 'one'), (2, E'b\\xe9\\xff'), (3, 'é')",
        mode=mode, operation="insert",
    )  # fmt: skip
    assert found == [
        {"id": 1, "name": "one"},
        'attribute "name" is a text that is not in UTF-8',
        {"id": 3, "name": "é"},
    ]
    # Names are texts, too.
    execute(
        case.database,
        """do $$ begin execute convert_from(
        'alter table t add column "k'::bytea || '\\xe9'::bytea || '" int'::bytea, 'SQL_ASCII');
    end $$""",
    )
    found = case.events("id int", "insert into t values (4)", mode=mode, operation="insert")
    assert found == [{"id": 4}]


@pytest.mark.parametrize("server", ["postgresql", "mariadb", "sqlite"])
def test_a_polled_column_may_have_any_octets(
    server: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    running = None if server == "sqlite" else request.getfixturevalue(server)
    case = new(running, tmp_path, ASCII if server == "postgresql" else "")
    kind, one = {
        "postgresql": ("text", r"E'b\xff{}'"),
        "mariadb": ("binary(3)", "x'62ff3{}'"),
        "sqlite": ("text", "cast(x'62ff3{}' as text)"),
    }[server]
    execute(case.database, f"create table t (id {kind} primary key, n int)")
    rows = [f"insert into t values ({one.format(n)}, {n})" for n in (1, 2, 3)]
    execute(case.database, rows[0])
    assert case.events("n int", *rows[1:], mode="polling") == [{"n": 2}, {"n": 3}]


def test_json_mappings_read_into_documents(postgresql: DatabaseServer, tmp_path: Path) -> None:
    case = new(postgresql, tmp_path)
    execute(case.database, "create table t (id integer primary key, j jsonb, n numeric)")
    row = """insert into t values (1, '{"a": {"b": 12.50}}', 12.50)"""
    paths = "b='$.j.a.b', a='j.a', j='$.j', n='n'"
    mapping = f"type='json', @attributes({paths})"
    for mode in MODES:
        found = case.events("b double, a string, j string, n string", row, mode=mode,
                            mapping=mapping)  # fmt: skip
        assert found == [{"b": 12.5, "a": '{"b":12.50}', "j": '{"a": {"b": 12.50}}', "n": "12.50"}]
        execute(case.database, "delete from t")
    (found,) = case.events("j string, n string", row, mapping="type='json'")
    assert found == {"j": '{"a": {"b": 12.50}}', "n": "12.50"}


def test_casts_of_texts_are_exact(postgresql: DatabaseServer, tmp_path: Path) -> None:
    case = new(postgresql, tmp_path)
    execute(case.database, "create table t (id integer primary key, a text, b text, c text)")
    rows = ["('12.0', '1', '1e3')", "('1.5', '0', '')", "('1', 'yes', '1')", "('1', 'True', 'x')"]
    values = ", ".join(f"({at}, {row[1:]}" for at, row in enumerate(rows))
    found = case.events("a long, b bool, c double", f"insert into t values {values}",
                        mapping="type='keyvalue', implicit.cast.enable='true'")  # fmt: skip
    assert found == [
        {"a": 12, "b": True, "c": 1000.0},
        'attribute "a" is 1.5, which a long can\'t hold exactly',
        'attribute "b" is "yes", not a bool',
        'attribute "c" is "x", not a double',
    ]


_SEVEN = {"int": 7, "long": 7, "float": 7.0, "double": 7.0}
_FAR = {"int": 1 << 31, "long": 1 << 63, "float": (1 << 24) + 1, "double": (1 << 53) + 1,
        "bool": 2}  # fmt: skip
_CUT = {**_FAR, "int": 7.5, "long": 7.5}


def _sample(value: Any, beyond: dict[str, Any], text: str = "7") -> Sample:
    return Sample(value, {**_SEVEN, "string": text, "bool": True}, beyond)


def _texts(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: str(value) for name, value in values.items()}


def _text(value: Any, text: str) -> Sample:
    return Sample(value, {"string": text})


#: Of a server: a value, the values inside, and those that are refused; the type's number or name.
CELLS: dict[str, tuple[Conversions, dict[str, tuple[Sample, Any]]]] = {
    "postgresql": (column_values.PG_READ, {
        "smallint, integer, bigint, oid": (_sample("7", _texts(_FAR)), 20),
        "numeric": (_sample("7.00", _texts(_CUT), "7.00"), 1700),
        "real, double precision": (_sample("7", _texts(_CUT)), 701),
        "NaN, Infinity of numbers": (
            Sample("NaN", {"string": "NaN", "float": math.nan, "double": math.nan}), 1700),
        "boolean": (Sample("t", {"string": "true", "bool": True}), 16),
        "other types": (_text("2026-03-29", "2026-03-29"), 1082),
    }),
    "mysql": (column_values.MYSQL_READ, {
        "tinyint to bigint, boolean, bit(1), year": (_sample("7", _texts(_FAR)), "bigint(20)"),
        "decimal": (_sample("7.00", _texts(_CUT), "7.00"), "decimal(9,2)"),
        "float, double": (_sample("7", _texts(_CUT)), "double"),
        "binary, varbinary, blob, geometry": (_text(b"\x0a\x00", "0a00"), "blob"),
        "other types": (_text("838:59:59", "838:59:59"), "time"),
    }),
    "sqlite": (column_values.SQLITE_READ, {
        "integer": (_sample(7, _FAR), None),
        "real": (_sample(7.0, _CUT), None),
        "text": (_text("x", "x"), None),
        "blob": (_text(b"\x0a\x00", "0a00"), None),
    }),
}  # fmt: skip
_READ = [
    pytest.param(server, *one.values, id=f"{server}-{one.id}")
    for server, (table, _) in CELLS.items()
    for one in cells(table)
]


@together(("server", "kind", "column", "cell"), _READ)
def test_rows_are_read_as_the_table_says(
    server: str, kind: str, column: str, cell: ConversionCell
) -> None:
    sample, known = CELLS[server][1][kind]

    def convert(value: Any) -> Any:
        given = "url='jdbc:sqlite:x', mode='polling', polling.column='a', table.name='t'"
        text = f"@source(type='cdc', {given}, @map(type='json'))\ndefine stream S (a {column});"
        text += "\nfrom S select 1 as b insert into O;"
        bound = bind(parse_app(text))
        ((name, annotation),) = bound.stream_annotations
        try:
            mapper = make_mapper(connector_of(annotation), bound.stream(name))
        except ValueError as error:
            raise AppRefusedError(error) from error
        if server == "postgresql":
            value = column_values.pg_value(value.encode(), known)
        else:
            value = (
                column_values.sqlite_value(value)
                if server == "sqlite"
                else column_values.mysql_value(value, known)
            )
        found = mapper.decode([column_values.payload_of({"a": value})])
        if found.errors:
            assert '"a"' in found.errors[0][2]
            raise EventRefusedError(found.errors[0][2])
        return found.rows.column(0)[0].as_py()

    if column == "bool" and sample.inside.get("bool") and kind != "boolean":
        sample = replace(sample, value=type(sample.value)(1) if server == "sqlite" else "1")
    check(cell, sample, column, convert)
