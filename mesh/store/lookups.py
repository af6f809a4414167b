"""Look-ups of ``mesh.model.stored`` as SQL, for each database.

The keys of a batch are one statement.  Values are parameters with types of their own: a value that
no row of the column can have finds nothing, where a cast to the column's type would fail.
"""

from __future__ import annotations

import math
import operator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mesh.errors import MeshError
from mesh.model.column_texts import form, is_tested
from mesh.model.column_types import NoFormError
from mesh.model.stored import AllOf, AnyKey, AnyOf, Backend, Clause, Compared, Comparison
from mesh.store.catalogue import columns_of, described, expect_key
from mesh.store.engine import database_errors, engine_of
from mesh.store.schema import sql_table
from mesh.store.sql import sa
from mesh.store.values import to_arrow

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from mesh.model.column_types import ColumnType
    from mesh.model.stored import Database, StoredTable

_ESCAPE: Final = "/"
_OPERATORS: Final = {
    Comparison.EQUAL: operator.eq,
    Comparison.LESS: operator.lt,
    Comparison.LESS_OR_EQUAL: operator.le,
    Comparison.GREATER: operator.gt,
    Comparison.GREATER_OR_EQUAL: operator.ge,
}


def select(table: StoredTable, target: sa.Table, clause: Clause, backend: Backend) -> Any:
    """The statement that finds the rows of a look-up, in the columns of ``table``."""
    return sa.select(*(target.c[column.name] for column in table.columns)).where(
        _condition(clause, target, backend)
    )


def read(
    database: Database, table: StoredTable, clause: Clause, rows_max: int
) -> tuple[pa.RecordBatch, bool]:
    """The rows of a look-up, over a connection of its own, and whether there are more.

    Args:
        database: with the table.
        table: if it does not exist yet it has no rows.
        clause: the look-up.
        rows_max: the most rows that are read.

    Raises:
        MeshError: MESH-S140 if the database does not answer; MESH-S142.
    """
    with (
        database_errors(database, f"when table {table.name} is read"),
        engine_of(database).connect() as connection,
    ):
        columns = columns_of(connection, table.name)
        if not columns:
            return to_arrow([], table), False
        table = described(table, columns, database)
        target = sql_table(table, sa.MetaData(), database.backend)
        chosen = select(table, target, clause, database.backend).limit(rows_max + 1)
        rows = connection.execute(chosen).all()
    return to_arrow(rows[:rows_max], table), len(rows) > rows_max


def existing(
    database: Database, tables: Sequence[StoredTable], *, are_written: bool
) -> list[StoredTable]:
    """Those tables that exist, with the types of their columns; see ``mesh.store.backends``."""
    if database.backend is Backend.SQLITE and not Path(database.database).exists():
        return []
    existing_tables = []
    with (
        database_errors(database, "when tables are compared"),
        engine_of(database).connect() as connection,
    ):
        for table in tables:
            with connection.begin():
                columns = columns_of(connection, table.name)
            if columns:
                existing_tables.append(described(table, columns, database))
            if columns and are_written:
                with connection.begin():
                    expect_key(connection, table, database)
    return existing_tables


def too_many(table: str, rows_max: int) -> MeshError:
    """The error of a query that needs too many rows of a table in a database."""
    return MeshError(
        "MESH-A413",
        f'the query needs more than {rows_max} rows of table "{table}"',
        detail="They are read from its database, since the state does not have them.",
        hint="Ask for less: 'on' with comparisons of columns and values selects there.",
    )


def _condition(clause: Clause, target: sa.Table, backend: Backend) -> Any:
    match clause:
        case AllOf(parts):
            conditions = (_condition(part, target, backend) for part in parts)
            return sa.and_(sa.true(), *conditions)
        case AnyOf(parts):
            conditions = (_condition(part, target, backend) for part in parts)
            return sa.or_(sa.false(), *conditions)
        case AnyKey():
            return _any_key(clause, target)
        case Compared():
            return _compared(clause, target, backend)


