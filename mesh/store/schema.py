"""Tables by SQLAlchemy: types and keys of each database, creation, comparison, the marker table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mesh.errors import MeshError
from mesh.model.column_types import Kind
from mesh.model.column_values import NATIVE
from mesh.model.stored import Backend, MergeRule
from mesh.model.types import AttributeType
from mesh.store.catalogue import columns_of
from mesh.store.sql import sa

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.model.column_types import ColumnType
    from mesh.model.stored import Database, StoredColumn, StoredTable

MARKER: Final = "mesh_marker"
READS: Final = "mesh_reads"
REFUSED: Final = "mesh_refused"
#: MySQL allows 3072 bytes for a key, and a character may have four.
_PRODUCER_LENGTH: Final = 500
#: No database has longer names.
_TABLE_LENGTH: Final = 128


def marker_table(metadata: sa.MetaData, backend: Backend) -> sa.Table:
    """``mesh_marker``: by producer the epoch and the position of its last rows in the database."""
    return sa.Table(
        MARKER,
        metadata,
        sa.Column("producer", _string(_PRODUCER_LENGTH, backend), primary_key=True),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
    )


def reads_table(metadata: sa.MetaData, backend: Backend) -> sa.Table:
    """``mesh_reads``: by producer and number what its runs have read (``ReadRun``)."""
    return sa.Table(
        READS,
        metadata,
        sa.Column("producer", _string(_PRODUCER_LENGTH, backend), primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("until", sa.BigInteger, nullable=False),
        sa.Column("known_ms", sa.BigInteger, nullable=False),
        sa.Column("continues", sa.SmallInteger, nullable=False),
        sa.Column("made_ms", sa.BigInteger, nullable=False),
        # MySQL has a type for each size.
        sa.Column("data", sa.LargeBinary(2**31), nullable=False),
    )


def refused_table(metadata: sa.MetaData, backend: Backend) -> sa.Table:
    """``mesh_refused``: rows that the database has refused, until they have left."""
    text: Any = sa.Text()
    if backend is Backend.MYSQL:
        from sqlalchemy.dialects import mysql

        text = mysql.LONGTEXT(collation="utf8mb4_bin")
    return sa.Table(
        REFUSED,
        metadata,
        sa.Column("producer", _string(_PRODUCER_LENGTH, backend), primary_key=True),
        sa.Column("table_name", _string(_TABLE_LENGTH, backend), primary_key=True),
        sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("time_ms", sa.BigInteger, nullable=False),
        sa.Column("reason", text, nullable=False),
        sa.Column("event", text, nullable=False),
    )


def sql_table(table: StoredTable, metadata: sa.MetaData, backend: Backend) -> sa.Table:
    """A table as SQLAlchemy has it, with its primary key and indexes."""
    columns: list[Any] = [
        sa.Column(
            column.name,
            _type(column, backend),
            primary_key=column.merge is MergeRule.KEY,
            autoincrement=False,
            # Names keep their case everywhere.
            quote=True,
        )
        for column in table.columns
    ]
    target = sa.Table(table.name, metadata, *columns, quote=True)
    for number, names in enumerate(table.indexes):
        sa.Index(f"{table.name}_INDEX_{number}", *(target.c[name] for name in names), quote=True)
    return target


def written_table(name: str, columns: Mapping[str, ColumnType]) -> sa.Table:
    """An existing table, for values as ``mesh.model.column_values`` has them."""
    from mesh.store.column_sql import ExactText

    def type_of(column: ColumnType) -> Any:
        if column.backend is Backend.SQLITE:
            return sa.types.NullType()
        if column.kind in NATIVE:
            kinds = {Kind.INTEGER: sa.BigInteger, Kind.DOUBLE: sa.Double, Kind.BOOLEAN: sa.Boolean}
            return kinds[column.kind]()
        is_text = column.is_text and not column.charset
        return sa.Text() if is_text else ExactText(column)

    listed = [sa.Column(one, type_of(column), quote=True) for one, column in columns.items()]
    return sa.Table(name, sa.MetaData(), *listed, quote=True)


def create_tables(connection: sa.Connection, metadata: sa.MetaData, database: Database) -> None:
    """Create the tables that are missing, in transactions of their own, and compare the others.

    Raises:
        MeshError: MESH-S142, an existing table lacks a column.
    """
    if database.backend is Backend.MYSQL:
        _keep_spaces(connection, metadata)
    for table in metadata.sorted_tables:
        try:
            with connection.begin():
                table.create(connection, checkfirst=True)
        except sa.exc.DBAPIError:
            # Another instance may have created it at the same time.
            with connection.begin():
                if not sa.inspect(connection).has_table(table.name):
                    raise
        with connection.begin():
            columns = columns_of(connection, table.name)
        missing = [name for name in table.columns.keys() if name not in columns]  # noqa: SIM118
        if missing:
            raise MeshError(
                "MESH-S142",
                f'table "{table.name}" of database {database} lacks columns',
                detail=f"Missing: {', '.join(missing)}.",
                hint="Add them, or name another table with table.name.",
            )


def _keep_spaces(connection: sa.Connection, metadata: sa.MetaData) -> None:
    """Compare texts with the spaces at their end, if this server can, in tables that are made."""
    dialect: Any = connection.dialect
    if not dialect.is_mariadb and dialect.server_version_info < (8, 0, 17):
        return
    name = "utf8mb4_nopad_bin" if dialect.is_mariadb else "utf8mb4_0900_bin"
    for table in metadata.tables.values():
        for column in table.columns:
            if getattr(column.type, "collation", None):
                column.type.collation = name  # type: ignore[attr-defined]  # of a text


def _type(column: StoredColumn, backend: Backend) -> Any:
    if column.actual is not None:
        # It imports SQLAlchemy, as all do that have read a table.
        from mesh.store.column_sql import type_of

        sql_type = type_of(column)
        if sql_type is not None:
            return sql_type
    match column.type:
        case AttributeType.STRING:
            return _string(column.length, backend)
        case AttributeType.INT:
            return sa.Integer()
        case AttributeType.LONG:
            return sa.BigInteger()
        case AttributeType.FLOAT:
            # MySQL rounds its FLOAT to six digits on reading.
            return sa.Double() if backend is Backend.MYSQL else sa.REAL()
        case AttributeType.DOUBLE:
            return sa.Double()
        case AttributeType.BOOL:
            # A key has a third value, for null.
            return sa.SmallInteger() if column.merge is MergeRule.KEY else sa.Boolean()
        case AttributeType.OBJECT:
            return sa.LargeBinary()


def _string(length: int, backend: Backend) -> Any:
    match backend:
        case Backend.SQLITE:
            return sa.Text()
        case Backend.MYSQL:
            # Others compare without case.
            return sa.String(length, collation="utf8mb4_bin")
        case _:
            return sa.String(length)
