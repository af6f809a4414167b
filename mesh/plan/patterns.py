"""Refusal of patterns and sequences that have no useful meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.errors import not_supported
from mesh.language.syntax import StateKind
from mesh.plan.bound import (
    BothEvents,
    BoundFilter,
    Column,
    Every,
    FunctionCall,
    Next,
    NoEvent,
    OneEvent,
    SomeEvents,
    TableCheck,
    walk,
)

if TYPE_CHECKING:
    from mesh.plan.bound import BoundElement, BoundExpression, BoundPattern


def check_pattern(source: BoundPattern) -> None:
    """Refuse the parts of a pattern that don't run.

    Raises:
        MeshError: MESH-P900 at the first such part.
    """
    for step in source.steps:
        if not all(isinstance(handler, BoundFilter) for handler in step.handlers):
            raise not_supported("stream functions (#name(..)) in a pattern", step.position)
    names: set[str] = set()
    for step in source.steps:
        if step.name in names and step.name != step.schema.name:
            raise not_supported(f'"{step.name}" as the name of two events', step.position)
        names.add(step.name)
    _check_absence(source.element)
    if not _is_chain(source):
        for step in source.steps:
            if step.filter is not None:
                _check_functions(step.filter)


def _is_chain(source: BoundPattern) -> bool:
    """Whether it is ``every A -> B [-> C ..]``, with any filters."""
    element = source.element
    if source.kind is not StateKind.PATTERN or not isinstance(element, Next):
        return False
    first, *rest = element.elements
    is_every = isinstance(first, Every) and isinstance(first.element, OneEvent)
    return is_every and all(isinstance(part, OneEvent) for part in rest)


def _check_functions(condition: BoundExpression) -> None:
    for part in walk(condition):
        if isinstance(part, FunctionCall | TableCheck):
            columns = [c for c in walk(part) if isinstance(c, Column) and c.step >= 0]
            if len({(column.step, column.index) for column in columns}) > 1:
                raise not_supported(
                    "a function of several events in the filter of such a pattern", part.position
                )


def _check_absence(element: BoundElement) -> bool:
    """Refuse absence for a time after events that are optional.

    Returns whether all of ``element`` may be skipped without an event.
    """
    match element:
        case Every(inner):
            return _check_absence(inner)
        case Next(elements):
            is_passed = True
            for number, inner in enumerate(elements):
                if number and is_passed and _is_timed(inner):
                    raise not_supported(
                        "absence for a time behind events that need not come",
                        inner.position,
                        hint="The reference engine counts its time from 1970 then. Ask for one "
                        "event at least: <1:..> or +.",
                    )
                is_passed = _check_absence(inner) and is_passed
            return is_passed
        case SomeEvents(_, least, _):
            return least == 0
        case _:
            return False


def _is_timed(element: BoundElement) -> bool:
    """Whether it begins with an event that is absent for a time."""
    match element:
        case NoEvent(_, waiting_ms):
            return waiting_ms is not None
        case BothEvents(_, left, right):
            return _is_timed(left) or _is_timed(right)
        case Every(inner):
            return _is_timed(inner)
        case Next(elements):
            return _is_timed(elements[0])
        case _:
            return False
