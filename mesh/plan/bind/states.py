"""Binding of patterns and sequences: their events in order, and their combination.

Events are numbered in the order in which the engine handles them.  That is the order of the text,
with two exceptions: of ``and`` and ``or`` the right event is first, and an absent event is after
one that is not.  A filter knows the earlier events in that order, and ``select *`` emits them in
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from mesh.language.syntax import (
    AbsentElement,
    CountElement,
    EventElement,
    EveryElement,
    LogicalElement,
    NextElement,
    StateKind,
)
from mesh.plan.bind.inputs import bind_handlers
from mesh.plan.bind.names import EVENTS
from mesh.plan.bound import (
    BothEvents,
    BoundElement,
    BoundFilter,
    BoundPattern,
    BoundStep,
    BoundStreamFunction,
    Every,
    Next,
    NoEvent,
    OneEvent,
    SomeEvents,
)
from mesh.plan.scopes import InputScope, NamedSource, Sources, by_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.language.syntax import Literal, StateElement, StateInput
    from mesh.model.types import StreamSchema
    from mesh.plan.bind.names import AppNames
    from mesh.plan.bound import SourceKind
    from mesh.plan.diagnostics import Diagnostics


def bind_pattern(
    written: StateInput, names: AppNames, problems: Diagnostics
) -> tuple[BoundPattern, InputScope] | None:
    """A pattern or sequence, and the scope of its select clause; None if that is unknown."""
    elements = list(_events(written.element))
    read = [problems.attempt(names.readable, event.stream, EVENTS) for event, _ in elements]
    sources: list[NamedSource] = []
    for number, ((event, is_counted), source) in enumerate(zip(elements, read, strict=True)):
        if source is None:
            return None
        schema = source[1]
        attributes = by_name(schema.attributes)
        sources.append(NamedSource(schema.name, attributes, event.reference, number, is_counted))
    events = Sources(sources)
    steps: list[BoundStep] = []
    for number, ((event, _), source) in enumerate(zip(elements, read, strict=True)):
        assert source is not None, "a pattern of unknown events was left above"
        step = problems.attempt(_step, event, source, events[number], events, names, problems)
        if step is None:
            return None
        steps.append(step)
    numbers = {id(event): number for number, (event, _) in enumerate(elements)}
    pattern = BoundPattern(
        tuple(steps),
        _milliseconds(written.within),
        written.kind,
        _reaching(_element(written.element, numbers), written.kind),
        position=written.position,
    )
    return pattern, InputScope(events, names.is_defined)


def _events(root: StateElement) -> Iterator[tuple[EventElement, bool]]:
    """Every event, in the order of its number, and whether it is counted."""
    pending: list[tuple[StateElement, bool]] = [(root, False)]
    while pending:
        element, is_counted = pending.pop()
        match element:
            case EventElement():
                yield element, is_counted
            case CountElement():
                yield element.event, True
            case AbsentElement():
                yield element.event, False
            case LogicalElement():
                pending += ((side, False) for side in _last_first(element))
            case EveryElement():
                pending.append((element.element, False))
            case NextElement():
                pending.extend((part, False) for part in reversed(element.elements))
            case _:
                assert_never(element)


def _last_first(pair: LogicalElement) -> tuple[EventElement | AbsentElement, ...]:
    if isinstance(pair.right, AbsentElement) and isinstance(pair.left, EventElement):
        return pair.right, pair.left
    return pair.left, pair.right


def _step(
    event: EventElement,
    read: tuple[SourceKind, StreamSchema],
    source: NamedSource,
    events: Sources,
    names: AppNames,
    problems: Diagnostics,
) -> BoundStep:
    """One event; the attributes of its stream functions are added to ``events``."""
    kind, schema = read
    handled = bind_handlers(event.handlers, source, names, problems, events)
    handlers = tuple(
        h for h in handled.handlers if isinstance(h, BoundFilter | BoundStreamFunction)
    )
    return BoundStep(schema, handlers, event.name, kind, position=event.position)


def _reaching(element: BoundElement, kind: StateKind) -> BoundElement:
    """``every`` of a sequence with absence in its middle: it extends to before the last event.

    So the engine reads ``every e1=S, not T for t, e2=S``, though not if absence begins or ends the
    sequence, or brackets delimit the repetition.
    """
    if kind is not StateKind.SEQUENCE or not isinstance(element, Next):
        return element
    first, *middle, last = element.elements
    if (
        not isinstance(first, Every)
        or isinstance(first.element, Next | NoEvent)
        or isinstance(last, NoEvent)
        or not any(isinstance(part, NoEvent) for part in middle)
    ):
        return element
    repeated = Next((first.element, *middle), position=first.position)
    return Next((Every(repeated, position=first.position), last), position=element.position)


def _element(element: StateElement, numbers: dict[int, int]) -> BoundElement:
    """The tree of the pattern over numbers; its depth is bounded by the parser."""
    at = element.position
    match element:
        case EventElement():
            return OneEvent(numbers[id(element)], position=at)
        case CountElement():
            number = numbers[id(element.event)]
            return SomeEvents(number, element.least, element.most, position=at)
        case AbsentElement():
            return _side(element, numbers)
        case LogicalElement():
            sides = (_side(element.left, numbers), _side(element.right, numbers))
            return BothEvents(element.operator, *sides, position=at)
        case EveryElement():
            return Every(_element(element.element, numbers), position=at)
        case NextElement():
            parts = tuple(_element(part, numbers) for part in element.elements)
            return Next(parts, position=at)
        case _:
            assert_never(element)


def _side(side: EventElement | AbsentElement, numbers: dict[int, int]) -> OneEvent | NoEvent:
    if isinstance(side, EventElement):
        return OneEvent(numbers[id(side)], position=side.position)
    waiting = _milliseconds(side.waiting)
    return NoEvent(numbers[id(side.event)], waiting, position=side.position)


def _milliseconds(time: Literal | None) -> int | None:
    if time is None:
        return None
    assert isinstance(time.value, int), "the parser takes time constants only"
    return time.value
