"""``select .. group by .. having .. order by .. limit .. offset``, bound.

Binding of a query's output action: an insertion into a stream, or a change of a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from mesh.errors import MeshError
from mesh.language.syntax import (
    DeleteFrom,
    InsertInto,
    Literal,
    ReturnEvents,
    StreamKind,
    UpdateTable,
    Variable,
)
from mesh.model.types import Attribute, AttributeType, StreamSchema
from mesh.plan.bind.names import shown
from mesh.plan.bound import (
    BoundOrder,
    BoundOutput,
    Delete,
    Insert,
    SourceKind,
    Update,
    UpdateAssignment,
)
from mesh.plan.diagnostics import DependsOnError, nearest, unknown_attribute
from mesh.plan.expressions import bind_expression, bind_test, type_of
from mesh.plan.scopes import InputScope, OutputScope, RowScope, by_name, output_source, table_source

if TYPE_CHECKING:
    from collections.abc import Collection

    from mesh.errors import Position
    from mesh.language.syntax import (
        Expression,
        OutputAttribute,
        QueryOutput,
        SelectClause,
        SetAssignment,
        StreamReference,
    )
    from mesh.plan.bind.names import AppNames
    from mesh.plan.bound import Action, BoundExpression, Column
    from mesh.plan.diagnostics import Diagnostics
    from mesh.plan.expressions import Vocabulary


@dataclass(frozen=True, slots=True)
class Selection:
    """The output of a query, with the filters on it."""

    outputs: tuple[BoundOutput, ...]
    group_by: tuple[Column, ...]
    having: BoundExpression | None
    order_by: tuple[BoundOrder, ...]
    limit: int | None
    offset: int | None

    def schema(self, name: str) -> StreamSchema:
        """The output as a stream called ``name``."""
        return StreamSchema(
            name, tuple(Attribute(o.name, type_of(o.expression)) for o in self.outputs)
        )


def bind_selection(
    selector: SelectClause,
    scope: InputScope,
    vocabulary: Vocabulary,
    problems: Diagnostics,
    *,
    output: str,
    reads_input: bool,
    position: Position,
) -> Selection | None:
    """A selector; None if its output is unknown.

    Args:
        selector: as written.
        scope: the query's input.
        vocabulary: the functions that can be called.
        problems: receives the errors.
        output: the name of its target with its mark, which ``having`` may use.
        reads_input: whether ``having`` and ``order by`` know the input as well.
        position: position of ``*`` if nothing is selected by name.
    """
    if selector.attributes:
        outputs = _outputs(selector.attributes, scope, vocabulary, problems)
    else:
        at = selector.position if selector.position.line else position
        columns = problems.attempt(scope.spread, at)
        outputs = None if columns is None else tuple(BoundOutput(c.name, c) for c in columns)
    aliases = frozenset(one.name for one in outputs or ())
    group_by = [problems.attempt(_key, v, scope, aliases) for v in selector.group_by]
    limit = problems.attempt(_constant, selector.limit, "limit")
    offset = problems.attempt(_constant, selector.offset, "offset")
    if outputs is None:
        return None
    attributes = [Attribute(o.name, type_of(o.expression)) for o in outputs]
    behind = OutputScope(output_source(output, attributes), scope, reads_input)
    having = None
    if selector.having is not None:
        condition = selector.having
        having = problems.attempt(bind_test, condition, behind, vocabulary, "'having'")
    order_by = []
    for order in selector.order_by:
        column = problems.attempt(behind.column, order.attribute)
        if column is not None:
            order_by.append(BoundOrder(column, order.direction, position=order.position))
    return Selection(
        outputs,
        tuple(column for column in group_by if column is not None),
        having,
        tuple(order_by),
        limit,
        offset,
    )


def _key(variable: Variable, scope: InputScope, aliases: Collection[str]) -> Column:
    """A column of ``group by``; ``aliases``: the names of the query's output."""
    try:
        return scope.column(variable)
    except MeshError as error:
        if variable.source is None and variable.name in aliases:
            error.hint = "'group by' takes attributes of the input: compute it in an earlier query."
        raise


def _outputs(
    written: tuple[OutputAttribute, ...],
    scope: InputScope,
    vocabulary: Vocabulary,
    problems: Diagnostics,
) -> tuple[BoundOutput, ...] | None:
    outputs: list[BoundOutput] = []
    seen: set[str] = set()
    is_whole = True
    for attribute in written:
        name = (
            attribute.alias if attribute.alias is not None else _variable_name(attribute.expression)
        )
        if name in seen:
            problems.add(duplicate_output(name, attribute))
            is_whole = False
            continue
        seen.add(name)
        expression = problems.attempt(bind_expression, attribute.expression, scope, vocabulary)
        if expression is None:
            is_whole = False
        else:
            outputs.append(BoundOutput(name, expression))
    return tuple(outputs) if is_whole else None


def duplicate_output(name: str, attribute: OutputAttribute) -> MeshError:
    """MESH-L210 for an output attribute."""
    return MeshError(
        "MESH-L210",
        f'output attribute "{name}" is given twice',
        hint="Give one of them another name with 'as'.",
        position=attribute.position,
    )


def _variable_name(expression: Expression) -> str:
    assert isinstance(expression, Variable), "the parser asks for a name of what is computed"
    return expression.name


def _constant(expression: Expression | None, what: str) -> int | None:
    if expression is None:
        return None
    if (
        not isinstance(expression, Literal)
        or expression.type not in (AttributeType.INT, AttributeType.LONG)
        or not isinstance(expression.value, int)
    ):
        raise _limit_error(f"'{what}' takes a whole number, written out", expression)
    if expression.value < 0:
        raise _limit_error(f"'{what}' can't be negative", expression)
    return expression.value


def _limit_error(message: str, expression: Expression) -> MeshError:
    return MeshError("MESH-L211", message, position=expression.position)


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
