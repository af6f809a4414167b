"""Extraction of aggregators from expressions, each with the conditions under which it is evaluated.

The reference engine evaluates the right side of ``and`` and ``or`` only where the left does not
decide, and one branch of ``ifThenElse``.  An aggregator in such a place takes part only in
those events: in ``sum(a) > 5 and count() > 2`` it counts from the sixth on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from mesh.language.syntax import BinaryOperator, UnaryOperator
from mesh.model.types import AttributeType
from mesh.plan.bound import (
    AggregateCall,
    BinaryExpression,
    BoundExpression,
    Column,
    Constant,
    FunctionCall,
    TableCheck,
    UnaryExpression,
    walk,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Aggregators that have no answer to a null.
FAIL_ON_NULL: Final = frozenset({"and", "or"})
#: Aggregators that fail on values that are no JSON, no map or no list.
_FAIL_ON_VALUES: Final = frozenset({"json:group", "json:groupasobject", "list:merge", "map:merge"})
#: Expressions that don't fail.
_SAFE = (AggregateCall, BinaryExpression, Column, Constant, UnaryExpression)
#: The step of columns that hold the values of aggregates.
AGGREGATES = -3


@dataclass(frozen=True, slots=True)
class ExtractedAggregate:
    """An aggregator, and the conditions that must all be true for its evaluation."""

    call: AggregateCall
    conditions: tuple[BoundExpression, ...] = ()


def extract(
    expression: BoundExpression,
    lifted: list[ExtractedAggregate],
    prefix: str = "",
    conditions: tuple[BoundExpression, ...] = (),
) -> BoundExpression:
    """``expression`` with columns for its aggregators, which are added to ``lifted``.

    Column n of step ``AGGREGATES`` is called ``prefix`` and the place in ``lifted``.
    """

    def below(part: BoundExpression, *more: BoundExpression) -> BoundExpression:
        return extract(part, lifted, prefix, (*conditions, *more))

    match expression:
        case AggregateCall():
            arguments = tuple(below(argument) for argument in expression.arguments)
            aggregate = ExtractedAggregate(replace(expression, arguments=arguments), conditions)
            shared = _place(aggregate, lifted)
            if shared is None:
                shared = len(lifted)
                lifted.append(aggregate)
            return Column(f"{prefix}{shared}", expression.type, AGGREGATES)
        case UnaryExpression() | TableCheck():
            return replace(expression, operand=below(expression.operand))
        case BinaryExpression(operator, left, right):
            left = below(left)
            match operator:
                case BinaryOperator.AND:
                    right = below(right, left)
                case BinaryOperator.OR:
                    right = below(right, _not(left))
                case _:
                    right = below(right)
            return replace(expression, left=left, right=right)
        case FunctionCall("ifthenelse", (condition, yes, no)) if not expression.is_script:
            condition = below(condition)
            branches = below(yes, condition), below(no, _not(condition))
            return replace(expression, arguments=(condition, *branches))
        case FunctionCall():
            return replace(expression, arguments=tuple(below(a) for a in expression.arguments))
        case _:
            return expression


def _place(aggregate: ExtractedAggregate, lifted: Sequence[ExtractedAggregate]) -> int | None:
    """Its place in ``lifted``, if present; not one before an aggregator that may fail.

    Aggregators before the failed one have processed the event, those after it have not.
    """
    for place in range(len(lifted) - 1, -1, -1):
        if lifted[place] == aggregate:
            return place
        if may_fail(lifted[place]):
            return None
    return None


def names_aggregate(expression: BoundExpression) -> bool:
    """Whether an expression that was lifted names an aggregator's value."""
    return any(isinstance(p, Column) and p.step == AGGREGATES for p in walk(expression))


def _not(condition: BoundExpression) -> BoundExpression:
    return UnaryExpression(UnaryOperator.NOT, condition, AttributeType.BOOL)


def is_safe(expression: BoundExpression) -> bool:
    """Whether it has a value for any arguments; objects are excluded."""
    return all(
        isinstance(part, _SAFE) and part.type is not AttributeType.OBJECT
        for part in walk(expression)
    )


def may_fail(one: ExtractedAggregate) -> bool:
    """Whether an aggregator fails on some events: later ones process fewer than earlier ones."""
    arguments = one.call.arguments
    is_answered = one.call.function.lower() not in FAIL_ON_NULL | _FAIL_ON_VALUES
    return not (is_answered and all(map(is_safe, (*one.conditions, *arguments))))
