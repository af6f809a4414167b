"""Bulk path of PostgreSQL: binary COPY into a temporary table, and a statement that merges."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from mesh.model.column_types import Kind
from mesh.model.stored import Backend, MergeRule
from mesh.model.types import AttributeType
from mesh.store.binary_copy import encoded
from mesh.store.merging import merge_rows
from mesh.store.sql import sa

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mesh.model.stored import StoredColumn, StoredTable

_TYPES: Final = {
    AttributeType.STRING: "text",
    AttributeType.INT: "int4",
    AttributeType.LONG: "int8",
    AttributeType.FLOAT: "float4",
    AttributeType.DOUBLE: "float8",
    AttributeType.BOOL: "bool",
    AttributeType.OBJECT: "bytea",
}
_PREFIX: Final = "mesh_new_"
#: Bytes of a name in PostgreSQL.
_NAME_MAX: Final = 63


def temporary(table: str) -> str:
    """The name of the temporary table of new rows."""
    # PostgreSQL would cut a longer name, and then two tables may have one.
    name = _PREFIX + table
    if len(name.encode()) <= _NAME_MAX:
        return name
    return _PREFIX + hashlib.sha256(table.encode()).hexdigest()[:32]


def create(connection: sa.Connection, tables: Iterable[StoredTable]) -> None:
    """Create the temporary tables of this connection; nothing in other databases.

    Their columns have the mesh's types: the statement that merges makes the table's of them.
    """
    if connection.dialect.name != Backend.POSTGRESQL:
        return
    with connection.begin():
        for table in tables:
            columns = ", ".join(f"{_quoted(c.name)} {_type(c)}" for c in table.columns)
            connection.exec_driver_sql(
                f"CREATE TEMPORARY TABLE IF NOT EXISTS {_quoted(temporary(table.name))} "
                f"({columns}) ON COMMIT DELETE ROWS"
            )


def merge(
    connection: sa.Connection, table: StoredTable, target: sa.Table, rows: pa.RecordBatch
) -> None:
    """Merge rows, one for each key, into a table; inside of a transaction.

    The temporary table has to be empty, see ``empty``.
    """
    name = temporary(table.name)
    names = ", ".join(_quoted(column.name) for column in table.columns)
    driver: Any = connection.connection.driver_connection
    command = f"COPY {_quoted(name)} ({names}) FROM STDIN (FORMAT BINARY)"
    base = connection.dialect.loaded_dbapi.Error
    try:
        with driver.cursor() as cursor, cursor.copy(command) as copy:
            for piece in encoded(_as_copied(rows, table), [_type(c) for c in table.columns]):
                copy.write(piece)
    except base as error:
        # The driver's own, which SQLAlchemy has not seen.
        is_lost = bool(driver.closed)
        wrapped = sa.exc.DBAPIError.instance(
            command, None, error, base, connection_invalidated=is_lost, dialect=connection.dialect
        )
        raise wrapped from error
    columns: list[Any] = [sa.column(column.name) for column in table.columns]
    source: Any = sa.table(sa.quoted_name(name, True), *columns)
    connection.execute(merge_rows(table, target, Backend.POSTGRESQL, source))


def empty(connection: sa.Connection, table: StoredTable) -> None:
    """Remove the rows that the transaction has merged before."""
    connection.exec_driver_sql(f"DELETE FROM {_quoted(temporary(table.name))}")


def _type(column: StoredColumn) -> str:
    if column.type is AttributeType.BOOL and (column.merge is MergeRule.KEY or _is_number(column)):
        return "int2"
    return "text" if _is_decimal(column) else _TYPES[column.type]


def _is_decimal(column: StoredColumn) -> bool:
    """Whether fractions go to a column of decimals, which a cast of the database would round."""
    return (
        column.actual is not None
        and column.actual.kind is Kind.NUMERIC
        and column.type in (AttributeType.FLOAT, AttributeType.DOUBLE)
    )


def _is_number(column: StoredColumn) -> bool:
    return column.actual is not None and column.actual.kind is Kind.INTEGER


def _as_copied(rows: pa.RecordBatch, table: StoredTable) -> pa.RecordBatch:
    for at, column in enumerate(table.columns):
        if _is_decimal(column):
            rows = rows.set_column(at, column.name, rows.column(at).cast(pa.string()))
        elif column.type is AttributeType.BOOL and _is_number(column):
            rows = rows.set_column(at, column.name, rows.column(at).cast(pa.int16()))
    return rows


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