def _any_key(clause: AnyKey, target: sa.Table) -> object:
    columns = [target.c[name] for name in clause.columns]
    keys = [
        tuple(_value(part, column) for part, column in zip(key, columns, strict=True))
        for key in clause.keys
        if all(_may_be(part, column) for part, column in zip(key, columns, strict=True))
    ]
    if not keys:
        return sa.false()
    types = [_type(value, column) for value, column in zip(keys[0], columns, strict=True)]
    sides = [_side(column) for column in columns]
    if len(columns) == 1:
        # An expanding parameter: the statement is compiled once for any number.
        parameter = sa.bindparam(None, [key[0] for key in keys], type_=types[0], expanding=True)
        return sides[0].in_(parameter)
    if len(keys) == 1 or any(map(_exact_text, columns)):
        return sa.or_(
            *(
                sa.and_(
                    *(
                        side == sa.literal(value, type)
                        for side, value, type in zip(sides, key, types, strict=True)
                    )
                )
                for key in keys
            )
        )
    return sa.tuple_(*sides, types=types).in_(keys)


def _compared(clause: Compared, target: sa.Table, backend: Backend) -> object:
    column, value = target.c[clause.column], clause.value
    if clause.how is Comparison.IS_NULL:
        return column.is_(None)
    if clause.how is Comparison.IS_NOT_NULL:
        return column.is_not(None)
    if not _may_be(value, column, is_part=clause.how is Comparison.CONTAINS):
        return sa.false()
    if clause.how is Comparison.CONTAINS:
        for special in (_ESCAPE, "%", "_"):
            value = value.replace(special, _ESCAPE + special)
        text = sa.literal(f"%{value}%", sa.Text())
        return _side(column, is_text=True).like(text, escape=_ESCAPE)
    is_finite = not isinstance(value, float) or math.isfinite(value)
    if not is_finite and backend is not Backend.POSTGRESQL:
        # They have no infinity; the rows are tested once more.
        return sa.true()
    return _OPERATORS[clause.how](_side(column), _literal(value, column))


def _may_be(value: Any, column: sa.Column[Any], *, is_part: bool = False) -> bool:
    """Whether a row can have a value in a column at all, or a text that has it as a part."""
    if value is None or (isinstance(value, str) and "\0" in value):
        return False
    actual = _exact_text(column)
    if is_part or actual is None:
        return True
    try:
        value_form = form(actual, value)
    except NoFormError:
        return False
    # Otherwise texts are compared.
    return value_form == value or not is_tested(actual)


def _exact_text(column: sa.Column[Any]) -> ColumnType | None:
    """The type of a column whose values are exact texts here; None for others."""
    from mesh.store.column_sql import ExactText

    return column.type.column if isinstance(column.type, ExactText) else None


def _side(column: sa.Column[Any], *, is_text: bool = False) -> Any:
    """A column in a comparison: itself, or its text where the database compares in other ways."""
    from mesh.store.column_sql import is_compared, text_of

    actual = _exact_text(column)
    if actual is None or (is_compared(actual) and not is_text):
        return column
    return sa.type_coerce(text_of(actual, column), sa.Text())


def _literal(value: Any, column: sa.Column[Any]) -> Any:
    """A parameter with the type of the value."""
    return sa.literal(_value(value, column), _type(value, column))


def _value(value: Any, column: sa.Column[Any]) -> object:
    """A value as the driver takes it; a flag in a key has a third value, for null."""
    is_number = isinstance(value, bool) and not isinstance(column.type, sa.Boolean)
    return int(value) if is_number else value


def _type(value: object, column: sa.Column[Any]) -> Any:
    from mesh.store.column_sql import is_compared

    actual = _exact_text(column)
    if actual is not None and is_compared(actual):
        return column.type
    match _value(value, column):
        case bool():
            return sa.Boolean()
        case int():
            return sa.BigInteger()
        case float():
            return sa.Double()
        case _:
            return sa.Text()
