"""Columns of a table by the catalogue of its database, compared with the attributes of an app."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mesh.errors import MeshError
from mesh.model.column_types import (
    Backend,
    ColumnType,
    Kind,
    kind_of,
    lacking_set,
    problem,
    span_of,
    sqlite_type,
)
from mesh.store.sql import sa

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.model.stored import Database, StoredTable

_PG_COLUMNS: Final = """
SELECT a.attname, a.attgenerated <> '' OR a.attidentity = 'a' AS is_generated,
       t.oid, a.atttypmod AS mod, format_type(t.oid, a.atttypmod) AS declared,
       t.typtype, t.typcategory, t.typelem, t.typbasetype, t.typtypmod
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_type t ON t.oid = a.atttypid
WHERE c.relname = :name AND pg_table_is_visible(c.oid) AND a.attnum > 0 AND NOT a.attisdropped
"""
_PG_TYPE: Final = """
SELECT oid, CAST(:mod AS integer) AS mod, format_type(oid, :mod) AS declared,
       typtype, typcategory, typelem, typbasetype, typtypmod
FROM pg_type WHERE oid = :oid
"""
_PG_LABELS: Final = "SELECT enumlabel FROM pg_enum WHERE enumtypid = :oid ORDER BY enumsortorder"
_MYSQL_COLUMNS: Final = """
SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, CHARACTER_MAXIMUM_LENGTH, CHARACTER_OCTET_LENGTH,
       NUMERIC_PRECISION, NUMERIC_SCALE, DATETIME_PRECISION, CHARACTER_SET_NAME, EXTRA
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = :name
"""
_MARIADB_CHECKS: Final = """
SELECT CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS
WHERE CONSTRAINT_SCHEMA = DATABASE() AND TABLE_NAME = :name
"""
_PG_KEYS: Final = """
SELECT i.indexrelid, a.attname FROM pg_class c
LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisunique AND i.indimmediate
          AND i.indpred IS NULL AND i.indexprs IS NULL
LEFT JOIN pg_attribute a ON a.attrelid = c.oid
          AND a.attnum = ANY ((CAST(i.indkey AS int2[]))[0:i.indnkeyatts - 1])
