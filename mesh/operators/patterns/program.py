"""Conditions over the events of a partial match, as programs for a machine with a stack.

A program is rows of (operation, a, b, c).  Numbers are 64 bits: ints, longs, bools and numbers of
strings as whole numbers, floats and doubles as doubles, a float rounded after each operation.
Nulls are kept beside the values.  The semantics are those of ``mesh.functions.kernels``.

A value that could not be computed is ``FAILED`` instead of null, and every value computed from it
is ``FAILED`` too; a test of it fails.  ``and`` and ``or`` ignore the right side where the left one
decides.

``EVALUATED`` pushes the answer to a predicate that only Python can compute (``requests``).

The compiled conditions of a pattern: programs of the machine, and predicates of Python.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from mesh.operators.native import helper, inner
from mesh.operators.patterns.matches import FIRST_REASON, UNANSWERED, answer_to, node_at
from mesh.operators.patterns.memory_layout import (
    ATTRIBUTES_MOST,
    EVENT,
    FAILED,
    FAILING,
    NONE,
    NOTHING,
    PREDICATE_REASON,
    PROGRAM,
    PROGRAM_END,
    REASON,
    STEPS,
    PatternMemory,
    as_floating,
)
from mesh.plan.bound import BoundExpression

if TYPE_CHECKING:
    from mesh.operators.patterns.memory_layout import Array


# Push: a constant, or nothing; an attribute (step, index, column); an expression over one event,
# which has a value without the event too; whether the event is missing.
WHOLE_NUMBER, FLOATING, NULL, ATTRIBUTE, DERIVED, NO_EVENT = range(6)
# Change the top.
TO_DOUBLE, TO_FLOAT, LONG_TO_FLOAT, TO_INT, NOT, IS_NULL, MINUS, MINUS_FLOATING = range(6, 14)
# Combine the two on top.
ADD, SUBTRACT, MULTIPLY, DIVIDE, MODULO = range(15, 20)
ADD_F, SUBTRACT_F, MULTIPLY_F, DIVIDE_F, MODULO_F = range(20, 25)
EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL = range(25, 30)
EQUAL_F, LESS_F, LESS_EQUAL_F, GREATER_F, GREATER_EQUAL_F = range(30, 35)
BOTH, EITHER = 35, 36
#: Ends the program with False unless the top is true.
TEST = 37
#: Push the time of the match so far: that of its last event, -1 without one.
MATCH_TIME = 38
#: Push the answer to a predicate of Python: its number, the range of its references.
EVALUATED = 39
PROGRAM_COLUMNS: Final = 4
STACK_SIZE: Final = 256


@dataclass(slots=True)
class Attributes:
    """Attributes of a stream's events that programs read: expressions over one event, step 0."""

    expressions: list[BoundExpression] = field(default_factory=list)

    def number(self, expression: BoundExpression) -> int:
        """The column of an expression, the same for an equal one."""
        if expression not in self.expressions:
            self.expressions.append(expression)
        return self.expressions.index(expression)


@dataclass(frozen=True, slots=True)
class FastPredicate:
    """A comparison of a value of the partial match with one of the event, each computed once.

    ``operation``: with the match's side first; ``match``, ``event``: the program of each side, from
    its first row to the one after the last.
    """

    operation: int
    match: tuple[int, int]
    event: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Predicate:
    """A part of a filter that only Python can compute.

    ``references``: the events that it reads, each a step and an index as written, in the order in
    which a request has their slots; ``has_time``: whether the time of the match follows them.
    """

    expression: BoundExpression
    references: tuple[tuple[int, int | None], ...]
    has_time: bool


@dataclass(slots=True)
class PredicatePrograms:
    """The conditions of all steps.

    ``static``: by step, the condition on its own event alone; ``fails``: whether any of it may
    fail; ``keys``: an equality of whole numbers by which matches are found; ``quick``: a comparison
    that is evaluated before the rest; ``bounds``: by step, the first row of the program of the rest
    and the one after the last; ``attributes``: by stream.
    """

    static: list[BoundExpression | None] = field(default_factory=list)
    fails: list[bool] = field(default_factory=list)
    keys: list[FastPredicate | None] = field(default_factory=list)
    quick: list[FastPredicate | None] = field(default_factory=list)
    bounds: list[tuple[int, int]] = field(default_factory=list)
    rows: list[tuple[int, int | float, int, int]] = field(default_factory=list)
    attributes: dict[str, Attributes] = field(default_factory=dict)
    #: Expressions by the row of the program with their value without their event.
    defaults: dict[int, BoundExpression] = field(default_factory=dict)
    #: Constant strings: the row that compares with each.
    texts: list[tuple[int, str]] = field(default_factory=list)
    predicates: list[Predicate] = field(default_factory=list)
    #: The reads of predicates in the machine's form: step and index, one row each.
    references: list[tuple[int, int]] = field(default_factory=list)
    #: By step, the number of its predicates.
    predicate_counts: list[int] = field(default_factory=list)

    def arrays(self) -> tuple[Array, Array]:
        """The program as whole numbers, and the same memory as doubles."""
        table = np.zeros((len(self.rows), PROGRAM_COLUMNS), dtype=np.int64)
        floats = table.view(np.float64)
        for number, (operation, a, b, c) in enumerate(self.rows):
            table[number] = (operation, 0, b, c)
            (floats if operation == FLOATING else table)[number, 1] = a
        return table, floats


