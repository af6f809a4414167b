"""Bound expressions as functions over columns.

``compile_expression`` turns a tree into closures once; evaluating one does a few array operations
for a whole batch.  Aggregates are not evaluated here: the selector replaces each by a column first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mesh.errors import MeshError
from mesh.functions import kernels
from mesh.functions.identifiers import mixed, uuids
from mesh.functions.registry import FUNCTIONS
from mesh.functions.scalars import SCALARS
from mesh.functions.vectors import Indices, Mask, Vector, constant, from_arrow
from mesh.language.syntax import BinaryOperator, UnaryOperator
from mesh.model.types import AttributeType
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
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from mesh.operators.base import Events
    from mesh.operators.environment import Membership

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


#: (step, attribute) or, of an event that occurs several times, (step, attribute, index).
Key = tuple[int, str] | tuple[int, str, int]


class Frame:
    """The columns an expression may name, by (step, attribute); converted when first used.

    ``failures``: by row, why the first of the expressions that failed on it did.  Such a row has no
    meaningful values.  Who evaluates an expression that may fail looks there behind it.

    ``calls``: says where rows begin that the engine looks at in another call, if chunks are shorter
    than its calls: bool[n].  None: each chunk is a call.
    """

    def __init__(self, length: int, arrays: Mapping[Key, pa.Array[Any]]) -> None:
        self.length = length
        self.failures: dict[int, str] = {}
        #: The path of the query's timers, where all that one event sets off fails together, in
        #: however many chunks it goes on.
        self.joint_path: int | None = None
        self._arrays = arrays
        self._vectors: dict[Key, Vector] = {}
        self._missing: dict[tuple[int, int | None], Mask] = {}
        self._events: Events | None = None
        self.calls: Callable[[], Mask] | None = None

    @classmethod
    def of_rows(cls, rows: pa.RecordBatch, step: int = 0) -> Frame:
        """The attributes of one stream."""
        names = rows.schema.names
        return cls(rows.num_rows, {(step, n): rows.column(i) for i, n in enumerate(names)})

    @classmethod
    def of_events(cls, events: Events, step: int = 0) -> Frame:
        """The attributes of one stream's events, and their times."""
        return cls.of_rows(events.rows, step).timed(events)

    def timed(self, events: Events) -> Frame:
        """This frame, with the times of ``events``, one for each row."""
        self._events = events
        return self

    @property
    def time_ms(self) -> Indices:
        """int64[n], the events' own times."""
        return self._known_events.time_ms

    @property
    def clock_ms(self) -> Indices:
        """int64[n], the times it was when the events came."""
        return self._known_events.clock_ms

    @property
    def numbers(self) -> Indices:
        """int64[n], made of the events' places in the total order, alike in every replay."""
        events = self._known_events
        place = (events.order, events.clock_ms, events.path, events.chunk)
        return scrambled((*place, events.kind, events.instance))

    @property
    def _known_events(self) -> Events:
        assert self._events is not None, "a frame without times: see Frame.timed"
        return self._events

    def column(self, column: Column) -> Vector:
        """The values of ``column``, length n (or 1)."""
        key = key_of(column)
        found = self._vectors.get(key)
        if found is None:
            found = self._vectors[key] = from_arrow(self._arrays[key], column.type)
        return found

    def add(self, step: int, name: str, vector: Vector, index: int | None = None) -> None:
        """Give a further column, or another value to one."""
        self._vectors[(step, name) if index is None else (step, name, index)] = vector

    def add_missing(self, step: int, missing: Mask, index: int | None = None) -> None:
        """Say in which rows there is no event of ``step``; of others there is one always."""
        self._missing[(step, index)] = missing

    def missing(self, step: int, index: int | None) -> Mask:
        """bool[n], where there is no event of ``step``."""
        found = self._missing.get((step, index))
        return np.zeros(self.length, dtype=np.bool_) if found is None else found

    def only(self, evaluate: Evaluator, needed: Mask) -> Vector:
        """What ``evaluate`` gives; only rows that are ``needed`` fail.

        Where the reference engine wouldn't evaluate an operand, it fails on none.
        """
        before, self.failures = self.failures, {}
        try:
            result = evaluate(self)
            for row, message in self.failures.items():
                if needed[row if len(needed) > 1 else 0]:
                    before.setdefault(row, message)
        finally:
            self.failures = before
        return result

    def pairs(self, mine: Indices, other: Frame, others: Indices) -> Frame:
        """Rows ``mine`` of this frame beside rows ``others`` of another; no column is in both."""
        return _PairFrame(self, mine, other, others)

    def has(self, key: Key) -> bool:
        """Whether there is a column ``key``."""
        return key in self._vectors or key in self._arrays


class _PairFrame(Frame):
    def __init__(self, left: Frame, left_rows: Indices, right: Frame, right_rows: Indices) -> None:
        super().__init__(len(left_rows), {})
        self._sides = ((left, left_rows), (right, right_rows))

    def column(self, column: Column) -> Vector:
        key = key_of(column)
        if key not in self._vectors:
            side, rows = next(s for s in self._sides if s[0].has(key))
            self._vectors[key] = side.column(column).take(rows)
        return self._vectors[key]


def key_of(column: Column) -> Key:
    """By what a frame finds ``column``."""
    if column.index is None:
        return column.step, column.name
    return column.step, column.name, column.index


def scrambled(columns: Sequence[Any]) -> Indices:
    """int64[n]: numbers made of those in ``columns``, counted where all are alike in a row.

    Rows of one chunk stand together, so that its count is the same however the input is cut.
    """
    length = len(columns[0])
    result = np.zeros(length, dtype=np.uint64)
    changes = np.zeros(length, dtype=np.bool_)
    with np.errstate(over="ignore"):
        for column in columns:
            changes[1:] |= column[1:] != column[:-1]
            result = mixed(result + column.astype(np.uint64))
        rows = np.arange(length)
        rows -= np.maximum.accumulate(np.where(changes, rows, 0))
        return mixed(result + rows.astype(np.uint64)).view(np.int64)


def compile_expression(expression: BoundExpression) -> Evaluator:
    """A function from a frame of length n to a vector of length n or, for a constant, 1.

    Functions and tables of the app are found in ``environment.current()``.

    Raises:
        MeshError: MESH-O100, there is nothing that computes a function of it.
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


def _membership(tables: Mapping[str, Membership], name: str, operand: BoundExpression) -> Evaluator:
    # Tables may be made behind the expressions that ask them.
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
        return lambda frame: function([part(frame) for part in parts], type, frame)
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
    if operator in _ARITHMETIC:
        return lambda frame: kernels.arithmetic(operator, left(frame), right(frame), type)
    if operator in (BinaryOperator.AND, BinaryOperator.OR):
        return _logic(operator, left, right)
    return lambda frame: kernels.compare(operator, left(frame), right(frame))


def _logic(operator: BinaryOperator, left: Evaluator, right: Evaluator) -> Evaluator:
    """The right side is not looked at where the left decides: it can't fail there."""

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
        result: Mask = np.broadcast_to(kernels.truth(evaluate(frame)), frame.length)
        if frame.failures:
            result = result.copy()
            result[list(frame.failures)] = False
        return result

    return passes


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
