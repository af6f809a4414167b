"""A step's filter as conditions on single events, and a program for the rest.

Conditions on the step's own event alone are evaluated for a whole batch at once: an event that
doesn't meet them never reaches a partial match.  The rest is a program over numbers (``program``).
Parts that refer to one event, but exceed the program's operations, are evaluated for the batch too
and become attributes of the event.

A part on several events that no program can compute is a predicate: Python evaluates it for many
matches and events at once (``evaluation``).

A part that may fail is evaluated in its place, since the parts before it decide whether it is
evaluated at all.  From the first such part on, no part of a filter is moved before an earlier one.

Compiler of one condition: from a bound expression to rows of the machine's program.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from mesh.functions.kernels import common_numeric_type
from mesh.functions.registry import SURE_FUNCTIONS
from mesh.language.syntax import BinaryOperator, UnaryOperator
from mesh.model.types import AttributeType
from mesh.operators.expressions import conjunction
from mesh.operators.patterns import program as op
from mesh.operators.patterns.matches import OF_MATCH_TIME
from mesh.operators.patterns.program import Attributes, FastPredicate, Predicate, PredicatePrograms
from mesh.plan.bound import (
    BinaryExpression,
    BoundExpression,
    Column,
    Constant,
    EventIsNull,
    FunctionCall,
    TableCheck,
    UnaryExpression,
    conjuncts,
    operands,
    walk,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mesh.plan.bound import BoundStep


WIDE = frozenset({AttributeType.FLOAT, AttributeType.DOUBLE})

_ARITHMETIC = {
    BinaryOperator.ADD: (op.ADD, op.ADD_F),
    BinaryOperator.SUBTRACT: (op.SUBTRACT, op.SUBTRACT_F),
    BinaryOperator.MULTIPLY: (op.MULTIPLY, op.MULTIPLY_F),
    BinaryOperator.DIVIDE: (op.DIVIDE, op.DIVIDE_F),
    BinaryOperator.MODULO: (op.MODULO, op.MODULO_F),
}

COMPARISONS = {
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


class NeedsPythonError(Exception):
    """A part of a condition names several events, and no program can compute it."""


def is_of_step(expression: BoundExpression, step: int) -> bool:
    """Whether it refers only to the event at ``step`` as it arrives."""
    for part in walk(expression):
        if isinstance(part, Column) and part.step >= 0 and (part.step, part.index) != (step, None):
            return False
        if isinstance(part, EventIsNull) or is_match_time(part):
            return False
    return True


def is_match_time(expression: BoundExpression) -> bool:
    """Whether it is ``eventTimestamp()``: for the engine the event is the match as it is so far."""
    return isinstance(expression, FunctionCall) and expression.function == "eventtimestamp"


def events_of(expression: BoundExpression) -> set[tuple[int, int | None]]:
    """The events that an expression names: step and index."""
    events: set[tuple[int, int | None]] = set()
    for part in walk(expression):
        if isinstance(part, Column) and part.step >= 0:
            events.add((part.step, part.index))
        if isinstance(part, EventIsNull) and part.step is not None:
            events.add((-1, part.step))
        if is_match_time(part):
            events.add((-1, None))
    return events


def of_one_event(expression: BoundExpression) -> BoundExpression:
    """The same over one event, step 0."""
    match expression:
        case Column():
            is_input = expression.step >= 0
            return replace(expression, step=0, index=None) if is_input else expression
        case UnaryExpression() | TableCheck():
            return replace(expression, operand=of_one_event(expression.operand))
        case BinaryExpression():
            left, right = of_one_event(expression.left), of_one_event(expression.right)
            return replace(expression, left=left, right=right)
        case FunctionCall():
            return replace(expression, arguments=tuple(map(of_one_event, expression.arguments)))
        case _:
            return expression


class ConditionCompiler:
    """Writes one step's conditions after the others."""

    def __init__(
        self,
        programs: PredicatePrograms,
        steps: Sequence[BoundStep],
        step: int,
        counted: frozenset[int],
    ) -> None:
        self._programs = programs
        self._steps = steps
        self._step = step
        self._counted = counted

    def add(self, operation: int, a: int | float = 0, b: int = 0, c: int = 0) -> None:
        """Write a row."""
        self._programs.rows.append((operation, a, b, c))

    def condition(self, expression: BoundExpression) -> None:
        """Write code that pushes whether a part of the filter holds."""
        if is_of_step(expression, self._step):
            self._derived(expression)
        else:
            self.emit(expression)

    def predicate(self, expression: BoundExpression) -> None:
        """Write the test of a part of the filter that Python computes."""
        # The arriving event is always among them: time moves even where nothing else changes.
        references: dict[tuple[int, int | None], None] = {(self._step, None): None}
        for part in walk(expression):
            if isinstance(part, Column | EventIsNull) and part.step is not None and part.step >= 0:
                references[part.step, part.index] = None
        has_time = any(map(is_match_time, walk(expression)))
        programs = self._programs
        start = len(programs.references)
        programs.references += [(step, self._index(step, index)) for step, index in references]
        if has_time:
            programs.references.append((OF_MATCH_TIME, 0))
        self.add(op.EVALUATED, len(programs.predicates), start, len(programs.references))
        self.add(op.TEST)
        programs.predicates.append(Predicate(expression, tuple(references), has_time))

    def emit(self, expression: BoundExpression) -> AttributeType:
        """Write code that pushes the value of an expression; returns its type."""
        match expression:
            case Constant():
                return self._constant(expression)
            case Column():
                if expression.type is AttributeType.OBJECT:
                    raise NeedsPythonError
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
            case _ if is_match_time(expression):
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
        elif kind in WIDE:
            value = float(constant.value)
            self.add(
                op.FLOATING, float(np.float32(value)) if kind is AttributeType.FLOAT else value
            )
        else:
            self.add(op.WHOLE_NUMBER, int(constant.value))
        return kind

    def _index(self, step: int, index: int | None) -> int:
        """The index of an event in a chain; at its own step the arrived event is the last."""
        if index is None:
            return -1
        return index - 1 if index < 0 and step == self._step and step in self._counted else index

    def _attribute(
        self, operation: int, expression: BoundExpression, step: int, index: int | None
    ) -> None:
        stream = self._programs.attributes[self._steps[step].schema.name]
        self.add(operation, step, self._index(step, index), stream.number(of_one_event(expression)))

    def _derived(self, expression: BoundExpression) -> AttributeType:
        events = events_of(expression) or {(self._step, None)}
        arrival = {(self._step, None)}
        if len(events) > 1 or (isinstance(expression, TableCheck) and events != arrival):
            raise NeedsPythonError
        ((step, index),) = events
        kind = expression.type
        if step < 0 or kind is None or kind is AttributeType.OBJECT:
            raise NeedsPythonError
        self._attribute(op.DERIVED, expression, step, index)
        self._programs.defaults[len(self._programs.rows)] = of_one_event(expression)
        self.add(op.NULL)
        return kind

    def _unary(self, operator: UnaryOperator, operand: BoundExpression) -> AttributeType:
        if operator is UnaryOperator.IS_NULL and operand.type is AttributeType.OBJECT:
            raise NeedsPythonError
        kind = self.emit(operand)
        match operator:
            case UnaryOperator.NOT:
                self.add(op.NOT)
                return AttributeType.BOOL
            case UnaryOperator.IS_NULL:
                self.add(op.IS_NULL)
                return AttributeType.BOOL
            case UnaryOperator.NEGATE:
                self.add(op.MINUS_FLOATING if kind in WIDE else op.MINUS)
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
            self.add(floating if kind in WIDE else whole)
            self._narrow(kind)
            return kind
        else:
            self._compare(expression)
        return AttributeType.BOOL

    def quick(self, expression: BinaryExpression) -> FastPredicate:
        """Write both sides of a comparison of an earlier event with the arriving one."""
        meeting = common_type(expression)
        operator = expression.operator
        bounds = []
        for side in operands(expression):
            start = len(self._programs.rows)
            kind = self.emit(side)
            if meeting is not None:
                self._convert(kind, meeting)
            bounds.append((start, len(self._programs.rows)))
        left, right = bounds
        if events_of(expression.left) == {(self._step, None)}:
            operator = _TURNED.get(operator, operator)
            left, right = right, left
        return FastPredicate(COMPARISONS[operator][meeting in WIDE], left, right)

    def _compare(self, expression: BinaryExpression) -> None:
        operator = expression.operator
        is_not = operator is BinaryOperator.NOT_EQUAL
        operator = BinaryOperator.EQUAL if is_not else operator
        meeting = common_type(expression)
        for side in operands(expression):
            kind = self.emit(side)
            if meeting is not None:
                self._convert(kind, meeting)
        self.add(COMPARISONS[operator][meeting in WIDE])
        if is_not:
            self.add(op.NOT)

    def _convert(self, have: AttributeType, want: AttributeType) -> None:
        if have is want:
            return
        if want is AttributeType.DOUBLE and have not in WIDE:
            self.add(op.TO_DOUBLE)
        elif want is AttributeType.FLOAT:
            self.add(op.TO_FLOAT if have in WIDE else op.LONG_TO_FLOAT)

    def _narrow(self, kind: AttributeType) -> None:
        if kind is AttributeType.INT:
            self.add(op.TO_INT)
        elif kind is AttributeType.FLOAT:
            self.add(op.TO_FLOAT)


