"""Bound expressions to Spark columns, with SiddhiQL's rules where SQL's differ.

A comparison with null is false, also ``!=`` and also under ``not``; integer division truncates and
integer arithmetic wraps around, as Java's do (the session has ANSI mode off).  What these rules are
is asked of the reference engine; ``tests/cases/operators`` runs the same cases here and in
``mesh.operators``.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from mesh.errors import not_supported
from mesh.language.syntax import BinaryOperator, UnaryOperator
from mesh.model.types import AttributeType
from mesh.plan.bound import (
    AggregateCall,
    BinaryExpression,
    BoundExpression,
    Column,
    Constant,
    FunctionCall,
    UnaryExpression,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column as SparkColumn

SPARK_TYPES: dict[AttributeType, str] = {
    AttributeType.STRING: "string",
    AttributeType.INT: "int",
    AttributeType.LONG: "bigint",
    AttributeType.FLOAT: "float",
    AttributeType.DOUBLE: "double",
    AttributeType.BOOL: "boolean",
}

Lookup = "Callable[[Column], SparkColumn]"


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
            return _call(name, columns, kind)
        case AggregateCall():
            raise AssertionError("a stateless query has no aggregate")


def _binary(expression: BinaryExpression, lookup: Callable[[Column], SparkColumn]) -> SparkColumn:
    left = to_column(expression.left, lookup)
    right = to_column(expression.right, lookup)
    operator = expression.operator
    if operator in (BinaryOperator.AND, BinaryOperator.OR):
        left, right = F.coalesce(left, F.lit(False)), F.coalesce(right, F.lit(False))
        return left & right if operator is BinaryOperator.AND else left | right
    if operator in _COMPARE:
        return F.coalesce(_COMPARE[operator](left, right), F.lit(False))
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
            return left / right
    raise AssertionError(operator)


_COMPARE: dict[BinaryOperator, Callable[[SparkColumn, SparkColumn], SparkColumn]] = {
    BinaryOperator.LESS: lambda a, b: a < b,
    BinaryOperator.LESS_OR_EQUAL: lambda a, b: a <= b,
    BinaryOperator.GREATER: lambda a, b: a > b,
    BinaryOperator.GREATER_OR_EQUAL: lambda a, b: a >= b,
    BinaryOperator.EQUAL: lambda a, b: a == b,
    BinaryOperator.NOT_EQUAL: lambda a, b: a != b,
}


def _call(name: str, columns: list[SparkColumn], kind: AttributeType) -> SparkColumn:
    spark_type = SPARK_TYPES[kind]
    match name:
        case "coalesce":
            return F.coalesce(*columns)
        case "default":
            return F.coalesce(columns[0], columns[1]).cast(spark_type)
        case "ifthenelse":
            return F.when(F.coalesce(columns[0], F.lit(False)), columns[1]).otherwise(columns[2])
        case "maximum":
            return columns[0] if len(columns) == 1 else F.greatest(*columns)
        case "minimum":
            return columns[0] if len(columns) == 1 else F.least(*columns)
    if name in _DIRECT:
        return reduce(lambda f, c: f(c), columns, _DIRECT[name]).cast(spark_type)
    raise not_supported(f"function {name} in a stateless query")


_DIRECT: dict[str, Callable[..., SparkColumn]] = {}
