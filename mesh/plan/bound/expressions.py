"""Bound expressions: trees over columns, every name resolved and every type known.

Positions are those of the text; they don't count for equality.
"""

# ``at()`` makes a field, it is no value that instances would share.
# ruff: noqa: RUF009

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mesh.language.syntax.expressions import BinaryOperator, UnaryOperator, at
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.errors import Position

#: ``Column.step`` of the query's own output attributes, after its select clause.
OUTPUT_STEP: Final = -1
#: ``Column.step`` of the rows of a table: inside ``in``, and in conditions over a table's rows.
TABLE_STEP: Final = -2


@dataclass(frozen=True, slots=True)
class Constant:
    """A value known when the app is planned."""

    value: str | int | float | bool | None
    type: AttributeType | None
    position: Position = at()


@dataclass(frozen=True, slots=True)
class Column:
    """An attribute; ``step`` is the side of a join or the event of a pattern, 0 elsewhere.

    ``OUTPUT_STEP`` and ``TABLE_STEP`` denote the query's output and a table's rows.
    """

    name: str
    type: AttributeType
    step: int = 0
    #: Of an event that occurs several times: which; negative counts from the last, -1.
    index: int | None = None
    position: Position = at()


@dataclass(frozen=True, slots=True)
class UnaryExpression:
    """``not``, ``-``, ``is null``."""

    operator: UnaryOperator
    operand: BoundExpression
    type: AttributeType
    position: Position = at()


@dataclass(frozen=True, slots=True)
class BinaryExpression:
    """Arithmetic yields the wider operand's type; comparisons and logic yield bool, never null."""

    operator: BinaryOperator
    left: BoundExpression
    right: BoundExpression
    type: AttributeType
    position: Position = at()


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A scalar function, by its full lower-case name (``coalesce``, ``str:length``)."""

    function: str
    arguments: tuple[BoundExpression, ...]
    type: AttributeType
    #: ``define function`` made it; ``function`` is its name as written then.
    is_script: bool = False
    #: Why every event will fail on it, as a sentence; None: it may work.
    fails: str | None = field(default=None, compare=False, repr=False, kw_only=True)
    position: Position = at()


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregator, ``avg(temp)``; may occur anywhere in a select expression."""

    function: str
    arguments: tuple[BoundExpression, ...]
    type: AttributeType
    position: Position = at()


@dataclass(frozen=True, slots=True)
class TableCheck:
    """``x in T``: whether a row of a table meets a condition, or has the key ``operand``.

    ``Column`` of step ``TABLE_STEP`` in the operand are the table's.
    """

    table: str
    operand: BoundExpression
    type: AttributeType = AttributeType.BOOL
    position: Position = at()


@dataclass(frozen=True, slots=True)
class EventIsNull:
    """``e1 is null``: whether there is no such event."""

    name: str
    #: Side of a join or event of a pattern; None: a stream that is no input of the query, which
    #: has an event always.
    step: int | None = None
    index: int | None = None
    type: AttributeType = AttributeType.BOOL
    position: Position = at()


BoundExpression = (
    Constant
    | Column
    | UnaryExpression
    | BinaryExpression
    | FunctionCall
    | AggregateCall
    | TableCheck
    | EventIsNull
)


def operands(expression: BoundExpression) -> tuple[BoundExpression, ...]:
    """The direct operands of ``expression``, from left to right."""
    match expression:
        case UnaryExpression() | TableCheck():
            return (expression.operand,)
        case BinaryExpression():
            return (expression.left, expression.right)
        case FunctionCall() | AggregateCall():
            return expression.arguments
        case Constant() | Column() | EventIsNull():
            return ()


def walk(expression: BoundExpression) -> Iterator[BoundExpression]:
    """``expression`` and all parts of it, each before its own parts, whatever its depth."""
    pending = [expression]
    while pending:
        part = pending.pop()
        yield part
        pending.extend(reversed(operands(part)))


def has_aggregate(expression: BoundExpression) -> bool:
    """Whether an aggregator occurs anywhere in ``expression``."""
    return any(isinstance(part, AggregateCall) for part in walk(expression))


def conjuncts(expression: BoundExpression) -> Iterator[BoundExpression]:
    """The parts of ``a and b and ..``, in order."""
    if isinstance(expression, BinaryExpression) and expression.operator is BinaryOperator.AND:
        yield from conjuncts(expression.left)
        yield from conjuncts(expression.right)
    else:
        yield expression
