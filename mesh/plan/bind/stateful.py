"""Functions of a select clause that have a state: each becomes a handler that adds an attribute.

from S select kf:kalmanFilter(x) as y    is    from S#kf:kalmanFilter(x) select "..#0" as y
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mesh.functions.catalogue import STATEFUL_FUNCTIONS
from mesh.language.syntax import BinaryOperator
from mesh.model.types import Attribute
from mesh.plan.bound import (
    BinaryExpression,
    BoundStreamFunction,
    Column,
    FunctionCall,
    UnaryExpression,
    has_aggregate,
)

if TYPE_CHECKING:
    from mesh.plan.bound import BoundExpression, BoundOutput, BoundStream

_NAMES: Final = {one.bound_name: one.name for one in STATEFUL_FUNCTIONS.values()}


def lift_stateful(
    source: BoundStream, outputs: tuple[BoundOutput, ...]
) -> tuple[BoundStream, tuple[BoundOutput, ...]]:
    """The input with a handler for each such call, and the outputs that read its attribute."""
    calls: list[BoundStreamFunction] = []
    lifted = tuple(
        replace(output, expression=_lift(output.expression, calls)) for output in outputs
    )
    if not calls:
        return source, outputs
    return replace(source, handlers=(*source.handlers, *calls)), lifted


def _lift(expression: BoundExpression, calls: list[BoundStreamFunction]) -> BoundExpression:
    """``expression`` with columns for its calls; not for one that is not always evaluated."""
    match expression:
        case FunctionCall() if expression.function in _NAMES and not has_aggregate(expression):
            name = _NAMES[expression.function]
            column = Column(f"{name}#{len(calls)}", expression.type, position=expression.position)
            adds = (Attribute(column.name, column.type),)
            calls.append(
                BoundStreamFunction(name, expression.arguments, adds, position=expression.position)
            )
            return column
        case FunctionCall() if expression.function != "ifthenelse":
            # One frame a level: a comprehension's generator would halve the depth of the stack.
            arguments = list(expression.arguments)
            for at, argument in enumerate(arguments):
                arguments[at] = _lift(argument, calls)
            return replace(expression, arguments=tuple(arguments))
        case UnaryExpression():
            return replace(expression, operand=_lift(expression.operand, calls))
        case BinaryExpression() if expression.operator not in (
            BinaryOperator.AND,
            BinaryOperator.OR,
        ):
            left = _lift(expression.left, calls)
            return replace(expression, left=left, right=_lift(expression.right, calls))
        case _:
            return expression