@inner
def _whole(operation: int, a: int, b: int) -> int:
    if operation == ADD:
        return a + b
    if operation == SUBTRACT:
        return a - b
    if operation == MULTIPLY:
        return a * b
    # Java truncates toward zero, and the least long over -1 is itself.
    if b == -1:
        return -a if operation == DIVIDE else 0
    quotient = a // b
    remainder = a - quotient * b
    if remainder != 0 and (a < 0) != (b < 0):
        quotient += 1
        remainder -= b
    return quotient if operation == DIVIDE else remainder


@inner
def _floating(operation: int, a: float, b: float) -> float:
    if operation == ADD_F:
        return a + b
    if operation == SUBTRACT_F:
        return a - b
    if operation == MULTIPLY_F:
        return a * b
    if operation == DIVIDE_F:
        return a / b
    return float(np.fmod(a, b))


@inner
def _compares(operation: int, a: int, b: int) -> bool:
    if operation == EQUAL:
        return a == b
    if operation == LESS:
        return a < b
    if operation == LESS_EQUAL:
        return a <= b
    if operation == GREATER:
        return a > b
    return a >= b


@inner
def _compares_floating(operation: int, a: float, b: float) -> bool:
    if operation == EQUAL_F:
        return a == b
    if operation == LESS_F:
        return a < b
    if operation == LESS_EQUAL_F:
        return a <= b
    if operation == GREATER_F:
        return a > b
    return a >= b


@inner
def compares(operation: int, left: int, right: int) -> bool:
    """A comparison of two values by their bits; neither is null."""
    if operation < EQUAL_F:
        return bool(_compares(operation, left, right))
    return bool(_compares_floating(operation, as_floating(left), as_floating(right)))


@inner
def passes(w: PatternMemory, step: int, match: int) -> bool:
    """Whether ``match`` with the event at ``step`` meets the step's condition."""
    return bool(computed(w, match, w.plan[step, PROGRAM], w.plan[step, PROGRAM_END]))


# Parts of the loop of ``computed``: as calls they take about 4 % more time of a sequence.


@helper
def _push_attribute(w: PatternMemory, match: int, at: int, top: int) -> None:
    """Push the attribute of the match that row ``at`` reads, or whether its event is missing."""
    stack, nulls = w.stack, w.stack_nulls
    operation = w.program[at, 0]
    node = node_at(w, match, w.program[at, 1], w.program[at, 2])
    event = NOTHING if node == NONE else w.nodes[node, EVENT]
    if operation == NO_EVENT:
        stack[top] = 1 if node == NONE else 0
    elif event != NOTHING:
        stack[top] = w.values[event, w.program[at, 3]]
        nulls[top] = w.nulls[event, w.program[at, 3]]
        if nulls[top] == FAILED:
            stack[top] = event * ATTRIBUTES_MOST + w.program[at, 3]
    elif operation == ATTRIBUTE:
        nulls[top] = 1
    else:
        # The next row holds the value without the event.
        stack[top] = w.program[at + 1, 1]
        nulls[top] = w.program[at + 1, 2]
        if nulls[top] == FAILED:
            stack[top] = NONE - 1 - (at + 1)


@inner
def _push_answer(w: PatternMemory, match: int, at: int, top: int) -> None:
    """Push the answer to a predicate; False as long as it has none."""
    answer = answer_to(w, match, at)
    if answer >= FIRST_REASON:
        w.stack[top] = PREDICATE_REASON - (answer - FIRST_REASON)
        w.stack_nulls[top] = FAILED
    else:
        w.stack[top] = 0 if answer == UNANSWERED else answer


