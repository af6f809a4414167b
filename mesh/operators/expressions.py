"""Bound expressions as functions over columns.

``compile_expression`` turns a tree into closures once; evaluating one does a few array operations
for a whole batch.  Aggregates are not evaluated here: the selector replaces each by a column first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mesh.errors import MeshError
from mesh.functions import kernels
from mesh.functions.scalars import SCALARS
from mesh.functions.vectors import Indices, Mask, Vector, constant, from_arrow
from mesh.language.syntax import BinaryOperator, UnaryOperator
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
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    Evaluator = Callable[["Frame"], Vector]

_ARITHMETIC = frozenset(
    {
        BinaryOperator.ADD,
        BinaryOperator.SUBTRACT,
        BinaryOperator.MULTIPLY,
        BinaryOperator.DIVIDE,
        BinaryOperator.MODULO,
    }
)


class Frame:
    """The columns an expression may name, by (step, attribute); converted when first used."""

    def __init__(self, length: int, arrays: Mapping[tuple[int, str], pa.Array[Any]]) -> None:
        self.length = length
        self._arrays = arrays
        self._vectors: dict[tuple[int, str], Vector] = {}

    @classmethod
    def of_rows(cls, rows: pa.RecordBatch, step: int = 0) -> Frame:
        """The attributes of one stream."""
        names = rows.schema.names
        return cls(rows.num_rows, {(step, n): rows.column(i) for i, n in enumerate(names)})

    def column(self, column: Column) -> Vector:
        """The values of ``column``, length n (or 1)."""
        key = (column.step, column.name)
        found = self._vectors.get(key)
        if found is None:
            found = self._vectors[key] = from_arrow(self._arrays[key], column.type)
        return found

    def add(self, step: int, name: str, vector: Vector) -> None:
        """Give a further column, or another value to one."""
        self._vectors[(step, name)] = vector

    def pairs(self, mine: Indices, other: Frame, others: Indices) -> Frame:
        """Rows ``mine`` of this frame beside rows ``others`` of another; no column is in both."""
        return _PairFrame(self, mine, other, others)

    def has(self, key: tuple[int, str]) -> bool:
        """Whether there is a column ``key``."""
        return key in self._vectors or key in self._arrays


class _PairFrame(Frame):
    def __init__(self, left: Frame, left_rows: Indices, right: Frame, right_rows: Indices) -> None:
        super().__init__(len(left_rows), {})
        self._sides = ((left, left_rows), (right, right_rows))

    def column(self, column: Column) -> Vector:
        key = (column.step, column.name)
        if key not in self._vectors:
            side, rows = next(s for s in self._sides if s[0].has(key))
            self._vectors[key] = side.column(column).take(rows)
        return self._vectors[key]


def compile_expression(expression: BoundExpression) -> Evaluator:
    """A function from a frame of length n to a vector of length n or, for a constant, 1."""
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
        case FunctionCall(name, arguments, type):
            function = SCALARS.get(name)
            if function is None:
                raise MeshError(
                    "MESH-O100",
                    f'function "{name}" has no kernel',
                    detail="The planner accepted it, but this version can't compute it.",
                    hint="Do manager and worker have the same version?",
                )
            parts = [compile_expression(argument) for argument in arguments]
            return lambda frame: function([part(frame) for part in parts], type)
        case AggregateCall():
            raise AssertionError("the selector replaces aggregates before it compiles")
        case TableCheck() | EventIsNull():
            raise AssertionError("the planner refuses these")


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
    if operator in _ARITHMETIC:
        return lambda frame: kernels.arithmetic(operator, left(frame), right(frame), type)
    if operator in (BinaryOperator.AND, BinaryOperator.OR):
        return lambda frame: kernels.logic(operator, left(frame), right(frame))
    return lambda frame: kernels.compare(operator, left(frame), right(frame))


def compile_filter(expression: BoundExpression) -> Callable[[Frame], Mask]:
    """A function from a frame of length n to bool[n], False where the condition is null."""
    evaluate = compile_expression(expression)
    return lambda frame: np.broadcast_to(kernels.truth(evaluate(frame)), frame.length)


def columns_of(expression: BoundExpression) -> Iterator[Column]:
    """Every column that ``expression`` names."""
    match expression:
        case Column():
            yield expression
        case Constant() | EventIsNull():
            pass
        case UnaryExpression() | TableCheck():
            yield from columns_of(expression.operand)
        case BinaryExpression():
            yield from columns_of(expression.left)
            yield from columns_of(expression.right)
        case FunctionCall() | AggregateCall():
            for argument in expression.arguments:
                yield from columns_of(argument)


def conjuncts(expression: BoundExpression) -> Iterator[BoundExpression]:
    """The parts of ``a and b and ..``, in order."""
    if isinstance(expression, BinaryExpression) and expression.operator is BinaryOperator.AND:
        yield from conjuncts(expression.left)
        yield from conjuncts(expression.right)
    else:
        yield expression
