"""Bound expressions as functions over columns.

``compile_expression`` turns a tree into closures once; evaluating one does a few array operations
for a whole batch.  Aggregates are not evaluated here: the selector replaces each by a column first.

Frames: the columns that an expression reads, for a batch of rows.

An expression names a column by (step, attribute); the step is that of the pattern, or the side of
the join, that the attribute is of.

Functions and tables that expressions of one app refer to by name.

An app is compiled inside of ``using``, where ``compile_expression`` finds the environment.  So the
operators between them need not pass it on.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mesh.errors import MeshError
from mesh.functions import kernels
from mesh.functions.identifiers import splitmix64, uuids
from mesh.functions.registry import FUNCTIONS, SCALARS
from mesh.functions.vectors import Mask, Vector, bounded, constant, from_arrow, from_list
from mesh.language.syntax import BinaryOperator, UnaryOperator
from mesh.model.types import NUMERIC, AttributeType
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
from pyspark_nats.few_rows import FewRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from mesh.functions.vectors import Function, Indices
    from mesh.operators.base import EventBatch, Longs
    from mesh.operators.gaps import Periodic
    from mesh.plan.bound import BoundQuery
    from pyspark_nats.arrow import ArrowArray


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


#: (step, attribute) or, of an event that occurs several times, (step, attribute, index).
Key = tuple[int, str] | tuple[int, str, int]
#: A compiled expression: from a frame of length n to a vector of length n or, of a constant, 1.
Evaluator = Callable[["Frame"], Vector]


class Frame:
    """The columns an expression may name, by (step, attribute); converted when first used.

    ``failures``: by row, the message of the first expression that failed on it. Such a row has no
    meaningful values. A caller that evaluates an expression that may fail reads it afterwards.

    ``calls``: returns bool[n], the rows at which another call of the engine begins, where one call
    spans several chunks.  None: each chunk is one call.
    """

    def __init__(self, length: int, arrays: Mapping[Key, ArrowArray | list[object]]) -> None:
        self.length = length
        self.failures: dict[int, str] = {}
        #: The path of the query's timers, where all output of one event fails together, in any
        #: number of chunks.
        self.joint_path: int | None = None
        self._arrays = arrays
        self._vectors: dict[Key, Vector] = {}
        self._missing: dict[tuple[int, int | None], Mask] = {}
        self._events: EventBatch | Callable[[], EventBatch] | None = None
        self.calls: Callable[[], Mask] | None = None

    @classmethod
    def of_rows(cls, rows: pa.RecordBatch, step: int = 0) -> Frame:
        """The attributes of one stream."""
        if isinstance(rows, FewRows):
            return cls(rows.num_rows, {(step, n): values for n, values in rows.lists.items()})
        names = rows.schema.names
        return cls(rows.num_rows, {(step, n): rows.column(i) for i, n in enumerate(names)})

    @classmethod
    def of_events(cls, events: EventBatch, step: int = 0) -> Frame:
        """The attributes of one stream's events, and their times."""
        return cls.of_rows(events.rows, step).timed(events)

    def timed(self, events: EventBatch | Callable[[], EventBatch]) -> Frame:
        """This frame, with the times of ``events``, one for each row; called at the first use."""
        self._events = events
        return self

    @property
    def time_ms(self) -> Indices:
        """int64[n], the events' own times."""
        return self._timed_events.time_ms

    @property
    def clock_ms(self) -> Indices:
        """int64[n], the clock at the arrival of each event."""
        return self._timed_events.clock_ms

    @property
    def numbers(self) -> Indices:
        """int64[n], hashes of the positions in the total order; the same in a replay."""
        events = self._timed_events
        position = (events.order, events.clock_ms, events.path, events.chunk)
        return mixed_hash((*position, events.kind, events.instance))

    @property
    def _timed_events(self) -> EventBatch:
        assert self._events is not None, "a frame without times: see Frame.timed"
        if callable(self._events):
            self._events = self._events()
        return self._events

    def column(self, column: Column) -> Vector:
        """The values of ``column``, length n (or 1)."""
        key = key_of(column)
        vector = self._vectors.get(key)
        if vector is None:
            values = self._arrays[key]
            if isinstance(values, list):
                vector = from_list(values, column.type)
            else:
                vector = from_arrow(values, column.type)
            self._vectors[key] = vector
        return vector

    def add(self, step: int, name: str, vector: Vector, index: int | None = None) -> None:
        """Add a column, or replace one."""
        self._vectors[(step, name) if index is None else (step, name, index)] = vector

    def add_missing(self, step: int, missing: Mask, index: int | None = None) -> None:
        """Set the rows that have no event of ``step``; by default every row has one."""
        self._missing[(step, index)] = missing

    def missing(self, step: int, index: int | None) -> Mask:
        """bool[n], the rows that have no event of ``step``."""
        mask = self._missing.get((step, index))
        return np.zeros(self.length, dtype=np.bool_) if mask is None else mask

    def only(self, evaluate: Evaluator, needed: Mask) -> Vector:
        """The result of ``evaluate``; failures count in ``needed`` rows alone.

        The reference engine does not evaluate the operand in the others, so it can't fail there.
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


class TimedByAnother(Frame):
    """A frame whose rows have the times of rows of another frame.

    Those are as many as its own rows, or one, which all have.
    """

    def __init__(
        self,
        length: int,
        arrays: Mapping[Key, ArrowArray | list[object]],
        outer: Frame,
        rows: Indices,
    ) -> None:
        super().__init__(length, arrays)
        self._outer, self._outer_rows = outer, rows

    @property
    def time_ms(self) -> Indices:
        """int64[n], the times of the other's rows."""
        return self._broadcast(self._outer.time_ms)

    @property
    def clock_ms(self) -> Indices:
        """int64[n], the clock at the arrival of the other's rows."""
        return self._broadcast(self._outer.clock_ms)

    @property
    def numbers(self) -> Indices:
        """int64[n], hashes of the positions of the other's rows; rows beside one are counted."""
        return mixed_hash((self._broadcast(self._outer.numbers),))

    def _broadcast(self, values: Indices) -> Indices:
        values = values[self._outer_rows]
        return values if len(values) == self.length else np.repeat(values, self.length)