@helper
def _push(w: PatternMemory, match: int, at: int, top: int) -> None:
    """Run row ``at``, which pushes one value to place ``top``."""
    operation = w.program[at, 0]
    w.stack_nulls[top] = 0
    if operation == WHOLE_NUMBER:
        w.stack[top] = w.program[at, 1]
    elif operation == FLOATING:
        w.stack_floats[top] = w.program_floats[at, 1]
    elif operation == NULL:
        w.stack_nulls[top] = 1
    elif operation == MATCH_TIME:
        w.stack[top] = w.matches[match, w.scalars[STEPS]]
    elif operation == EVALUATED:
        _push_answer(w, match, at, top)
    else:
        _push_attribute(w, match, at, top)


@helper
def _change(w: PatternMemory, operation: int, top: int) -> None:
    """Run an operation on the top of the stack, which has not failed."""
    stack, floats, nulls = w.stack, w.stack_floats, w.stack_nulls
    if operation == TO_DOUBLE:
        floats[top] = float(stack[top])
    elif operation == TO_FLOAT:
        floats[top] = float(np.float32(floats[top]))
    elif operation == LONG_TO_FLOAT:
        floats[top] = float(np.float32(stack[top]))
    elif operation == TO_INT:
        low = stack[top] & 0xFFFFFFFF
        stack[top] = low - 0x100000000 if low >= 0x80000000 else low
    elif operation == NOT:
        stack[top] = 0 if nulls[top] == 0 and stack[top] != 0 else 1
        nulls[top] = 0
    elif operation == IS_NULL:
        stack[top] = nulls[top]
        nulls[top] = 0
    elif operation == MINUS:
        stack[top] = -stack[top]
    else:
        floats[top] = -floats[top]


@helper
def _decide(w: PatternMemory, operation: int, top: int) -> None:
    """Run ``and`` or ``or`` on places ``top`` and ``top + 1``; the left side has not failed."""
    stack, nulls = w.stack, w.stack_nulls
    left = nulls[top] == 0 and stack[top] != 0
    if nulls[top + 1] == FAILED and left == (operation == BOTH):
        stack[top] = stack[top + 1]
        nulls[top] = FAILED
        return
    right = nulls[top + 1] == 0 and stack[top + 1] != 0
    holds = (left and right) if operation == BOTH else (left or right)
    stack[top] = 1 if holds else 0
    nulls[top] = 0


@helper
def _combine(w: PatternMemory, operation: int, top: int) -> None:
    """Run an operation on places ``top`` and ``top + 1``; ``top`` receives its value."""
    stack, floats, nulls = w.stack, w.stack_floats, w.stack_nulls
    null = nulls[top] | nulls[top + 1]
    if null >= FAILED and operation <= GREATER_EQUAL_F:
        if nulls[top] != FAILED:
            stack[top] = stack[top + 1]
        nulls[top] = FAILED
    elif operation <= MODULO:
        if operation >= DIVIDE and stack[top + 1] == 0:
            null = 1
        if null == 0:
            stack[top] = _whole(operation, stack[top], stack[top + 1])
        nulls[top] = null
    elif operation <= MODULO_F:
        if operation >= DIVIDE_F and floats[top + 1] == 0.0:
            null = 1
        if null == 0:
            floats[top] = _floating(operation, floats[top], floats[top + 1])
        nulls[top] = null
    elif operation <= GREATER_EQUAL:
        holds = null == 0 and _compares(operation, stack[top], stack[top + 1])
        stack[top] = 1 if holds else 0
        nulls[top] = 0
    elif operation <= GREATER_EQUAL_F:
        holds = null == 0 and _compares_floating(operation, floats[top], floats[top + 1])
        stack[top] = 1 if holds else 0
        nulls[top] = 0
    elif nulls[top] != FAILED:
        _decide(w, operation, top)


@inner
def computed(w: PatternMemory, match: int, first: int, end: int) -> bool:
    """Run the rows of a program from ``first`` to before ``end``; its value is in the stack then.

    Returns False if a test in it is not met; if it failed, ``FAILING`` is set, and the reason.
    """
    top = -1
    at = first
    while at < end:
        operation = w.program[at, 0]
        if operation <= NO_EVENT or operation >= MATCH_TIME:
            top += 1
            _push(w, match, at, top)
            if operation == DERIVED:
                at += 1
        elif operation <= MINUS_FLOATING:
            if w.stack_nulls[top] != FAILED:
                _change(w, operation, top)
        elif operation == TEST:
            if w.stack_nulls[top] == FAILED:
                w.scalars[FAILING] = 1
                w.scalars[REASON] = w.stack[top]
                return False
            if w.stack_nulls[top] != 0 or w.stack[top] == 0:
                return False
            top -= 1
        else:
            top -= 1
            _combine(w, operation, top)
        at += 1
    return True
