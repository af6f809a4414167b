"""Binding of query inputs: one stream with its handlers, or a join of two."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.functions.catalogue import (
    DOCUMENTED_STREAM_FUNCTIONS,
    DOCUMENTED_WINDOWS,
    STREAM_FUNCTIONS,
    WINDOWS,
    Argument,
    ArgumentForm,
    CallRefusal,
    NameKind,
    Reason,
    resolve,
)
from mesh.language.syntax import Filter, JoinInput, StreamFunction, StreamInput, WindowHandler
from mesh.model.types import Attribute, AttributeType
from mesh.plan.bind.aggregations import bind_per, bind_within
from mesh.plan.bind.names import EVENTS, JOINED
from mesh.plan.bound import (
    BoundFilter,
    BoundHandler,
    BoundJoin,
    BoundStream,
    BoundStreamFunction,
    Column,
    Constant,
    SourceKind,
    Window,
)
from mesh.plan.expressions import argument, bind_condition, bind_expression, refused
from mesh.plan.scopes import InputScope, NamedSource, Sources, by_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.functions.catalogue import Resolution, Signature
    from mesh.language.syntax import Expression, Handler
    from mesh.plan.bind.names import AppNames
    from mesh.plan.bound import BoundExpression
    from mesh.plan.diagnostics import Diagnostics
    from mesh.plan.scopes import Scope

_STREAM_FUNCTIONS: Final = STREAM_FUNCTIONS | DOCUMENTED_STREAM_FUNCTIONS
_WINDOWS: Final = WINDOWS | DOCUMENTED_WINDOWS
_STATIC: Final = (SourceKind.TABLE, SourceKind.AGGREGATION)
#: Attributes that the engine adds to the stream joined with an aggregation: the requested span.
_SPAN: Final = (Attribute("_START", AttributeType.LONG), Attribute("_END", AttributeType.LONG))


@dataclass(frozen=True, slots=True)
class HandledSource:
    """A source after its handlers, with the handlers."""

    source: NamedSource
    handlers: tuple[BoundHandler, ...]


def bind_stream(
    written: StreamInput, names: AppNames, problems: Diagnostics
) -> tuple[BoundStream, InputScope] | None:
    """A query's only input, and the scope of its select clause; None if that is unknown."""
    bound = problems.attempt(names.readable, written.stream, EVENTS)
    if bound is None:
        return None
    kind, schema = bound
    source = NamedSource(schema.name, by_name(schema.attributes), written.alias)
    handled = problems.attempt(bind_handlers, written.handlers, source, names, problems)
    if handled is None:
        return None
    if kind is SourceKind.WINDOW:
        problems.attempt(_refuse_second_window, written)
    stream = BoundStream(
        schema, handled.handlers, kind, written.alias, position=written.stream.position
    )
    return stream, InputScope(Sources([handled.source]), names.is_defined)


def bind_handlers(
    written: Sequence[Handler],
    source: NamedSource,
    names: AppNames,
    problems: Diagnostics,
    around: Sources | None = None,
) -> HandledSource:
    """The handlers of ``source``, in order.

    Args:
        written: filters, stream functions, at most one window.
        source: the source that they follow.
        names: the names of the app.
        problems: receives the errors of filters and windows, on which nothing else depends.
        around: in a pattern, all its events; ``source`` is kept up to date in them.

    Raises:
        MeshError: MESH-L205, L206 or L210 for a stream function.
    """
    handlers: list[BoundHandler] = []
    for handler in written:
        if around is None:
            scope = InputScope(Sources([source]), names.is_defined)
        else:
            scope = InputScope(around, names.is_defined, source.step)
        match handler:
            case Filter():
                bound: BoundHandler | None = problems.attempt(_filter, handler, scope, names)
            case WindowHandler():
                bound = problems.attempt(bind_window, handler, scope, names)
            case StreamFunction():
                bound = _stream_function(handler, scope, names, in_pattern=around is not None)
                source = _with(source, bound, handler)
                if around is not None:
                    around.put(source.step, source)
        if bound is not None:
            handlers.append(bound)
    return HandledSource(source, tuple(handlers))


def bind_window(handler: WindowHandler, scope: Scope, names: AppNames) -> Window:
    """A window; MESH-L213 if it doesn't exist, or its arguments don't fit."""
    resolution, arguments = _resolve(_WINDOWS, handler, scope, names, "MESH-L213")
    # The catalogue accepts constants and attributes here.
    fitting = tuple(a for a in arguments if isinstance(a, Constant | Column))
    return Window(resolution.signature.name, fitting, resolution.fails, position=handler.position)


def _filter(handler: Filter, scope: Scope, names: AppNames) -> BoundFilter:
    return BoundFilter(bind_condition(handler.condition, scope, names.vocabulary, "a filter"))


def _stream_function(
    handler: StreamFunction, scope: Scope, names: AppNames, *, in_pattern: bool
) -> BoundStreamFunction:
    resolution, arguments = _resolve(_STREAM_FUNCTIONS, handler, scope, names, "MESH-L206")
    if in_pattern and resolution.signature.kind is NameKind.STREAM_PROCESSOR:
        raise MeshError(
            "MESH-L206",
            f'{resolution.signature.kind} "{resolution.signature.name}" can\'t stand in a pattern',
            hint="Put it into an earlier query that inserts into a separate stream.",
            position=handler.position,
        )
    return BoundStreamFunction(
        resolution.signature.name, arguments, resolution.adds, position=handler.position
    )


def _with(
    source: NamedSource, function: BoundStreamFunction, handler: StreamFunction
) -> NamedSource:
    for attribute in function.adds:
        if attribute.name in source.attributes:
            raise MeshError(
                "MESH-L210",
                f'"{function.name}" adds attribute "{attribute.name}", which exists already',
                hint="Give the existing one another name in an earlier query.",
                position=handler.position,
            )
    return replace(source, attributes={**source.attributes, **by_name(function.adds)})