WHERE c.relname = :name AND pg_table_is_visible(c.oid) AND c.relkind IN ('r', 'p')
"""
_MYSQL_VIEW: Final = """
SELECT 1 FROM information_schema.VIEWS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = :name
"""
_MYSQL_KEYS: Final = """
SELECT INDEX_NAME, COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = :name AND NON_UNIQUE = 0
"""
_DECLARED: Final = re.compile(r"(.+?)(?:\((\d+)(?:,(-?\d+))?\))?((?: with| without) time zone)?")
_ZEROFILL: Final = re.compile(r"\((\d+)\).* zerofill")
_LABEL: Final = re.compile(r"'((?:[^']|'')*)'")
#: Signs of labels that the catalogue of MySQL escapes.
_ESCAPED: Final = re.compile(r"''|\\(.)", re.DOTALL)
_SIGNS: Final = {"0": "\0", "n": "\n", "r": "\r"}
_JSON_VALID: Final = re.compile(r"json_valid\(`([^`]+)`\)")


def columns_of(connection: sa.Connection, table: str) -> dict[str, ColumnType]:
    """The columns of a table or view by name, in its order; empty if there is none.

    Inside of a transaction.
    """
    match connection.dialect.name:
        case Backend.POSTGRESQL:
            return _postgresql(connection, table)
        case Backend.MYSQL:
            return _mysql(connection, table)
        case _:
            quoted = table.replace('"', '""')
            rows = connection.exec_driver_sql(f'PRAGMA table_xinfo("{quoted}")').all()
            return {
                row[1]: replace(sqlite_type(row[2]), is_generated=row[6] in (2, 3)) for row in rows
            }


def labels_of(declared: str) -> list[str]:
    """The values of an enumeration or a set of MySQL, as ``enum('a','b')``."""

    def sign(match: re.Match[str]) -> str:
        return _SIGNS.get(match[1], match[1]) if match[1] else "'"

    return [_ESCAPED.sub(sign, text) for text in _LABEL.findall(declared)]


def expect_key(connection: sa.Connection, table: StoredTable, database: Database) -> None:
    """Refuse to write a table without a unique key of the columns by which rows are merged.

    Inside of a transaction.  Of a view the database knows the tables, and their keys.

    Raises:
        MeshError: MESH-S142.
    """
    key_names = {column.name for column in table.keys}
    keys = _unique_keys(connection, table.name) if key_names else None
    if keys is not None and key_names not in keys:
        names = ", ".join(column.name for column in table.keys)
        raise MeshError(
            "MESH-S142",
            f'table "{table.name}" of database {database} has no unique key of {names}',
            detail="The app writes its rows by that key.",
            hint=f"Make one: create unique index .. on ({names}); or only read the table.",
        )


def _unique_keys(connection: sa.Connection, table: str) -> list[set[str]] | None:
    """The columns of each unique key of a table that a row can be merged by; None for a view."""
    rows: list[tuple[object, str]]
    match connection.dialect.name:
        case Backend.POSTGRESQL:
            result = connection.execute(sa.text(_PG_KEYS), {"name": table}).all()
            if not result:
                return None
            rows = [(row[0], row[1]) for row in result]
        case Backend.MYSQL:
            if connection.execute(sa.text(_MYSQL_VIEW), {"name": table}).first() is not None:
                return None
            result = connection.execute(sa.text(_MYSQL_KEYS), {"name": table}).all()
            # A key of the first characters of a text is no key of the text.
            rows = [(row[0], row[1] if row[2] is None else "") for row in result]
        case _:
            quoted = table.replace('"', '""')
            columns = connection.exec_driver_sql(f'PRAGMA table_info("{quoted}")').all()
            rows = [("", row[1]) for row in columns if row[5]]
            for index in connection.exec_driver_sql(f'PRAGMA index_list("{quoted}")').all():
                if index[2] and not index[4]:
                    index_name = index[1].replace('"', '""')
                    parts = connection.exec_driver_sql(f'PRAGMA index_info("{index_name}")').all()
                    rows += [(index[1], part[2] or "") for part in parts]
    keys: dict[Any, set[str]] = {}
    for key, column in rows:
        keys.setdefault(key, set()).add(column)
    return list(keys.values())


def described(
    table: StoredTable, columns: Mapping[str, ColumnType], database: Database
) -> StoredTable:
    """A table whose columns have the types of the database.

    Args:
        table: as the app defines it.
        columns: of the table in the database.
        database: for messages.

    Raises:
        MeshError: MESH-S142, a column is missing; MESH-S146, a column has a type of which the
            attribute can't have the values.
    """
    missing = [column.name for column in table.columns if column.name not in columns]
    if missing:
        raise MeshError(
            "MESH-S142",
            f'table "{table.name}" of database {database} lacks columns',
            detail=f"Missing: {', '.join(missing)}.",
            hint="Add them, or name another table with table.name.",
        )
    wrong = [problem(c.name, columns[c.name], c.type) for c in table.columns]
    if table.time:
        wrong += [_of_aggregation(c.name, columns[c.name], c.type) for c in table.columns]
    wrong = [one for one in wrong if one]
    if wrong:
        raise MeshError(
            "MESH-S146",
            f'columns of table "{table.name}" of database {database} have other types',
            detail=f"{'; '.join(wrong)}.",
            hint="Define the attributes with a fitting type: docs/types.md has the table.",
        )
    return replace(
        table,
        columns=tuple(replace(c, actual=columns[c.name]) for c in table.columns),
    )


def _of_aggregation(name: str, column: ColumnType, attribute: object) -> str:
    """The reason why an aggregation can't use a column; empty if it can."""
    if attribute != "string" or column.kind in (Kind.TEXT, Kind.ANY):
        return ""
    return f'column "{name}" is {column.declared}, and an aggregation needs a text'


def _postgresql(connection: sa.Connection, table: str) -> dict[str, ColumnType]:
    rows = connection.execute(sa.text(_PG_COLUMNS), {"name": table}).all()
    return {
        row.attname: replace(_pg_type(connection, row), is_generated=bool(row.is_generated))
        for row in rows
    }


