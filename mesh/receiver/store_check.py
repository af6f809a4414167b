"""Check of an app's tables in databases, for a worker: their columns, and what is written to them.

Nothing is created.  A database that does not answer has no problems here: its group looks again
when it starts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.language.parser import parse
from mesh.model.column_texts import is_tested
from mesh.model.stored import StoreTarget
from mesh.model.types import AttributeType
from mesh.operators.executor import Executor
from mesh.operators.tables.written import stored_form
from mesh.plan.bind import bind
from mesh.plan.bound import AnswerOutput
from mesh.plan.stores import stored_definitions
from mesh.receiver.checking import ConnectorCheck
from mesh.receiver.outcomes import reason_of
from mesh.store.backends import existing
from mesh.store.sources import OF_SETTINGS, database, shard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.model.stored import StoredTable
    from mesh.plan.bound import BoundApp

#: Errors that the app has wherever it runs, and those of a worker's settings.
_REFUSED: Final = ("MESH-S142", "MESH-S146", *OF_SETTINGS)


def store_checks(app: BoundApp, first: int = 0) -> list[ConnectorCheck]:
    """The result for the database of each table and aggregation in a store.

    Args:
        app: the app.
        first: the number of the first result.
    """
    written, checks = _written(app), []
    for number, (target, name) in enumerate(_targets(app), first):
        endpoint = problem = ""
        try:
            where = database(target.options, app.name)
            endpoint = str(where)
            _check(target, app.name, is_written=name in written)
        except MeshError as error:
            problem = reason_of(error)
        checks.append(
            ConnectorCheck(number, name, f"store {target.options.kind}", endpoint, problem)
        )
    return checks


def store_problem(text: str) -> MeshError | None:
    """The error of an app that can't use its tables; None if it can, or a database is away.

    Raises:
        MeshError: the text is invalid.
    """
    app = bind(parse(text))
    written = _written(app)
    for target, name in _targets(app):
        try:
            _check(target, app.name, is_written=name in written)
        except MeshError as error:
            if error.code in _REFUSED:
                return error
    return None


def _targets(app: BoundApp) -> Iterator[tuple[StoreTarget, str]]:
    """The tables of each definition with a store, and its name."""
    for name, options in stored_definitions(app):
        tables = [one for one in app.tables if one.schema.name == name]
        if tables:
            yield StoreTarget(options, (stored_form(tables[0], options),)), name
            continue
        aggregations = tuple(one for one in app.aggregations if one.schema.name == name)
        alone = replace(app, queries=(), partitions=(), tables=(), aggregations=aggregations)
        for target in Executor(alone, (), shard=shard()).stores:
            yield target, name


def _written(app: BoundApp) -> frozenset[str]:
    queries = (*app.queries, *(query for part in app.partitions for query in part.queries))
    actions = (query.action for query in queries)
    return frozenset(one.target.name for one in actions if not isinstance(one, AnswerOutput))


def _check(target: StoreTarget, app: str, *, is_written: bool) -> None:
    where = database(target.options, app)
    for table in existing(where, target.tables, are_written=is_written):
        if is_written:
            _check_written(table, str(where), is_refusable=target.options.is_refusable)


def _check_written(table: StoredTable, where: str, *, is_refusable: bool) -> None:
    for column in table.columns:
        actual = column.actual
        if actual is None:
            continue
        reason = hint = ""
        if actual.is_generated:
            reason = "the database computes it, and the app writes the table"
            hint = "Leave the attribute out of the table, or read the table only."
        elif column.type is AttributeType.STRING and not is_tested(actual) and not is_refusable:
            reason = f"only the database can test texts of {actual.declared}"
            hint = "Add kept='false' and on.error='STORE', or leave the attribute out."
        if reason:
            raise MeshError(
                "MESH-S146",
                f'column "{column.name}" of table "{table.name}" of database {where} '
                "can't be written",
                detail=f"{reason[0].upper()}{reason[1:]}.",
                hint=hint,
            )
