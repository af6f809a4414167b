"""Bound expressions to Spark columns, with SiddhiQL's rules where SQL's differ.

A comparison with null is false, and ``!=`` is the opposite of ``==``; integer division truncates
and integer arithmetic wraps around, as Java's do (the session has ANSI mode off).  What these rules
are is asked of the reference engine; ``tests/cases/operators`` runs the same cases here and in
``mesh.operators``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from mesh.errors import not_supported
from mesh.functions.kernels import meeting_type
from mesh.language.syntax import BinaryOperator, UnaryOperator
from mesh.model.types import NUMERIC, AttributeType
from mesh.plan.bound import (
    AggregateCall,
    BinaryExpression,
    BoundExpression,
    BoundStream,
    Column,
    Constant,
    EventIsNull,
    FunctionCall,
    TableCheck,
    UnaryExpression,
    walk,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column as SparkColumn

    from mesh.plan.bound import BoundQuery

SPARK_TYPES: dict[AttributeType, str] = {
    AttributeType.STRING: "string",
    AttributeType.INT: "int",
    AttributeType.LONG: "bigint",
    AttributeType.FLOAT: "float",
    AttributeType.DOUBLE: "double",
    AttributeType.BOOL: "boolean",
    AttributeType.OBJECT: "binary",
}

_WHOLE = (AttributeType.INT, AttributeType.LONG)
#: Functions that Catalyst has, with exactly the reference engine's results.
_NATIVE = frozenset({"coalesce", "default", "ifthenelse", "maximum", "minimum"})


def is_native(query: BoundQuery) -> bool:
    """Whether Catalyst computes the whole of a stateless query."""
    source = query.input
    if not isinstance(source, BoundStream) or len(source.filters) != len(source.handlers):
        return False
    parts = [*source.filters, *(output.expression for output in query.outputs)]
    if query.having is not None:
        parts.append(query.having)
    return all(_is_native(part) for expression in parts for part in walk(expression))


def _is_native(part: BoundExpression) -> bool:
    if part.type is AttributeType.OBJECT:
        return False
    match part:
        case FunctionCall(name, arguments):
            # Spark's greatest and least take two or more, and NaN for the largest number; the
            # engine compares longs as doubles.
            is_extreme = name in ("maximum", "minimum")
            exact = not is_extreme or (len(arguments) > 1 and part.type is AttributeType.INT)
            return not part.is_script and name in _NATIVE and exact
        case TableCheck() | EventIsNull():
            return False
        case _:
            return True


def to_column(expression: BoundExpression, lookup: Callable[[Column], SparkColumn]) -> SparkColumn:
    """The Spark column that computes ``expression``; ``lookup`` says where an attribute is."""
    match expression:
        case Constant(value, kind):
            literal = F.lit(value)
            return literal.cast(SPARK_TYPES[kind]) if kind is not None else literal
        case Column():
            return lookup(expression)
        case UnaryExpression(operator, operand):
            inner = to_column(operand, lookup)
            match operator:
                case UnaryOperator.NOT:
                    return ~F.coalesce(inner, F.lit(False))
                case UnaryOperator.NEGATE:
                    return -inner
                case UnaryOperator.IS_NULL:
                    return inner.isNull()
        case BinaryExpression():
            return _binary(expression, lookup)
        case FunctionCall(name, arguments, kind):
            columns = [to_column(argument, lookup) for argument in arguments]
            result = _call(name, columns, kind)
            return F.coalesce(result, F.lit(False)) if kind is AttributeType.BOOL else result
        case AggregateCall():
            raise AssertionError("a stateless query has no aggregate")
        case TableCheck() | EventIsNull():
            raise AssertionError("the planner refuses these")


def _binary(expression: BinaryExpression, lookup: Callable[[Column], SparkColumn]) -> SparkColumn:
    left = to_column(expression.left, lookup)
    right = to_column(expression.right, lookup)
    operator = expression.operator
    if operator in (BinaryOperator.AND, BinaryOperator.OR):
        left, right = F.coalesce(left, F.lit(False)), F.coalesce(right, F.lit(False))
        return left & right if operator is BinaryOperator.AND else left | right
    if operator is BinaryOperator.NOT_EQUAL:
        return ~_compared(BinaryOperator.EQUAL, left, right, expression)
    if operator in _COMPARE:
        return _compared(operator, left, right, expression)
    spark_type = SPARK_TYPES[expression.type]
    left, right = left.cast(spark_type), right.cast(spark_type)
    match operator:
        case BinaryOperator.ADD:
            return left + right
        case BinaryOperator.SUBTRACT:
            return left - right
        case BinaryOperator.MULTIPLY:
            return left * right
        case BinaryOperator.MODULO:
            return left % right
        case BinaryOperator.DIVIDE:
            if expression.type in (AttributeType.INT, AttributeType.LONG):
                return F.call_function("div", left, right).cast(spark_type)
            # Of floats Spark makes doubles first.
            return (left / right).cast(spark_type)
        case _:
            raise AssertionError(operator)


def _compared(
    operator: BinaryOperator, left: SparkColumn, right: SparkColumn, expression: BinaryExpression
) -> SparkColumn:
    """A comparison as Java has it: to Spark NaN is equal to itself and above all numbers."""
    kinds = (expression.left.type, expression.right.type)
    if not all(kind in NUMERIC for kind in kinds):
        return F.coalesce(_COMPARE[operator](left, right), F.lit(False))
    assert kinds[0] is not None
    assert kinds[1] is not None
    meeting = meeting_type(operator, kinds[0], kinds[1])
    left, right = left.cast(SPARK_TYPES[meeting]), right.cast(SPARK_TYPES[meeting])
    result = _COMPARE[operator](left, right)
    if meeting not in _WHOLE:
        larger = right if operator in (BinaryOperator.LESS, BinaryOperator.LESS_OR_EQUAL) else left
        result = result & ~F.isnan(larger)
    return F.coalesce(result, F.lit(False))


_COMPARE: dict[BinaryOperator, Callable[[SparkColumn, SparkColumn], SparkColumn]] = {
    BinaryOperator.LESS: lambda a, b: a < b,
    BinaryOperator.LESS_OR_EQUAL: lambda a, b: a <= b,
    BinaryOperator.GREATER: lambda a, b: a > b,
    BinaryOperator.GREATER_OR_EQUAL: lambda a, b: a >= b,
    BinaryOperator.EQUAL: lambda a, b: a == b,
}

#: What ``maximum`` and ``minimum`` start from in the reference engine: Java's Double.MIN_VALUE,
#: which is the least positive number, and Double.MAX_VALUE, cast to the result's type.
_LEAST_MAXIMUM: dict[AttributeType, float] = {
    AttributeType.INT: 0,
    AttributeType.LONG: 0,
    AttributeType.FLOAT: 0.0,
    AttributeType.DOUBLE: 5e-324,
}
_GREATEST_MINIMUM: dict[AttributeType, float] = {
    AttributeType.INT: 2**31 - 1,
    AttributeType.LONG: 2**63 - 1,
    AttributeType.FLOAT: float("inf"),
    AttributeType.DOUBLE: sys.float_info.max,
}


def _call(name: str, arguments: list[SparkColumn], kind: AttributeType) -> SparkColumn:
    spark_type = SPARK_TYPES[kind]
    match name:
        case "coalesce" | "default":
            return F.coalesce(*arguments).cast(spark_type)
        case "ifthenelse":
            condition, yes, no = arguments
            return F.when(F.coalesce(condition, F.lit(False)), yes).otherwise(no).cast(spark_type)
        # Spark's greatest and least pass over nulls, as the reference engine does.
        case "maximum":
            return F.greatest(F.lit(_LEAST_MAXIMUM[kind]).cast(spark_type), *arguments)
        case "minimum":
            return F.least(F.lit(_GREATEST_MINIMUM[kind]).cast(spark_type), *arguments)
        case _:
            raise not_supported(f"function {name} in a query without state")
