"""Binding of a query's output action: an insertion into a stream, or a change of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from mesh.errors import MeshError
from mesh.language.syntax import (
    DeleteFrom,
    InsertInto,
    ReturnEvents,
    StreamKind,
    UpdateTable,
    Variable,
)
from mesh.plan.bind.names import shown
from mesh.plan.bound import Delete, Insert, SourceKind, Update, UpdateAssignment
from mesh.plan.diagnostics import DependsOnError
from mesh.plan.expressions import bind_expression
from mesh.plan.name_errors import nearest, unknown_attribute
from mesh.plan.scopes import RowScope
from mesh.plan.sources import by_name, output_source, table_source

if TYPE_CHECKING:
    from mesh.language.syntax import QueryOutput, SetAssignment, StreamReference
    from mesh.model.types import StreamSchema
    from mesh.plan.bind.names import AppNames
    from mesh.plan.bound import Action


def bind_action(
    written: QueryOutput, produced: StreamSchema, names: AppNames, *, bare_is_table: bool = False
) -> Action:
    """Bind the action on ``produced``, the query's output.

    ``bare_is_table``: whether the table's attributes need no prefix.

    Raises:
        MeshError: MESH-L209 if the output doesn't fit, MESH-L217 without such a table, and the
            errors of conditions over the table's rows.
        DependsOnError: the target has an error itself.
    """
    match written:
        case InsertInto():
            return _insert(written.stream, produced, names)
        case DeleteFrom():
            table = names.table(written.table.name, written.table.position)
            scope = _rows(table, produced, names, bare_is_table)
            on = bind_expression(written.on, scope, names.vocabulary)
            return Delete(table, on, position=written.table.position)
        case UpdateTable():
            return _update(written, produced, names, bare_is_table)
        case ReturnEvents():
            raise MeshError(
                "MESH-L222",
                "'return' in a query of an app",
                detail="No query receives its result.",
                hint="Write insert into a stream.",
                position=written.position,
            )
        case _:
            assert_never(written)


def _insert(reference: StreamReference, produced: StreamSchema, names: AppNames) -> Insert:
    target = names.target(reference)
    at = reference.position
    if target is not None and target.schema is None:
        raise DependsOnError
    kind = target.kind if target is not None else SourceKind.STREAM
    if reference.kind is not StreamKind.PLAIN:
        kind = SourceKind.INNER if reference.kind is StreamKind.INNER else SourceKind.FAULT
    if target is None or target.schema is None:
        return Insert(produced, kind, position=at)
    if target.schema.attributes != produced.attributes:
        raise _unfit(produced, target.schema, target.kind, reference)
    return Insert(target.schema, kind, position=at)


def _unfit(
    produced: StreamSchema, target: StreamSchema, kind: SourceKind, reference: StreamReference
) -> MeshError:
    return MeshError(
        "MESH-L209",
        f'output does not fit {kind} "{target.name}"',
        detail=f"It is {shown(produced)}, and the {kind} is {shown(target)}.",
        hint="Names, types and order must be equal; 'as' gives names.",
        position=reference.position,
    )


def _rows(
    table: StreamSchema, produced: StreamSchema, names: AppNames, bare_is_table: bool
) -> RowScope:
    return RowScope(
        table_source(table.name, table.attributes),
        output_source("", produced.attributes),
        names.is_defined,
        bare_is_table,
    )


def _update(
    written: UpdateTable, produced: StreamSchema, names: AppNames, bare_is_table: bool
) -> Update:
    reference = written.table
    table = names.table(reference.name, reference.position)
    if written.inserts and produced.attributes != table.attributes:
        raise _unfit(produced, table, SourceKind.TABLE, reference)
    if not written.inserts and not written.assignments:
        _check_subset(produced, table, reference)
    scope = _rows(table, produced, names, bare_is_table)
    assignments = tuple(_assignment(a, table, scope, names) for a in written.assignments)
    on = bind_expression(written.on, scope, names.vocabulary)
    return Update(table, assignments, on, written.inserts, position=reference.position)


def _check_subset(produced: StreamSchema, table: StreamSchema, reference: StreamReference) -> None:
    """Check an update without ``set``: each output sets the attribute of its name and type."""
    columns = by_name(table.attributes)
    for attribute in produced.attributes:
        column = columns.get(attribute.name)
        if column == attribute:
            continue
        if column is None:
            message = f'table "{table.name}" has no attribute "{attribute.name}"'
            hint = nearest(attribute.name, table.names)
        else:
            kinds = f'is {attribute.type}, and {column.type} in table "{table.name}"'
            message, hint = f'"{attribute.name}" {kinds}', None
        raise MeshError(
            "MESH-L209",
            message,
            detail=f"Without 'set' outputs go to attributes of their names: {shown(table)}.",
            hint=hint or "Write set T.a = .. for what is to change.",
            position=reference.position,
        )


def _assignment(
    written: SetAssignment, table: StreamSchema, scope: RowScope, names: AppNames
) -> UpdateAssignment:
    # The engine checks the name alone, whatever mark precedes it.
    target = written.attribute
    if target.name not in scope.table.attributes:
        name = Variable(target.name, position=target.position)
        raise unknown_attribute(name, table.attributes, f'table "{table.name}"')
    attribute = scope.table.column(Variable(target.name, position=target.position))
    value = bind_expression(written.value, scope, names.vocabulary)
    return UpdateAssignment(attribute, value)
