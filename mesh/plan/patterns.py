"""Refusal of patterns and sequences that have no useful meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.errors import not_supported
from mesh.plan.bound import (
    BothEvents,
    BoundFilter,
    Every,
    Next,
    NoEvent,
    SomeEvents,
)

if TYPE_CHECKING:
    from mesh.plan.bound import BoundElement, BoundPattern


def check_pattern(source: BoundPattern) -> None:
    """Refuse the parts of a pattern that don't run.

    Raises:
        MeshError: MESH-P900 at the first such part.
    """
    for step in source.steps:
        if not all(isinstance(handler, BoundFilter) for handler in step.handlers):
            raise not_supported("stream functions (#name(..)) in a pattern", step.position)
    _check_absence(source.element)


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
                        "absence for a time after events that are optional",
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