def _pg_type(connection: sa.Connection, row: Any) -> ColumnType:
    def other(oid: int, mod: int) -> ColumnType:
        type_row = connection.execute(sa.text(_PG_TYPE), {"oid": oid, "mod": mod}).one()
        return _pg_type(connection, type_row)

    declared = row.declared
    if row.typtype == "d":
        # Its rules are the database's; its values are those of the type below.
        return replace(other(row.typbasetype, row.typtypmod), declared=declared)
    if row.typtype == "e":
        labels = connection.execute(sa.text(_PG_LABELS), {"oid": row.oid}).scalars().all()
        return ColumnType(Backend.POSTGRESQL, declared, Kind.ENUM, labels=tuple(labels))
    if row.typcategory == "A" and row.typelem:
        element = other(row.typelem, row.mod)
        return ColumnType(Backend.POSTGRESQL, declared, Kind.ARRAY, element=element)
    match = _DECLARED.fullmatch(declared)
    assert match is not None, "any text matches"
    # An extension's type has its schema before it, where that is not in the search path.
    name = (match.group(1) + (match.group(4) or "")).removeprefix("public.")
    length = None if match.group(2) is None else int(match.group(2))
    scale = None if match.group(3) is None else int(match.group(3))
    kind = kind_of(Backend.POSTGRESQL, name) if row.typtype == "b" else Kind.OTHER
    column_type = ColumnType(Backend.POSTGRESQL, declared, kind, length)
    match kind:
        case Kind.INTEGER:
            return replace(column_type, span=span_of(name))
        case Kind.NUMERIC:
            return replace(column_type, scale=scale if length is not None else None)
        case Kind.CHAR | Kind.BIT if name in ("character", "bit"):
            return replace(column_type, length=length or 1, is_fixed=True)
        case Kind.INTERVAL if declared not in ("interval", f"interval({length})"):
            return replace(column_type, kind=Kind.OTHER)
        case _:
            return column_type


def _mysql(connection: sa.Connection, table: str) -> dict[str, ColumnType]:
    rows = connection.execute(sa.text(_MYSQL_COLUMNS), {"name": table}).all()
    documents: set[str] = set()
    is_mariadb = getattr(connection.dialect, "is_mariadb", False)
    if is_mariadb and any(row[1] == "longtext" for row in rows):
        clauses = connection.execute(sa.text(_MARIADB_CHECKS), {"name": table}).scalars()
        documents = {name for text in clauses for name in _JSON_VALID.findall(text)}
    return {row[0]: _mysql_type(row, is_document=row[0] in documents) for row in rows}


def _mysql_type(row: Any, *, is_document: bool) -> ColumnType:
    _, name, declared, length, octets, precision, scale, fraction, charset, extra = row
    kind = kind_of(Backend.MYSQL, name)
    if is_document:
        kind = Kind.JSON
    if "zerofill" in declared and kind is not Kind.INTEGER:
        kind = Kind.OTHER
    column_type = ColumnType(
        Backend.MYSQL, declared, kind, is_generated="GENERATED" in (extra or "").upper()
    )
    match kind:
        case Kind.TEXT | Kind.CHAR | Kind.JSON:
            is_long = name.endswith("text")
            return replace(
                column_type,
                length=None if is_long else int(length),
                octets=int(octets) if is_long else 0,
                charset=lacking_set(charset or ""),
            )
        case Kind.INTEGER:
            width = _ZEROFILL.search(declared)
            return replace(
                column_type,
                length=None if width is None else int(width.group(1)),
                span=span_of(name, is_unsigned="unsigned" in declared),
            )
        case Kind.NUMERIC:
            return replace(column_type, length=int(precision), scale=int(scale))
        case Kind.BYTES:
            return replace(column_type, length=int(octets), is_fixed=name == "binary")
        case Kind.BIT:
            return replace(column_type, length=int(precision), is_fixed=True)
        case Kind.TIME | Kind.TIMESTAMP | Kind.TIMESTAMPTZ:
            return replace(column_type, length=int(fraction or 0))
        case Kind.ENUM | Kind.SET:
            return replace(column_type, labels=tuple(labels_of(declared)))
        case _:
            return column_type
