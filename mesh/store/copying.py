r"""Bulk path of PostgreSQL: binary COPY into a temporary table, and a statement that merges.

Rows in PostgreSQL's binary format of COPY, encoded by column.

    header    "PGCOPY\n\xff\r\n\0", flags, length of the extension: 19 bytes
    row       int16 number of fields, then of each field int32 length (-1: null) and its bytes
    end       int16 -1

Numbers are big-endian.  The format is in PostgreSQL's documentation of COPY, "Binary Format".  The
driver encodes it value by value; here each column is an array of the bytes of its fields, and Arrow
joins these row by row.

Statements that merge rows into a table by key, for each database.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from mesh.model.column_types import Kind
from mesh.model.stored import Backend, MergeRule
from mesh.model.types import AttributeType
from mesh.store.sql import sa
from pyspark_nats.arrow import ArrowArray, kernels

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

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

_HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END: Final = b"\xff\xff"
#: Rows of a piece.
_ROWS: Final = 10_000
#: Bytes of a length.
_LENGTH: Final = 4
#: By the database's type: the representation of a value of fixed length.
_FIXED: Final = {
    "bool": ">u1",
    "int2": ">i2",
    "int4": ">i4",
    "int8": ">i8",
    "float4": ">f4",
    "float8": ">f8",
}


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


def encoded(rows: pa.RecordBatch, types: Sequence[str]) -> Iterator[bytes]:
    """Rows as the data of ``COPY .. FROM STDIN (FORMAT BINARY)``, in pieces.

    Args:
        rows: any number of rows.
        types: the database's type of each column: ``text``, ``bytea``, or one of fixed length.
    """
    yield _HEADER
    for first in range(0, rows.num_rows, _ROWS):
        yield _piece(rows.slice(first, _ROWS), types)
    yield _END


def _piece(rows: pa.RecordBatch, types: Sequence[str]) -> bytes:
    number = np.full(rows.num_rows, rows.num_columns, ">i2")
    parts = [_binary(_bytes_of(number))]
    for column, type_ in zip(rows.columns, types, strict=True):
        parts += _fixed(column, _FIXED[type_]) if type_ in _FIXED else _text(column)
    whole = kernels.binary_join_element_wise(*parts, b"")
    size = int(kernels.sum(kernels.binary_length(whole)).as_py())
    data: pa.Buffer = whole.buffers()[2]
    return data.slice(0, size).to_pybytes()


def _fixed(column: ArrowArray, kind: str) -> Iterator[ArrowArray]:
    """The fields of a column of values of one length."""
    filled = column.fill_null(False if pa.types.is_boolean(column.type) else 0)
    values = filled.to_numpy(zero_copy_only=False).astype(kind)
    lengths = np.full(len(column), values.dtype.itemsize, ">i4")
    fields = np.concatenate([_bytes_of(lengths), _bytes_of(values)], axis=1)
    if not column.null_count:
        yield _binary(fields)
        return
    nulls = _nulls(column)
    fields[nulls, :_LENGTH] = 255
    sizes = np.where(nulls, _LENGTH, fields.shape[1])
    mask = np.arange(fields.shape[1]) < sizes[:, None]
    yield _binary(fields[mask], np.concatenate([[0], np.cumsum(sizes)]))


def _text(column: ArrowArray) -> Iterator[ArrowArray]:
    """The lengths and the contents of a column of strings, in UTF-8, or of bytes."""
    lengths = kernels.binary_length(column).fill_null(-1).to_numpy().astype(">i4")
    yield _binary(_bytes_of(lengths))
    yield kernels.fill_null(column.cast(pa.binary()), b"")


def _binary(fields: NDArray[np.uint8], offsets: NDArray[Any] | None = None) -> ArrowArray:
    """An array of bytes: ``fields`` row by row, or cut at ``offsets``."""
    if offsets is None:
        offsets = np.arange(len(fields) + 1) * fields.shape[1]
    cuts, data = (pa.py_buffer(one.tobytes()) for one in (offsets.astype(np.int32), fields))
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, cuts, data])


def _nulls(column: ArrowArray) -> NDArray[np.bool_]:
    return column.is_null().to_numpy(zero_copy_only=False)


def _bytes_of(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Values as uint8[n, bytes of one]."""
    return values.view(np.uint8).reshape(len(values), values.dtype.itemsize)


def merge_rows(
    table: StoredTable, target: sa.Table, backend: Backend, source: sa.Table | None = None
) -> Any:
    """An insert that merges rows with those of equal key.

    Args:
        table: with the rule of each column.
        target: the same in SQLAlchemy.
        backend: of the database.
        source: a table with the new rows; None: they are parameters, one for each column.
    """
    statement: Any
    if backend is Backend.MYSQL:
        from sqlalchemy.dialects import mysql

        statement = mysql.insert(target)
        new = statement.inserted
    else:
        from sqlalchemy.dialects import postgresql, sqlite

        insert = postgresql.insert if backend is Backend.POSTGRESQL else sqlite.insert
        statement = insert(target)
        new = statement.excluded
    names = [column.name for column in table.columns]
    if source is None:
        statement = statement.values({name: sa.bindparam(name) for name in names})
    else:
        keys = [source.c[column.name] for column in table.keys]
        new_columns = [_new_value(column, source.c[column.name]) for column in table.columns]
        chosen = sa.select(*new_columns).order_by(*keys)
        statement = statement.from_select(names, chosen)
    # MySQL assigns from left to right, and reads what it has assigned: the time of the latest
    # values, by which they are chosen, is the last.
    ordered = sorted(table.values, key=lambda column: column.merge is MergeRule.LAST)
    changes = [(c.name, _merged(c.merge, table, target, new, c.name)) for c in ordered]
    keys_of = [column.name for column in table.keys]
    if backend is Backend.MYSQL:
        # A row that has nothing but a key stays as it is.
        return statement.on_duplicate_key_update(changes or [(keys_of[0], new[keys_of[0]])])
    if not changes:
        return statement.on_conflict_do_nothing(index_elements=keys_of)
    return statement.on_conflict_do_update(index_elements=keys_of, set_=dict(changes))


def _new_value(column: StoredColumn, copied: object) -> Any:
    """A column of new rows, as its table has it: the value of an exact text."""
    if column.actual is None:
        return copied
    from mesh.store.column_sql import Decimals, ExactText, type_of, value_of

    sql_type = type_of(column)
    return value_of(column.actual, copied) if isinstance(sql_type, ExactText | Decimals) else copied


def _merged(merge: MergeRule, table: StoredTable, target: sa.Table, new: Any, name: str) -> object:
    old, value = target.c[name], new[name]
    match merge:
        case MergeRule.SUM:
            return sa.func.coalesce(old + value, old, value)
        case MergeRule.MIN:
            return sa.case((sa.or_(old.is_(None), value < old), value), else_=old)
        case MergeRule.MAX | MergeRule.LAST:
            return sa.case((sa.or_(old.is_(None), value > old), value), else_=old)
        case _:
            last = next((c.name for c in table.values if c.merge is MergeRule.LAST), None)
            if last is None:
                return value
            return sa.case((new[last] >= target.c[last], value), else_=old)