def common_type(comparison: BinaryExpression) -> AttributeType | None:
    """The type of number in which the sides are compared; None where they aren't numbers.

    Raises:
        NeedsPythonError: no program can compare them.
    """
    kinds = [side.type for side in operands(comparison)]
    if AttributeType.OBJECT in kinds:
        raise NeedsPythonError
    if any(kind is None or not kind.is_numeric for kind in kinds):
        if kinds[0] is not kinds[1] and None not in kinds:
            raise NeedsPythonError
        return None
    left, right = (kind for kind in kinds if kind is not None)
    is_not = comparison.operator is BinaryOperator.NOT_EQUAL
    return common_numeric_type(BinaryOperator.EQUAL if is_not else comparison.operator, left, right)


def compile_conditions(
    steps: Sequence[BoundStep],
    counted: frozenset[int],
    plain: frozenset[int],
    hasty: frozenset[int],
) -> PredicatePrograms:
    """The conditions of a pattern's steps.

    Args:
        steps: the steps.
        counted: those that take several events.
        plain: those that take one, without a partner: matches after one keep its event.
        hasty: those that leave a match unchanged if it fails the condition.
    """
    programs = PredicatePrograms()
    for step in steps:
        programs.attributes.setdefault(step.schema.name, Attributes())
    for number, step in enumerate(steps):
        condition = step.filter
        static: list[BoundExpression] = []
        rest: list[BoundExpression] = []
        first: list[BinaryExpression] = []
        python_ids: set[int] = set()
        is_sure = True
        for conjunct in conjuncts(condition) if condition is not None else ():
            is_sure = is_sure and not may_fail(conjunct)
            if (is_sure or not rest) and is_of_step(conjunct, number):
                static.append(conjunct)
                continue
            rest.append(conjunct)
            if _needs_python(conjunct, steps, number, counted):
                python_ids.add(id(conjunct))
            elif is_sure and number in hasty and _is_quick(conjunct, number, plain):
                first.append(conjunct)
        programs.fails.append(any(map(may_fail, (*static, *rest))))
        programs.static.append(of_one_event(conjunction(static)) if static else None)
        compiler = ConditionCompiler(programs, steps, number, counted)
        key = next((c for c in first if number in plain and _is_key(c)), None)
        quick = next((c for c in first if c is not key), None)
        programs.keys.append(None if key is None else compiler.quick(key))
        programs.quick.append(None if quick is None else compiler.quick(quick))
        rest = [conjunct for conjunct in rest if conjunct is not quick and conjunct is not key]
        start, before = len(programs.rows), len(programs.predicates)
        for conjunct, is_python in _with_joined(rest, python_ids):
            if is_python:
                compiler.predicate(conjunct)
            else:
                compiler.condition(conjunct)
                compiler.add(op.TEST)
        programs.bounds.append((start, len(programs.rows)))
        programs.predicate_counts.append(len(programs.predicates) - before)
    return programs


