"""Patterns and sequences: partial matches of events that follow each other.

Every shape runs on the exact machine (``exact``), but for what its conditions can't compute:
functions of several events.  Where these stand in ``every A -> B [-> C ..]``, outside of a
partition, ``chain`` evaluates them for pairs of events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.errors import MeshError
from mesh.language.syntax import StateKind
from mesh.operators.patterns.chain import ChainPattern
from mesh.operators.patterns.exact import ExactPattern
from mesh.operators.patterns.reads import query_expressions
from mesh.plan.bound import Column, EventIsNull, Every, Next, OneEvent, TableCheck, walk

if TYPE_CHECKING:
    from mesh.plan.bound import BoundPattern, BoundQuery

Pattern = ChainPattern | ExactPattern


def make_pattern(query: BoundQuery, pattern: BoundPattern, is_partitioned: bool = False) -> Pattern:
    """The operator of a pattern, with nothing in it yet."""
    try:
        return ExactPattern(query, pattern, is_partitioned)
    except MeshError:
        if is_partitioned or not is_chain(query, pattern):
            raise
        return ChainPattern(query, pattern)


def is_chain(query: BoundQuery, pattern: BoundPattern) -> bool:
    """Whether it is ``every A -> B [-> C ..]``, with nothing in it that asks what is missing."""
    element = pattern.element
    if pattern.kind is not StateKind.PATTERN or not isinstance(element, Next):
        return False
    first, *rest = element.elements
    if not isinstance(first, Every) or not isinstance(first.element, OneEvent):
        return False
    expressions = [step.filter for step in pattern.steps if step.filter is not None]
    return all(isinstance(part, OneEvent) for part in rest) and not any(
        isinstance(part, EventIsNull | TableCheck)
        or (isinstance(part, Column) and part.index is not None)
        for expression in (*expressions, *query_expressions(query))
        for part in walk(expression)
    )
