"""A syntax tree to a bound app: streams known, names resolved, types checked.

Queries are bound in the order written, and a stream that no definition names gets its attributes
from the first query that inserts into it; so it is known to the queries behind that one, as in
the reference engine.
"""

from __future__ import annotations

import re
from functools import reduce
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError, Position, not_supported
from mesh.language.syntax import (
    App,
    BinaryOperator,
    EventElement,
    EventKind,
    Filter,
    InsertInto,
    Literal,
    Query,
    Selector,
    StateInput,
    StreamDefinition,
    StreamInput,
    Variable,
    WindowHandler,
)
from mesh.model.types import Attribute, AttributeType, StreamSchema
from mesh.plan.annotations import check_annotations
from mesh.plan.bound import (
    BinaryExpression,
    BoundApp,
    BoundExpression,
    BoundOutput,
    BoundPattern,
    BoundQuery,
    BoundStep,
    BoundStream,
    Column,
    Constant,
    Window,
)
from mesh.plan.expressions import bind_condition, bind_expression, type_of
from mesh.plan.scopes import OutputScope, PatternScope, Scope, StreamScope, nearest
from mesh.plan.supported import check_supported, pattern_steps

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_STREAM_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z_0-9]*\Z")
#: Windows that the reference engine has and this version has not.
_WINDOWS_ELSEWHERE: Final = (
    "batch", "cron", "delay", "expression", "expressionBatch", "externalTime",
    "externalTimeBatch", "frequent", "hopping", "length", "lengthBatch", "lossyFrequent",
    "session", "sort", "timeBatch", "timeLength",
)  # fmt: skip


def bind(app: App) -> BoundApp:
    """Resolve every name and type of ``app``.

    Raises:
        MeshError: MESH-L2xx for what is not defined or doesn't fit, MESH-P900 for what is not
            supported yet.  An app without a name is bound; its name is empty then.
    """
    check_supported(app)
    check_annotations(app)
    streams: dict[str, StreamSchema] = {}
    for definition in app.streams:
        _add_definition(definition, streams)
    queries: list[BoundQuery] = []
    names: set[str] = set()
    for number, query in enumerate(app.queries, 1):
        name = query.name or f"query-{number}"
        if name in names:
            raise MeshError(
                "MESH-L212",
                f'query name "{name}" is given twice',
                hint="Names of queries are unique in an app; those without one are called "
                "query-{number}, from 1.",
                position=query.position,
            )
        names.add(name)
        queries.append(_query(query, name, streams))
    return BoundApp(app.name or "", tuple(streams.values()), tuple(queries))


def _add_definition(definition: StreamDefinition, streams: dict[str, StreamSchema]) -> None:
    _check_stream_name(definition.name, definition.position)
    attributes: dict[str, Attribute] = {}
    for attribute in definition.attributes:
        if attribute.name in attributes:
            raise MeshError(
                "MESH-L210",
                f'attribute "{attribute.name}" is defined twice in stream "{definition.name}"',
                position=attribute.position,
            )
        if attribute.type is AttributeType.OBJECT:
            raise not_supported("attributes of type object", attribute.position)
        attributes[attribute.name] = Attribute(attribute.name, attribute.type)
    schema = StreamSchema(definition.name, tuple(attributes.values()))
    known = streams.setdefault(schema.name, schema)
    if known != schema:
        raise MeshError(
            "MESH-L209",
            f'stream "{schema.name}" is defined twice, differently',
            detail=f"First it is {_shown(known)}.",
            position=definition.position,
        )


def _check_stream_name(name: str, position: Position) -> None:
    if not _STREAM_NAME.match(name):
        raise MeshError(
            "MESH-L214",
            f'stream name "{name}" can\'t stand in a subject',
            hint="Use letters, digits and '_', and no digit first.",
            position=position,
        )


def _shown(schema: StreamSchema) -> str:
    return f"({', '.join(f'{a.name} {a.type}' for a in schema.attributes)})"