def _with_joined(
    conjuncts: Sequence[BoundExpression], python_ids: set[int]
) -> Iterator[tuple[BoundExpression, bool]]:
    """Parts of a filter, and whether Python evaluates each; neighbours for Python are joined.

    Joined parts evaluate the later ones only where the earlier ones hold.
    """
    for is_python, group in groupby(conjuncts, lambda conjunct: id(conjunct) in python_ids):
        if is_python:
            yield conjunction(group), True
        else:
            yield from ((conjunct, False) for conjunct in group)


def _needs_python(
    conjunct: BoundExpression, steps: Sequence[BoundStep], number: int, counted: frozenset[int]
) -> bool:
    """Whether no program can compute a part of the filter of step ``number``."""
    tried = PredicatePrograms(attributes={step.schema.name: Attributes() for step in steps})
    try:
        ConditionCompiler(tried, steps, number, counted).condition(conjunct)
    except NeedsPythonError:
        return True
    return False


def may_fail(expression: BoundExpression) -> bool:
    """Whether it may have no value for some events, not even null."""
    return any(
        isinstance(part, FunctionCall) and (part.is_script or part.function not in SURE_FUNCTIONS)
        for part in walk(expression)
    )


def _is_quick(
    conjunct: BoundExpression, step: int, plain: frozenset[int]
) -> TypeGuard[BinaryExpression]:
    """Whether it compares events of plain steps before ``step`` with the arriving event."""
    if not isinstance(conjunct, BinaryExpression) or conjunct.operator not in COMPARISONS:
        return False
    if {side.type for side in operands(conjunct)} & {None, AttributeType.OBJECT}:
        return False
    left, right = (events_of(side) for side in operands(conjunct))
    arrival = {(step, None)}
    earlier = right if left == arrival else left
    return arrival in (left, right) and all(
        at in plain and at < step and index is None for at, index in earlier
    )


def _is_key(comparison: BinaryExpression) -> bool:
    """Whether it is an equality of values with equal bits if they are equal."""
    return comparison.operator is BinaryOperator.EQUAL and common_type(comparison) not in WIDE
