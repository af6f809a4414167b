"""Tables in stores that find rows by their key alone: which queries read all rows of one.

A database with SQL evaluates other conditions as well, see ``mesh.operators.tables.pushed``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.language.syntax import BinaryOperator
from mesh.plan.bound import (
    TABLE_STEP,
    BinaryExpression,
    BoundJoin,
    Column,
    Delete,
    SourceKind,
    TableCheck,
    Update,
    conjuncts,
    walk,
)
from mesh.plan.dependencies import expressions
from mesh.plan.stores import is_read_by_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.plan.bound import BoundApp, BoundExpression, BoundQuery


def scans(app: BoundApp) -> tuple[tuple[str, str], ...]:
    """Tables that stay in such a store, with each query that reads all rows for each run."""
    keys = {t.schema.name: t.primary_key for t in app.tables if is_read_by_key(t)}
    inside = (query for partition in app.partitions for query in partition.queries)
    pairs = (
        (table, query.name)
        for query in (*app.queries, *inside)
        for table, on, step in _conditions(query)
        if table in keys and not set(keys[table]) <= set(_equal(on, step))
    )
    return tuple(dict.fromkeys(pairs))


def _conditions(query: BoundQuery) -> Iterator[tuple[str, BoundExpression | None, int]]:
    """Table, condition, and the step of the table's columns there."""
    if isinstance(query.input, BoundJoin):
        for step, side in enumerate((query.input.left, query.input.right)):
            if side.kind is SourceKind.TABLE:
                yield side.schema.name, query.input.on, step
    if isinstance(query.action, Update | Delete):
        yield query.action.target.name, query.action.on, TABLE_STEP
    for part in (part for root in expressions(query) for part in walk(root)):
        if isinstance(part, TableCheck):
            yield part.table, part.operand, TABLE_STEP


def _equal(on: BoundExpression | None, step: int) -> Iterator[str]:
    """The columns of a table that have to equal something else."""
    for part in conjuncts(on) if on is not None else ():
        if not isinstance(part, BinaryExpression) or part.operator is not BinaryOperator.EQUAL:
            continue
        for column, other in ((part.left, part.right), (part.right, part.left)):
            columns = (one for one in walk(other) if isinstance(one, Column))
            if not isinstance(column, Column) or column.step != step:
                continue
            if not any(one.step == step for one in columns):
                yield column.name