def _query(query: Query, name: str, streams: dict[str, StreamSchema]) -> BoundQuery:
    source: BoundStream | BoundPattern
    scope: Scope
    # What else there is of inputs and outputs has been refused.
    assert isinstance(query.input, StreamInput | StateInput)
    assert isinstance(query.output, InsertInto)
    if isinstance(query.input, StreamInput):
        source = _stream_input(query.input, streams)
        scope = StreamScope(source.schema)
        available = _stream_outputs(source)
    else:
        source = _pattern(query.input, streams)
        scope = PatternScope(_step_names(query.input, source))
        available = _pattern_outputs(source)
    _refuse_endless_wait(query.output, source)
    selector = query.selector
    outputs = _outputs(selector, scope, available, query)
    group_by = tuple(scope.column(variable) for variable in selector.group_by)
    produced = StreamSchema(
        query.output.stream.name, tuple(Attribute(o.name, type_of(o.expression)) for o in outputs)
    )
    having = None
    if selector.having is not None:
        having = bind_condition(selector.having, OutputScope(produced), "'having'")
    target = _target(produced, query, streams)
    return BoundQuery(
        name=name,
        input=source,
        outputs=outputs,
        group_by=group_by,
        having=having,
        target=target,
        events=query.output.events,
    )


def _refuse_endless_wait(output: InsertInto, source: BoundStream | BoundPattern) -> None:
    """Refuse to insert expired events where none ever expires."""
    has_window = isinstance(source, BoundStream) and source.window is not None
    if output.events is EventKind.EXPIRED and not has_window:
        raise MeshError(
            "MESH-L216",
            "expired events of a query without a window",
            detail="Events expire by leaving a window, so nothing would ever come out.",
            hint="Add a window, or leave 'expired events' out.",
            position=output.position,
        )


def _schema(name: str, streams: Mapping[str, StreamSchema], position: Position) -> StreamSchema:
    schema = streams.get(name)
    if schema is None:
        raise MeshError(
            "MESH-L201",
            f'stream "{name}" is not defined',
            detail=f"Streams known here: {', '.join(streams)}." if streams else None,
            hint=nearest(name, streams)
            or "Define it, or move the query that inserts into it before this one.",
            position=position,
        )
    return schema


def _stream_input(source: StreamInput, streams: Mapping[str, StreamSchema]) -> BoundStream:
    schema = _schema(source.stream.name, streams, source.position)
    scope = StreamScope(schema)
    filters: list[BoundExpression] = []
    filters_after: list[BoundExpression] = []
    window: Window | None = None
    for handler in source.handlers:
        if isinstance(handler, WindowHandler):
            window = _window(handler)
        elif isinstance(handler, Filter):
            condition = bind_condition(handler.condition, scope, "a filter")
            (filters if window is None else filters_after).append(condition)
    return BoundStream(schema, tuple(filters), window, tuple(filters_after))


def _window(handler: WindowHandler) -> Window:
    if handler.name != "time":
        if handler.name in _WINDOWS_ELSEWHERE or handler.namespace:
            raise not_supported(f"windows of kind {handler.name}", handler.position)
        raise MeshError(
            "MESH-L213",
            f'window "{handler.name}" is not defined',
            hint=nearest(handler.name, ("time", *_WINDOWS_ELSEWHERE)),
            position=handler.position,
        )
    if len(handler.arguments) != 1:
        raise _window_error("takes one time", handler.position)
    (length,) = handler.arguments
    if not isinstance(length, Literal):
        raise _window_error("takes a constant", length.position)
    if length.type not in (AttributeType.INT, AttributeType.LONG):
        raise _window_error(f"takes a time, not {length.type}", length.position)
    assert isinstance(length.value, int)
    if length.value < 0:
        raise _window_error("can't be shorter than nothing", length.position)
    return Window(handler.name, (Constant(length.value, length.type),))


def _window_error(what: str, position: Position) -> MeshError:
    return MeshError(
        "MESH-L213",
        f'window "time" {what}',
        hint="Write #window.time(2 min), or milliseconds: #window.time(120000).",
        position=position,
    )


