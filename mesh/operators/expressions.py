"""Bound expressions as functions over columns.

``compile_expression`` turns a tree into closures once; evaluating one does a few array operations
for a whole batch.  Aggregates are not evaluated here: the selector replaces each by a column first.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from mesh.errors import MeshError
from mesh.functions import kernels
from mesh.functions.identifiers import uuids
from mesh.functions.registry import FUNCTIONS, SCALARS
from mesh.functions.rows import bounded
from mesh.functions.vectors import Mask, Vector, constant
from mesh.language.syntax import BinaryOperator, UnaryOperator
from mesh.model.types import NUMERIC, AttributeType
from mesh.operators.environment import current
from mesh.plan.bound import (
    AggregateCall,
    BinaryExpression,
    BoundExpression,
    Column,
    Constant,
    EventIsNull,
    FunctionCall,
    TableCheck,
    UnaryExpression,
    walk,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mesh.operators.environment import TableMembership
    from mesh.operators.frame import Evaluator, Frame
    from mesh.plan.bound import BoundQuery

_ARITHMETIC = frozenset(
    {
        BinaryOperator.ADD,
        BinaryOperator.SUBTRACT,
        BinaryOperator.MULTIPLY,
        BinaryOperator.DIVIDE,
        BinaryOperator.MODULO,
    }
)


def compile_expression(expression: BoundExpression) -> Evaluator:
    """A function from a frame of length n to a vector of length n or, for a constant, 1.

    Functions and tables of the app are found in ``environment.current()``.

    Raises:
        MeshError: MESH-O100, a function in it has no implementation.
    """
    match expression:
        case Constant(value, type):
            fixed = constant(value, type)
            return lambda frame: fixed
        case Column():
            return lambda frame: frame.column(expression)
        case UnaryExpression(operator, operand):
            return _unary(operator, compile_expression(operand))
        case BinaryExpression():
            return _binary(expression)
        case FunctionCall():
            return _function(expression)
        case AggregateCall():
            raise AssertionError("the selector replaces aggregates before it compiles")
        case TableCheck(name, operand):
            return _membership(current().tables, name, operand)
        case EventIsNull(_, step, index):
            if step is None:
                return lambda frame: _bools(np.zeros(1, dtype=np.bool_))
            return lambda frame: _bools(frame.missing(step, index))


def _bools(values: Mask) -> Vector:
    return Vector(AttributeType.BOOL, values)


def _membership(
    tables: Mapping[str, TableMembership], name: str, operand: BoundExpression
) -> Evaluator:
    # Tables may be created after the expressions that refer to them.
    return lambda frame: _bools(tables[name].contains(operand, frame))


def _function(call: FunctionCall) -> Evaluator:
    evaluate = _function_value(call)
    if call.type is not AttributeType.BOOL:
        return evaluate
    # No function of the engine gives a null bool: it is false.
    return lambda frame: _bools(kernels.truth(evaluate(frame)))


def _function_value(call: FunctionCall) -> Evaluator:
    name, type, environment = call.function, call.type, current()
    parts = [compile_expression(argument) for argument in call.arguments]
    if name == "ifthenelse" and not call.is_script:
        return _if_then_else(parts, type)
    if name == "uuid" and not call.is_script:
        site = f"{environment.salt}@{call.position.line}:{call.position.column}"
        return lambda frame: uuids(frame, site)
    function = (environment.scripts if call.is_script else FUNCTIONS).get(name)
    if function is not None:
        within = bounded(name, function)
        return lambda frame: within([part(frame) for part in parts], type, frame)
    raise MeshError(
        "MESH-O100",
        f'function "{name}" has no kernel',
        detail="The planner accepted it, but this version can't compute it.",
        hint="Do manager and worker have the same version?",
    )


def _if_then_else(parts: Sequence[Evaluator], type: AttributeType) -> Evaluator:
    condition, yes, no = parts

    def evaluate(frame: Frame) -> Vector:
        tested = condition(frame)
        holds = kernels.truth(tested)
        branches = (frame.only(yes, holds), frame.only(no, ~holds))
        return SCALARS["ifthenelse"]((tested, *branches), type)

    return evaluate


def _unary(operator: UnaryOperator, operand: Evaluator) -> Evaluator:
    match operator:
        case UnaryOperator.NOT:
            return lambda frame: kernels.invert(operand(frame))
        case UnaryOperator.NEGATE:
            return lambda frame: kernels.negate(operand(frame))
        case UnaryOperator.IS_NULL:
            return lambda frame: kernels.is_null(operand(frame))


def _binary(expression: BinaryExpression) -> Evaluator:
    operator, type = expression.operator, expression.type
    left, right = compile_expression(expression.left), compile_expression(expression.right)
    common = type if operator in _ARITHMETIC else _compared_type(expression)
    if common in NUMERIC:
        left = _converted(expression.left, left, common)
        right = _converted(expression.right, right, common)
    if operator in _ARITHMETIC:
        return lambda frame: kernels.arithmetic(operator, left(frame), right(frame), type)
    if operator in (BinaryOperator.AND, BinaryOperator.OR):
        return _logic(operator, left, right)
    return lambda frame: kernels.compare(operator, left(frame), right(frame))


def _compared_type(expression: BinaryExpression) -> AttributeType | None:
    """The type in which two numbers are compared; None if they are none."""
    left, right = expression.left.type, expression.right.type
    if left not in NUMERIC or right not in NUMERIC:
        return None
    operator = expression.operator
    equal = "==" if operator == "!=" else operator
    return kernels.common_numeric_type(equal, left, right)


def _converted(expression: BoundExpression, evaluate: Evaluator, type: AttributeType) -> Evaluator:
    """A constant number in the type of its use: not converted again for each run."""
    if not isinstance(expression, Constant) or expression.type not in NUMERIC:
        return evaluate
    fixed = kernels.cast(constant(expression.value, expression.type), type)
    return lambda frame: fixed


def _logic(operator: BinaryOperator, left: Evaluator, right: Evaluator) -> Evaluator:
    """The right side is not evaluated where the left decides: it can't fail there."""

    def evaluate(frame: Frame) -> Vector:
        first = left(frame)
        holds = kernels.truth(first)
        second = frame.only(right, holds if operator is BinaryOperator.AND else ~holds)
        return kernels.logic(operator, first, second)

    return evaluate


def compile_filter(expression: BoundExpression) -> Callable[[Frame], Mask]:
    """A function from a frame of length n to bool[n], False where it is null or fails."""
    evaluate = compile_expression(expression)

    def passes(frame: Frame) -> Mask:
        result = kernels.truth(evaluate(frame))
        if len(result) != frame.length:
            result = np.broadcast_to(result, frame.length)
        if frame.failures:
            result = result.copy()
            result[list(frame.failures)] = False
        return result

    return passes


def columns_of(expression: BoundExpression) -> Iterator[Column]:
    """Every column that ``expression`` names."""
    return (part for part in walk(expression) if isinstance(part, Column))


def selected_expressions(query: BoundQuery) -> Iterator[BoundExpression]:
    """The expressions that ``query`` evaluates after its input."""
    yield from (output.expression for output in query.outputs)
    if query.having is not None:
        yield query.having
    yield from query.group_by
    yield from (order.column for order in query.order_by)


def conjunction(parts: Iterable[BoundExpression]) -> BoundExpression:
    """``a and b and ..``, of one part at least; the opposite of ``conjuncts``."""
    return reduce(
        lambda a, b: BinaryExpression(BinaryOperator.AND, a, b, AttributeType.BOOL), parts
    )