class _PairFrame(TimedByAnother):
    def __init__(self, left: Frame, left_rows: Indices, right: Frame, right_rows: Indices) -> None:
        super().__init__(len(left_rows), {}, left, left_rows)
        self._sides = ((left, left_rows), (right, right_rows))

    def column(self, column: Column) -> Vector:
        key = key_of(column)
        if key not in self._vectors:
            side, rows = next(s for s in self._sides if s[0].has(key))
            self._vectors[key] = side.column(column).take(rows)
        return self._vectors[key]


def key_of(column: Column) -> Key:
    """The key of ``column`` in a frame."""
    if column.index is None:
        return column.step, column.name
    return column.step, column.name, column.index


def mixed_hash(columns: Sequence[Any]) -> Indices:
    """int64[n]: a hash of each row of ``columns``; rows that are equal in all are counted.

    Rows of one chunk are adjacent, so their counts do not depend on how the input was cut.
    """
    length = len(columns[0])
    result = np.zeros(length, dtype=np.uint64)
    changes = np.zeros(length, dtype=np.bool_)
    with np.errstate(over="ignore"):
        for column in columns:
            changes[1:] |= column[1:] != column[:-1]
            result = splitmix64(result + column.astype(np.uint64))
        rows = np.arange(length)
        rows -= np.maximum.accumulate(np.where(changes, rows, 0))
        return splitmix64(result + rows.astype(np.uint64)).view(np.int64)


class TableMembership(Protocol):
    """A table as ``x in T`` uses it."""

    def contains(self, condition: BoundExpression, frame: Frame) -> Mask:
        """bool[n], the rows of ``frame`` for which ``condition`` holds for a row of the table."""
        ...


class Content(Protocol):
    """A named window as a join uses it."""

    def content(self, instance: int = 0) -> tuple[pa.RecordBatch, Longs]:
        """The present rows, in the engine's order, and their times."""
        ...


class Aggregated(Protocol):
    """An aggregation as a join uses it."""

    @property
    def cells(self) -> object:
        """Its present values: an ``aggregations.rollup.Aggregation``, which uses this module."""
        ...


@dataclass(frozen=True)
class Environment:
    """``scripts``, ``tables``, named ``windows`` and ``aggregations``, by name.

    All may grow while the app is compiled.

    ``periodic``: the parts of the app that emit without events.
    ``salt``: distinguishes executors that run one app over different events, such as partitions,
    so that no two of them make the same ``UUID()``.  ``shard``: the name of this mesh among those
    that write tables of one database.
    """

    scripts: Mapping[str, Function] = field(default_factory=dict)
    tables: Mapping[str, TableMembership] = field(default_factory=dict)
    windows: Mapping[str, Content] = field(default_factory=dict)
    aggregations: Mapping[str, Aggregated] = field(default_factory=dict)
    salt: str = ""
    shard: str = ""
    periodic: list[Periodic] = field(default_factory=list)
    #: The time of a stored state; None: that of the question.
    clock_ms: int | None = None
    #: Places of the models that queries share, by kind and name.
    models: dict[str, object] = field(default_factory=dict)
    #: By kind and name of a query or a window: events that entered it, and that it emitted.
    counts: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def count_of(self, kind: str, name: str) -> list[int]:
        """The counter of an element: two numbers, to which it adds once a batch."""
        return self.counts.setdefault((kind, name), [0, 0])


_current: ContextVar[Environment | None] = ContextVar("environment", default=None)


def current() -> Environment:
    """The environment of the app that is being compiled; an empty one outside of ``using``."""
    return _current.get() or Environment()


@contextmanager
def using(environment: Environment) -> Iterator[None]:
    """Compile expressions in ``environment``."""
    token = _current.set(environment)
    try:
        yield
    finally:
        _current.reset(token)
