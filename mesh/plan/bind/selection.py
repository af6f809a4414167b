"""``select .. group by .. having .. order by .. limit .. offset``, bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mesh.errors import MeshError
from mesh.language.syntax import Literal, Variable
from mesh.model.types import Attribute, AttributeType, StreamSchema
from mesh.plan.bound import BoundOrder, BoundOutput
from mesh.plan.expressions import bind_expression, bind_test, type_of
from mesh.plan.scopes import InputScope, OutputScope
from mesh.plan.sources import output_source

if TYPE_CHECKING:
    from collections.abc import Collection

    from mesh.errors import Position
    from mesh.language.syntax import Expression, OutputAttribute, SelectClause
    from mesh.plan.bound import BoundExpression, Column
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
