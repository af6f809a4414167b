"""From a step's filter to what is asked of its events alone, and a program for the rest.

What names only the step's own event is evaluated for a whole batch at once: an event that doesn't
meet it is never shown to a partial match.  The rest is a program over numbers (``program``).  Parts
of it that name one event, but are more than the program's operations, are evaluated for the batch
too and are attributes of the event then.

A part that names several events and that no program can compute is a predicate: Python evaluates it
for many matches and events at once (``evaluation``).

What may fail is asked in its turn, since what stands before it decides whether it is asked at all:
from the first part on that may, nothing of a filter is asked before what is written before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import groupby
from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from mesh.functions.kernels import meeting_type
from mesh.functions.registry import SURE_FUNCTIONS
from mesh.language.syntax import BinaryOperator, UnaryOperator
from mesh.model.types import AttributeType
from mesh.operators.expressions import conjuncts
from mesh.operators.patterns import program as op
from mesh.operators.patterns.requests import OF_MATCH_TIME
from mesh.plan.bound import (
    BinaryExpression,
    BoundExpression,
    Column,
    Constant,
    EventIsNull,
    FunctionCall,
    TableCheck,
    UnaryExpression,
    operands,
    walk,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mesh.operators.patterns.memory import Array
    from mesh.plan.bound import BoundStep

_WIDE = frozenset({AttributeType.FLOAT, AttributeType.DOUBLE})
_ARITHMETIC = {
    BinaryOperator.ADD: (op.ADD, op.ADD_F),
    BinaryOperator.SUBTRACT: (op.SUBTRACT, op.SUBTRACT_F),
    BinaryOperator.MULTIPLY: (op.MULTIPLY, op.MULTIPLY_F),
    BinaryOperator.DIVIDE: (op.DIVIDE, op.DIVIDE_F),
    BinaryOperator.MODULO: (op.MODULO, op.MODULO_F),
}
_COMPARISON = {
    BinaryOperator.EQUAL: (op.EQUAL, op.EQUAL_F),
    BinaryOperator.LESS: (op.LESS, op.LESS_F),
    BinaryOperator.LESS_OR_EQUAL: (op.LESS_EQUAL, op.LESS_EQUAL_F),
    BinaryOperator.GREATER: (op.GREATER, op.GREATER_F),
    BinaryOperator.GREATER_OR_EQUAL: (op.GREATER_EQUAL, op.GREATER_EQUAL_F),
}
#: The same comparison from the other side.
_TURNED = {
    BinaryOperator.LESS: BinaryOperator.GREATER,
    BinaryOperator.LESS_OR_EQUAL: BinaryOperator.GREATER_OR_EQUAL,
    BinaryOperator.GREATER: BinaryOperator.LESS,
    BinaryOperator.GREATER_OR_EQUAL: BinaryOperator.LESS_OR_EQUAL,
}


class _NeedsPythonError(Exception):
    """A part of a condition names several events, and no program can compute it."""


@dataclass(slots=True)
class Attributes:
    """What programs read of the events of one stream: expressions over one, step 0."""

    expressions: list[BoundExpression] = field(default_factory=list)

    def number(self, expression: BoundExpression) -> int:
        """The column of an expression, the same for an equal one."""
        if expression not in self.expressions:
            self.expressions.append(expression)
        return self.expressions.index(expression)


@dataclass(frozen=True, slots=True)
class Default:
    """The place in a program of what an expression is without its event."""

    row: int
    expression: BoundExpression


@dataclass(frozen=True, slots=True)
class Quick:
    """A comparison of what a partial match has with what comes, each computed once.

    ``operation``: with the match's side first; ``match``, ``event``: the program of each side, from
    its first row to that behind the last.
    """

    operation: int
    match: tuple[int, int]
    event: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Predicate:
    """A part of a filter that only Python can compute.

    ``references``: the events that it reads, each a step and an index as written, in the order in
    which a request has their slots; ``has_time``: whether the time of the match comes after them.
    """

    expression: BoundExpression
    references: tuple[tuple[int, int | None], ...]
    has_time: bool


@dataclass(slots=True)
class Programs:
    """The conditions of all steps.

    ``static``: by step, the condition on its own event alone; ``fails``: whether any of it may
    fail; ``keys``: an equality of whole
    numbers by which matches are found; ``quick``: a comparison that is asked before the rest;
    ``bounds``: by step, the first row of the program of the rest and that behind the last;
    ``attributes``: by stream.
    """

    static: list[BoundExpression | None] = field(default_factory=list)
    fails: list[bool] = field(default_factory=list)
    keys: list[Quick | None] = field(default_factory=list)
    quick: list[Quick | None] = field(default_factory=list)
    bounds: list[tuple[int, int]] = field(default_factory=list)
    rows: list[tuple[int, int | float, int, int]] = field(default_factory=list)
    attributes: dict[str, Attributes] = field(default_factory=dict)
    defaults: list[Default] = field(default_factory=list)
    #: Constant strings: the row that compares with each.
    texts: list[tuple[int, str]] = field(default_factory=list)
    predicates: list[Predicate] = field(default_factory=list)
    #: What predicates read as the machine finds it: step and index, one row each.
    references: list[tuple[int, int]] = field(default_factory=list)
    #: By step, the number of its predicates.
    asked: list[int] = field(default_factory=list)

    def arrays(self) -> tuple[Array, Array]:
        """The program as whole numbers, and the same memory as doubles."""
        table = np.zeros((len(self.rows), op.PROGRAM_COLUMNS), dtype=np.int64)
        floats = table.view(np.float64)
        for number, (operation, a, b, c) in enumerate(self.rows):
            table[number] = (operation, 0, b, c)
            (floats if operation == op.FLOATING else table)[number, 1] = a
        return table, floats


def compile_conditions(
    steps: Sequence[BoundStep],
    counted: frozenset[int],
    plain: frozenset[int],
    hasty: frozenset[int],
) -> Programs:
    """The conditions of a pattern's steps.

    Args:
        steps: the steps.
        counted: those that take several events.
        plain: those that take one, by themselves: what waits behind one keeps its event.
        hasty: those at which nothing happens to a match that fails the condition.
    """
    programs = Programs()
    for step in steps:
        programs.attributes.setdefault(step.schema.name, Attributes())
    for number, step in enumerate(steps):
        condition = step.filter
        static: list[BoundExpression] = []
        rest: list[BoundExpression] = []
        first: list[BinaryExpression] = []
        asked: set[int] = set()
        is_sure = True
        for conjunct in conjuncts(condition) if condition is not None else ():
            is_sure = is_sure and not may_fail(conjunct)
            if (is_sure or not rest) and _is_own(conjunct, number):
                static.append(conjunct)
                continue
            rest.append(conjunct)
            if _needs_python(conjunct, steps, number, counted):
                asked.add(id(conjunct))
            elif is_sure and number in hasty and _is_quick(conjunct, number, plain):
                first.append(conjunct)
        programs.fails.append(any(map(may_fail, (*static, *rest))))
        programs.static.append(_moved(reduce(_both, static)) if static else None)
        compiler = _Compiler(programs, steps, number, counted)
        key = next((c for c in first if number in plain and _is_key(c)), None)
        quick = next((c for c in first if c is not key), None)
        programs.keys.append(None if key is None else compiler.quick(key))
        programs.quick.append(None if quick is None else compiler.quick(quick))
        rest = [conjunct for conjunct in rest if conjunct is not quick and conjunct is not key]
        start, before = len(programs.rows), len(programs.predicates)
        for conjunct in _with_joined(rest, asked):
            if isinstance(conjunct, _Asked):
                compiler.predicate(conjunct.expression)
            else:
                compiler.condition(conjunct)
                compiler.add(op.TEST)
        programs.bounds.append((start, len(programs.rows)))
        programs.asked.append(len(programs.predicates) - before)
    return programs


@dataclass(frozen=True, slots=True)
class _Asked:
    """A part of a filter for Python."""

    expression: BoundExpression


def _with_joined(
    conjuncts: Sequence[BoundExpression], asked: set[int]
) -> Iterator[BoundExpression | _Asked]:
    """Parts of a filter, those for Python joined as far as they follow each other.

    Together they look at the later ones only where the earlier ones hold.
    """
    for is_asked, group in groupby(conjuncts, lambda conjunct: id(conjunct) in asked):
        if is_asked:
            yield _Asked(reduce(_both, group))
        else:
            yield from group


def _needs_python(
    conjunct: BoundExpression, steps: Sequence[BoundStep], own: int, counted: frozenset[int]
) -> bool:
    """Whether no program can compute a part of the filter of step ``own``."""
    tried = Programs(attributes={step.schema.name: Attributes() for step in steps})
    try:
        _Compiler(tried, steps, own, counted).condition(conjunct)
    except _NeedsPythonError:
        return True
    return False


def may_fail(expression: BoundExpression) -> bool:
    """Whether there are events for which it may have no value, not even null."""
    return any(
        isinstance(part, FunctionCall) and (part.is_script or part.function not in SURE_FUNCTIONS)
        for part in walk(expression)
    )


def _both(left: BoundExpression, right: BoundExpression) -> BoundExpression:
    return BinaryExpression(BinaryOperator.AND, left, right, AttributeType.BOOL)


def _is_own(expression: BoundExpression, step: int) -> bool:
    """Whether it names nothing but the event at ``step`` as it comes."""
    for part in walk(expression):
        if isinstance(part, Column) and part.step >= 0 and (part.step, part.index) != (step, None):
            return False
        if isinstance(part, EventIsNull) or _is_match_time(part):
            return False
    return True


def _is_match_time(expression: BoundExpression) -> bool:
    """Whether it is ``eventTimestamp()``: to the engine the event is the match, as it is so far."""
    return isinstance(expression, FunctionCall) and expression.function == "eventtimestamp"


def _is_quick(
    conjunct: BoundExpression, step: int, plain: frozenset[int]
) -> TypeGuard[BinaryExpression]:
    """Whether it compares what plain steps before ``step`` took with the event that comes."""
    if not isinstance(conjunct, BinaryExpression) or conjunct.operator not in _COMPARISON:
        return False
    if {_kind(side) for side in operands(conjunct)} & {None, AttributeType.OBJECT}:
        return False
    left, right = (_events(side) for side in operands(conjunct))
    own = {(step, None)}
    earlier = right if left == own else left
    return own in (left, right) and all(
        at in plain and at < step and index is None for at, index in earlier
    )


def _is_key(comparison: BinaryExpression) -> bool:
    """Whether it is an equality of values whose bits are equal if they are."""
    return comparison.operator is BinaryOperator.EQUAL and _meeting(comparison) not in _WIDE


def _events(expression: BoundExpression) -> set[tuple[int, int | None]]:
    """The events that an expression names: step and index."""
    found: set[tuple[int, int | None]] = set()
    for part in walk(expression):
        if isinstance(part, Column) and part.step >= 0:
            found.add((part.step, part.index))
        if isinstance(part, EventIsNull) and part.step is not None:
            found.add((-1, part.step))
        if _is_match_time(part):
            found.add((-1, None))
    return found


def _moved(expression: BoundExpression) -> BoundExpression:
    """The same over one event, step 0."""
    match expression:
        case Column():
            is_input = expression.step >= 0
            return replace(expression, step=0, index=None) if is_input else expression
        case UnaryExpression() | TableCheck():
            return replace(expression, operand=_moved(expression.operand))
        case BinaryExpression():
            left, right = _moved(expression.left), _moved(expression.right)
            return replace(expression, left=left, right=right)
        case FunctionCall():
            return replace(expression, arguments=tuple(map(_moved, expression.arguments)))
        case _:
            return expression


class _Compiler:
    """Writes one step's conditions behind the others."""

    def __init__(
        self, programs: Programs, steps: Sequence[BoundStep], own: int, counted: frozenset[int]
    ) -> None:
        self._programs = programs
        self._steps = steps
        self._own = own
        self._counted = counted

    def add(self, operation: int, a: int | float = 0, b: int = 0, c: int = 0) -> None:
        """Write a row."""
        self._programs.rows.append((operation, a, b, c))

    def condition(self, expression: BoundExpression) -> None:
        """Write what pushes whether a part of the filter holds."""
        if _is_own(expression, self._own):
            self._derived(expression)
        else:
            self.emit(expression)

    def predicate(self, expression: BoundExpression) -> None:
        """Write the test of a part of the filter that Python computes."""
        # The event that comes is always among them: time goes on even where nothing else changes.
        references: dict[tuple[int, int | None], None] = {(self._own, None): None}
        for part in walk(expression):
            is_event = isinstance(part, EventIsNull) or (
                isinstance(part, Column) and part.step >= 0
            )
            if is_event and part.step is not None:
                references[part.step, part.index] = None
        has_time = any(map(_is_match_time, walk(expression)))
        programs = self._programs
        start = len(programs.references)
        programs.references += [(step, self._index(step, index)) for step, index in references]
        if has_time:
            programs.references.append((OF_MATCH_TIME, 0))
        self.add(op.EVALUATED, len(programs.predicates), start, len(programs.references))
        self.add(op.TEST)
        programs.predicates.append(Predicate(expression, tuple(references), has_time))

    def emit(self, expression: BoundExpression) -> AttributeType:
        """Write what pushes the value of an expression; its type."""
        match expression:
            case Constant():
                return self._constant(expression)
            case Column():
                if expression.type is AttributeType.OBJECT:
                    raise _NeedsPythonError
                self._attribute(op.ATTRIBUTE, expression, expression.step, expression.index)
                return expression.type
            case EventIsNull(_, step, index):
                if step is None:
                    self.add(op.WHOLE_NUMBER, 0)
                else:
                    self.add(op.NO_EVENT, step, self._index(step, index))
                return AttributeType.BOOL
            case UnaryExpression(operator, operand):
                return self._unary(operator, operand)
            case BinaryExpression():
                return self._binary(expression)
            case _ if _is_match_time(expression):
                self.add(op.MATCH_TIME)
                return AttributeType.LONG
            case _:
                return self._derived(expression)

    def _constant(self, constant: Constant) -> AttributeType:
        kind = constant.type or AttributeType.BOOL
        if constant.value is None:
            self.add(op.NULL)
        elif isinstance(constant.value, str):
            self._programs.texts.append((len(self._programs.rows), constant.value))
            self.add(op.WHOLE_NUMBER)
        elif kind in _WIDE:
            value = float(constant.value)
            self.add(
                op.FLOATING, float(np.float32(value)) if kind is AttributeType.FLOAT else value
            )
        else:
            self.add(op.WHOLE_NUMBER, int(constant.value))
        return kind

    def _index(self, step: int, index: int | None) -> int:
        """Which event of a chain; at its own step the event that came is its last already."""
        if index is None:
            return -1
        return index - 1 if index < 0 and step == self._own and step in self._counted else index

    def _attribute(
        self, operation: int, expression: BoundExpression, step: int, index: int | None
    ) -> None:
        stream = self._programs.attributes[self._steps[step].schema.name]
        self.add(operation, step, self._index(step, index), stream.number(_moved(expression)))

    def _derived(self, expression: BoundExpression) -> AttributeType:
        events = _events(expression) or {(self._own, None)}
        own = {(self._own, None)}
        if len(events) > 1 or (isinstance(expression, TableCheck) and events != own):
            raise _NeedsPythonError
        ((step, index),) = events
        kind = expression.type
        if step < 0 or kind is None or kind is AttributeType.OBJECT:
            raise _NeedsPythonError
        self._attribute(op.DERIVED, expression, step, index)
        self._programs.defaults.append(Default(len(self._programs.rows), _moved(expression)))
        self.add(op.NULL)
        return kind

    def _unary(self, operator: UnaryOperator, operand: BoundExpression) -> AttributeType:
        if operator is UnaryOperator.IS_NULL and _is_object(operand):
            raise _NeedsPythonError
        kind = self.emit(operand)
        match operator:
            case UnaryOperator.NOT:
                self.add(op.NOT)
                return AttributeType.BOOL
            case UnaryOperator.IS_NULL:
                self.add(op.IS_NULL)
                return AttributeType.BOOL
            case UnaryOperator.NEGATE:
                self.add(op.MINUS_FLOATING if kind in _WIDE else op.MINUS)
                self._narrow(kind)
                return kind

    def _binary(self, expression: BinaryExpression) -> AttributeType:
        operator = expression.operator
        if operator in (BinaryOperator.AND, BinaryOperator.OR):
            self.emit(expression.left)
            self.emit(expression.right)
            self.add(op.BOTH if operator is BinaryOperator.AND else op.EITHER)
        elif operator in _ARITHMETIC:
            kind = expression.type
            for side in operands(expression):
                self._convert(self.emit(side), kind)
            whole, floating = _ARITHMETIC[operator]
            self.add(floating if kind in _WIDE else whole)
            self._narrow(kind)
            return kind
        else:
            self._compare(expression)
        return AttributeType.BOOL

    def quick(self, expression: BinaryExpression) -> Quick:
        """Write both sides of a comparison of an earlier event with the one that comes."""
        meeting = _meeting(expression)
        operator = expression.operator
        bounds = []
        for side in operands(expression):
            start = len(self._programs.rows)
            kind = self.emit(side)
            if meeting is not None:
                self._convert(kind, meeting)
            bounds.append((start, len(self._programs.rows)))
        left, right = bounds
        if _events(expression.left) == {(self._own, None)}:
            operator = _TURNED.get(operator, operator)
            left, right = right, left
        return Quick(_COMPARISON[operator][meeting in _WIDE], left, right)

    def _compare(self, expression: BinaryExpression) -> None:
        operator = expression.operator
        is_not = operator is BinaryOperator.NOT_EQUAL
        operator = BinaryOperator.EQUAL if is_not else operator
        meeting = _meeting(expression)
        for side in operands(expression):
            kind = self.emit(side)
            if meeting is not None:
                self._convert(kind, meeting)
        self.add(_COMPARISON[operator][meeting in _WIDE])
        if is_not:
            self.add(op.NOT)

    def _convert(self, have: AttributeType, want: AttributeType) -> None:
        if have is want:
            return
        if want is AttributeType.DOUBLE and have not in _WIDE:
            self.add(op.TO_DOUBLE)
        elif want is AttributeType.FLOAT:
            self.add(op.TO_FLOAT if have in _WIDE else op.LONG_TO_FLOAT)

    def _narrow(self, kind: AttributeType) -> None:
        if kind is AttributeType.INT:
            self.add(op.TO_INT)
        elif kind is AttributeType.FLOAT:
            self.add(op.TO_FLOAT)


def _meeting(comparison: BinaryExpression) -> AttributeType | None:
    """The type of number in which the sides are compared; None where they aren't numbers.

    Raises:
        _NeedsPythonError: no program can compare them.
    """
    kinds = [_kind(side) for side in operands(comparison)]
    if AttributeType.OBJECT in kinds:
        raise _NeedsPythonError
    if any(kind is None or not kind.is_numeric for kind in kinds):
        if kinds[0] is not kinds[1] and None not in kinds:
            raise _NeedsPythonError
        return None
    left, right = (kind for kind in kinds if kind is not None)
    is_not = comparison.operator is BinaryOperator.NOT_EQUAL
    return meeting_type(BinaryOperator.EQUAL if is_not else comparison.operator, left, right)


def _kind(expression: BoundExpression) -> AttributeType | None:
    return expression.type


def _is_object(expression: BoundExpression) -> bool:
    return expression.type is AttributeType.OBJECT
