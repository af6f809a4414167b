"""Parts of an app that a query uses: streams, tables, named windows, functions.

Streams cross the wire between groups, and so do the events of triggers.  Everything else belongs to
one group: state is in one place, and functions are created in each group that uses them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from mesh.functions.catalogue import (
    EVENT_FUNCTIONS,
    STATEFUL_FUNCTIONS,
    STATEFUL_STREAM_FUNCTIONS,
    TRAINED_BY,
)
from mesh.language.memo import memoized
from mesh.plan.bound import (
    AnswerOutput,
    BoundAggregation,
    BoundFilter,
    BoundJoin,
    BoundPartition,
    BoundPattern,
    BoundStream,
    BoundStreamFunction,
    Constant,
    Delete,
    FunctionCall,
    Insert,
    SourceKind,
    TableCheck,
    Update,
    Window,
    walk,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mesh.plan.bound import BoundApp, BoundExpression, BoundHandler, BoundQuery


#: Stream functions with a state.
WITH_STATE: Final = frozenset({*STATEFUL_STREAM_FUNCTIONS, *EVENT_FUNCTIONS, *STATEFUL_FUNCTIONS})
#: Stream functions that train named models, or ask them.
OF_MODELS: Final = frozenset({*TRAINED_BY, *TRAINED_BY.values()})


@dataclass(frozen=True, slots=True)
class Uses:
    """Names, each once, in the order of first mention."""

    #: Streams that are read, triggers and fault streams (with their mark) among them, and streams
    #: that are written.
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    windows: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    #: Fault streams that are read, with their mark.
    faults: tuple[str, ...] = ()
    aggregations: tuple[str, ...] = ()
    #: Models that are trained or asked.
    models: tuple[str, ...] = ()


_OF_USES: Final = tuple(attrgetter(one.name) for one in fields(Uses))


@memoized
def uses_of(element: BoundQuery | BoundPartition | BoundAggregation) -> Uses:
    """The uses of a query, of an aggregation, or of all queries of a partition and its keys."""
    if isinstance(element, BoundAggregation):
        schema = element.schema
        uses = Uses(reads=(element.input.schema.name,), aggregations=(schema.name,))
        outputs = (output.expression for output in element.outputs)
        return union([uses, _named([*handler_expressions(element.input.handlers), *outputs])])
    if isinstance(element, BoundPartition):
        keys = (e for key in element.keys for e in (key.value, *(r.condition for r in key.ranges)))
        named = _named(e for e in keys if e is not None)
        return union([*(uses_of(query) for query in element.queries), named])
    inputs = element.inputs
    action, target = element.action, element.action.target.name
    kind = action.kind if isinstance(action, Insert) else SourceKind.TABLE
    assert not isinstance(action, AnswerOutput), "an app's queries answer nobody"
    endpoints = [*inputs, (target, kind)]
    uses = Uses(
        reads=_of(inputs, SourceKind.STREAM, SourceKind.TRIGGER, SourceKind.FAULT),
        writes=_of([(target, kind)], SourceKind.STREAM),
        tables=_of(endpoints, SourceKind.TABLE),
        windows=_of(endpoints, SourceKind.WINDOW),
        faults=_of(inputs, SourceKind.FAULT),
        aggregations=_of(inputs, SourceKind.AGGREGATION),
        models=tuple(dict.fromkeys(call.name for call in models_of(element))),
    )
    named = _named(expressions(element))
    return union([uses, named]) if named != Uses() else uses


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A call that trains the model ``name``, or asks it, by the function ``family`` that trains."""

    name: str
    family: str
    trains: bool
    call: BoundStreamFunction


def models_of(query: BoundQuery) -> Iterator[ModelCall]:
    """The calls of ``query`` that train models or ask them."""
    handlers = query.input.handlers if isinstance(query.input, BoundStream) else ()
    for handler in handlers:
        if isinstance(handler, BoundStreamFunction) and handler.name in OF_MODELS:
            name = handler.arguments[0]
            assert isinstance(name, Constant), "the catalogue accepts a constant here"
            family = TRAINED_BY.get(handler.name, handler.name)
            yield ModelCall(str(name.value), family, family == handler.name, handler)


def joined_aggregations(app: BoundApp) -> frozenset[str]:
    """The names of the aggregations that queries join, inside of partitions too."""
    uses = [*map(uses_of, app.queries), *map(uses_of, app.partitions)]
    return frozenset(union(uses).aggregations)


def union(parts: Iterable[Uses]) -> Uses:
    """The union of the uses of ``parts``."""
    listed = list(parts)
    return Uses(*(tuple(dict.fromkeys(chain(*map(of, listed)))) for of in _OF_USES))


def expressions(query: BoundQuery) -> Iterator[BoundExpression]:
    """Every top-level expression of ``query``."""
    match query.input:
        case BoundStream():
            yield from handler_expressions(query.input.handlers)
        case BoundJoin(left, right):
            yield from handler_expressions(left.handlers)
            yield from handler_expressions(right.handlers)
            within = query.input.within
            ends = (within.start, within.end) if within is not None else ()
            yield from (e for e in (query.input.on, query.input.per, *ends) if e is not None)
        case BoundPattern():
            for step in query.input.steps:
                yield from handler_expressions(step.handlers)
    yield from (output.expression for output in query.outputs)
    if query.having is not None:
        yield query.having
    action = query.action
    if isinstance(action, Delete | Update):
        yield action.on
    if isinstance(action, Update):
        yield from (assignment.value for assignment in action.assignments)


def handler_expressions(handlers: Iterable[BoundHandler]) -> Iterator[BoundExpression]:
    """Every top-level expression of ``handlers``."""
    for handler in handlers:
        match handler:
            case BoundFilter():
                yield handler.condition
            case BoundStreamFunction() | Window():
                yield from handler.arguments


def _named(roots: Iterable[BoundExpression]) -> Uses:
    tables: list[str] = []
    scripts: list[str] = []
    for root in roots:
        for part in walk(root):
            match part:
                case TableCheck():
                    tables.append(part.table)
                case FunctionCall() if part.is_script:
                    scripts.append(part.function)
    return union([Uses(tables=tuple(tables), scripts=tuple(scripts))])


def _of(named: Iterable[tuple[str, SourceKind]], *kinds: SourceKind) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name, kind in named if kind in kinds))
