"""Statements that merge rows into a table by key, for each database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mesh.model.stored import Backend, MergeRule
from mesh.store.sql import sa

if TYPE_CHECKING:
    from mesh.model.stored import StoredColumn, StoredTable


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
