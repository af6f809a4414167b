"""A step's filter as conditions on single events, and a program for the rest.

Conditions on the step's own event alone are evaluated for a whole batch at once: an event that
doesn't meet them never reaches a partial match.  The rest is a program over numbers (``program``).
Parts that refer to one event, but exceed the program's operations, are evaluated for the batch too
and become attributes of the event.

A part on several events that no program can compute is a predicate: Python evaluates it for many
matches and events at once (``evaluation``).

A part that may fail is evaluated in its place, since the parts before it decide whether it is
evaluated at all.  From the first such part on, no part of a filter is moved before an earlier one.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, TypeGuard

from mesh.functions.registry import SURE_FUNCTIONS
from mesh.language.syntax import BinaryOperator
from mesh.model.types import AttributeType
from mesh.operators.expressions import conjunction
from mesh.operators.patterns import program as op
from mesh.operators.patterns.condition_compiler import (
    COMPARISONS,
    WIDE,
    ConditionCompiler,
    NeedsPythonError,
    common_type,
    events_of,
    is_of_step,
    of_one_event,
)
from mesh.operators.patterns.predicate_programs import Attributes, PredicatePrograms
from mesh.plan.bound import (
    BinaryExpression,
    BoundExpression,
    FunctionCall,
    conjuncts,
    operands,
    walk,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mesh.plan.bound import BoundStep


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