def _resolve(
    table: Mapping[str, Signature],
    handler: StreamFunction | WindowHandler,
    scope: Scope,
    names: AppNames,
    code: str,
) -> tuple[Resolution, tuple[BoundExpression, ...]]:
    name = f"{handler.namespace}:{handler.name}" if handler.namespace else handler.name
    written: tuple[Expression, ...] = handler.arguments
    if handler.takes_all:
        bound: tuple[BoundExpression, ...] = scope.spread(handler.position)
        arguments = [
            Argument(c.type, ArgumentForm.ATTRIBUTE, name=c.name)
            for c in scope.spread(handler.position)
        ]
    else:
        bound = tuple(bind_expression(one, scope, names.vocabulary) for one in written)
        arguments = [
            argument(one, expression) for one, expression in zip(written, bound, strict=True)
        ]
    resolution = resolve(table, name, arguments)
    if isinstance(resolution, CallRefusal):
        is_function = isinstance(handler, StreamFunction)
        if is_function and resolution.reason is Reason.UNKNOWN:
            code = "MESH-L205"
        raise refused(resolution, code, handler.position, written)
    return resolution, bound


def _refuse_second_window(written: StreamInput) -> None:
    for handler in written.handlers:
        if isinstance(handler, WindowHandler):
            raise MeshError(
                "MESH-L213",
                f'window "{written.stream}" can\'t have another window after it',
                detail="It is a named window, with a window of its own.",
                hint=f"Insert its events into a stream first: from {written.stream} select * "
                "insert into M; and read that one with the second window.",
                position=handler.position,
            )


# Joins


def bind_join(
    written: JoinInput, names: AppNames, problems: Diagnostics
) -> tuple[BoundJoin, InputScope] | None:
    """A join, and the scope of its select clause; None if that is unknown."""
    left = problems.attempt(_side, written.left, 0, names, problems)
    right = problems.attempt(_side, written.right, 1, names, problems)
    if left is None or right is None:
        return None
    sides = [left[0], right[0]]
    problems.attempt(_check_sides, written, sides)
    scope = InputScope(Sources(_joined(left, right)), names.is_defined)
    on = None
    if written.on is not None:
        condition = written.on
        # The engine accepts any expression here, not only conditions.
        on = problems.attempt(bind_expression, condition, _for_on(scope, sides), names.vocabulary)
    within = per = None
    agg_side = next((side for side in sides if side.kind is SourceKind.AGGREGATION), None)
    if agg_side is not None:
        aggregation = agg_side.position
        within = problems.attempt(bind_within, written.within, scope, names, aggregation)
        per = problems.attempt(bind_per, written.per, scope, names, aggregation)
    elif written.within is not None or written.per is not None:
        problems.attempt(_refuse_per, written)
    join = BoundJoin(
        left[0],
        right[0],
        written.kind,
        written.trigger,
        on,
        within,
        per,
        position=written.position,
    )
    return join, scope


def _side(
    written: StreamInput, step: int, names: AppNames, problems: Diagnostics
) -> tuple[BoundStream, NamedSource]:
    kind, schema = names.readable(written.stream, JOINED)
    # In filters only the stream's own name is valid, not the alias.
    source = NamedSource(schema.name, by_name(schema.attributes), step=step)
    filter_source = replace(source, step=0)
    handled = bind_handlers(written.handlers, filter_source, names, problems)
    if kind is SourceKind.WINDOW:
        _refuse_second_window(written)
    side = BoundStream(
        schema, handled.handlers, kind, written.alias, position=written.stream.position
    )
    return side, replace(handled.source, step=step, alias=written.alias)


def _joined(
    left: tuple[BoundStream, NamedSource], right: tuple[BoundStream, NamedSource]
) -> tuple[NamedSource, NamedSource]:
    """Both sides; the left one has the ends of the span that is requested of an aggregation."""
    first, second = left[1], right[1]
    if SourceKind.AGGREGATION in (left[0].kind, right[0].kind):
        first = replace(first, attributes={**first.attributes, **by_name(_SPAN)})
    return first, second


def _for_on(scope: InputScope, sides: Sequence[BoundStream]) -> InputScope:
    """Beside an aggregation, a name that both sides have is the left one's in the condition."""
    has_aggregation = any(side.kind is SourceKind.AGGREGATION for side in sides)
    return replace(scope, preferred=0) if has_aggregation else scope


def _check_sides(written: JoinInput, sides: Sequence[BoundStream]) -> None:
    left, right = sides
    if left.kind in _STATIC and right.kind in _STATIC:
        raise MeshError(
            "MESH-L221",
            f'join of {left.kind} "{left.schema.name}" with {right.kind} "{right.schema.name}"',
            detail="Neither has events that would trigger it.",
            hint="Join each with a stream, or ask on demand.",
            position=written.left.stream.position,
        )
    for side, tree in zip(sides, (written.left, written.right), strict=True):
        is_stream = side.kind not in (*_STATIC, SourceKind.WINDOW)
        if is_stream and tree.handlers and side.window is None:
            raise MeshError(
                "MESH-L221",
                f'side "{side.schema.name}" of the join has a filter and no window',
                hint="Add one after it: #window.length(1).",
                position=tree.handlers[0].position,
            )


def _refuse_per(written: JoinInput) -> None:
    at = written.within.position if written.within is not None else written.position
    raise MeshError(
        "MESH-L226",
        "'within' and 'per' in a join without an aggregation",
        hint="They say which rows of an aggregation are meant.",
        position=at,
    )