def _pattern(source: StateInput, streams: Mapping[str, StreamSchema]) -> BoundPattern:
    written = pattern_steps(source)
    schemas = [_schema(step.stream.name, streams, step.position) for step in written]
    names = tuple(step.name for step in written)
    _refuse_double_references(written)
    steps = tuple(zip(names, schemas, strict=True))
    bound = []
    for index, step in enumerate(written):
        scope = PatternScope(steps, index)
        conditions = [
            bind_condition(handler.condition, scope, "a filter")
            for handler in step.handlers
            if isinstance(handler, Filter)
        ]
        bound.append(BoundStep(schemas[index], _all(conditions)))
    within_ms = None
    if source.within is not None:
        assert isinstance(source.within.value, int)
        within_ms = source.within.value
    return BoundPattern(tuple(bound), within_ms)


def _refuse_double_references(steps: Iterable[EventElement]) -> None:
    seen: set[str] = set()
    for step in steps:
        if step.reference is None:
            continue
        if step.reference in seen:
            raise MeshError(
                "MESH-L215",
                f'"{step.reference}" names two events of a pattern',
                position=step.position,
            )
        seen.add(step.reference)


def _all(conditions: list[BoundExpression]) -> BoundExpression | None:
    """The conjunction of ``conditions``; None of none."""
    if not conditions:
        return None
    return reduce(
        lambda a, b: BinaryExpression(BinaryOperator.AND, a, b, AttributeType.BOOL), conditions
    )


def _step_names(source: StateInput, bound: BoundPattern) -> tuple[tuple[str, StreamSchema], ...]:
    return tuple(
        (step.name, bound_step.schema)
        for step, bound_step in zip(pattern_steps(source), bound.steps, strict=True)
    )


def _stream_outputs(source: BoundStream) -> tuple[Column, ...]:
    return tuple(Column(a.name, a.type) for a in source.schema.attributes)


def _pattern_outputs(source: BoundPattern) -> tuple[Column, ...]:
    return tuple(
        Column(a.name, a.type, index)
        for index, step in enumerate(source.steps)
        for a in step.schema.attributes
    )


def _outputs(
    selector: Selector, scope: Scope, available: tuple[Column, ...], query: Query
) -> tuple[BoundOutput, ...]:
    """What the query puts out; ``available`` is what ``*`` stands for."""
    if selector.attributes:
        found = [
            (_output_name(attribute.alias, attribute.expression), attribute.position, attribute)
            for attribute in selector.attributes
        ]
        outputs = [
            (BoundOutput(name, bind_expression(attribute.expression, scope)), position)
            for name, position, attribute in found
        ]
    else:
        position = selector.position if selector.position.line else query.output.position
        outputs = [(BoundOutput(column.name, column), position) for column in available]
    seen: set[str] = set()
    for output, position in outputs:
        if output.name in seen:
            raise MeshError(
                "MESH-L210",
                f'output attribute "{output.name}" is given twice',
                hint="Give one of them another name with 'as'.",
                position=position,
            )
        seen.add(output.name)
    return tuple(output for output, _ in outputs)


def _output_name(alias: str | None, expression: object) -> str:
    if alias is not None:
        return alias
    assert isinstance(expression, Variable), "the parser asks for a name of what is computed"
    return expression.name


def _target(produced: StreamSchema, query: Query, streams: dict[str, StreamSchema]) -> StreamSchema:
    """The stream inserted into; the query's output must have its very attributes."""
    _check_stream_name(produced.name, query.output.position)
    target = streams.setdefault(produced.name, produced)
    if target != produced:
        raise MeshError(
            "MESH-L209",
            f'output does not fit stream "{target.name}"',
            detail=f"It is {_shown(produced)}, and the stream is {_shown(target)}.",
            hint="Names, types and order must be equal; 'as' gives names.",
            position=query.output.position,
        )
    return target
