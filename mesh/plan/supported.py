"""Supported language: parts that the runtime doesn't run are refused, each with its position.

The supported parts are listed, and all others are refused, so no new part passes by accident.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Final

from mesh.connect.contract import library
from mesh.errors import MeshError, not_supported
from mesh.functions.catalogue import (
    AGGREGATORS,
    DOCUMENTED_FUNCTIONS,
    DOCUMENTED_STREAM_FUNCTIONS,
    DOCUMENTED_WINDOWS,
    OF_RIVER,
    SCALARS,
    STATEFUL_FUNCTIONS,
    STATEFUL_STREAM_FUNCTIONS,
    STATEMENTS,
    STREAM_FUNCTIONS,
    WINDOWS,
    NameKind,
    Requirement,
    instead_of_call,
)
from mesh.functions.cron import check_cron
from mesh.functions.geometry import OF_AREAS
from mesh.functions.scripts import compile_script
from mesh.language.memo import memoized
from mesh.language.syntax import BinaryOperator, EventKind, RateKind, find
from mesh.model import names
from mesh.model.types import AttributeType
from mesh.plan.bound import (
    AggregateCall,
    BinaryExpression,
    BoundFilter,
    BoundJoin,
    BoundPattern,
    BoundStream,
    BoundStreamFunction,
    Column,
    Constant,
    Delete,
    EventIsNull,
    FunctionCall,
    SourceKind,
    TableCheck,
    UnaryExpression,
    Update,
    Window,
    operands,
    walk,
)
from mesh.plan.connectors import check_connector, connector_of
from mesh.plan.dependencies import OF_MODELS, models_of
from mesh.plan.diagnostics import Diagnostics, TooManyErrors
from mesh.plan.limits import check_aggregation, check_pattern
from mesh.plan.stores import stored_table_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from mesh.errors import Position
    from mesh.language.syntax import Annotation
    from mesh.model.types import StreamSchema
    from mesh.plan.bound import (
        BoundAggregation,
        BoundApp,
        BoundExpression,
        BoundHandler,
        BoundPartition,
        BoundQuery,
        BoundScript,
        BoundTrigger,
    )
    from mesh.plan.dependencies import ModelCall

#: Later passes recurse once for each level of an expression.
_LEVELS_MAX: Final = 200
_FUNCTIONS: Final = frozenset(
    s.bound_name for s in (*SCALARS.values(), *DOCUMENTED_FUNCTIONS.values()) if s.runs
)
_AGGREGATORS: Final = frozenset(
    s.bound_name
    for s in (*AGGREGATORS.values(), *DOCUMENTED_FUNCTIONS.values())
    if s.runs and s.kind is NameKind.AGGREGATOR
)
#: Functions with a state are handlers, but where they can't be.
_STREAM_FUNCTIONS: Final = STREAM_FUNCTIONS | DOCUMENTED_STREAM_FUNCTIONS | STATEFUL_FUNCTIONS
_UNLIFTED: Final = {s.bound_name: s.name for s in STATEFUL_FUNCTIONS.values()}
#: Stream functions that keep events.
_PROCESSORS: Final = frozenset(STATEFUL_STREAM_FUNCTIONS)
#: Those that only plain queries have: they keep events, share a model with other queries, or are
#: planned as connectors (``mesh.plan.outside_calls``).
_ALONE: Final = _PROCESSORS | OF_MODELS | set(STATEMENTS)
_WINDOWS: Final = WINDOWS | DOCUMENTED_WINDOWS
_ARITHMETIC: Final = frozenset(map(BinaryOperator, "+-*/%"))
#: Inputs that deliver events to a query.
EVENT_SOURCES: Final = frozenset(SourceKind) - {SourceKind.TABLE, SourceKind.AGGREGATION}
_STREAM_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z_0-9]*\Z")
_CONNECTIONS: Final = ("store", "map")
_NAME_HINT: Final = (
    "Use letters, digits and '_', and no digit first; 'mesh migrate FILE' writes it so."
)
#: Last tokens of the subjects of on-demand queries.
_QUERIES: Final = (names.QUERY, names.CHANGE)


def check_supported(app: BoundApp) -> None:
    """Refuse parts of ``app`` that don't run yet.

    Raises:
        MeshError: all such parts, with MESH-P900; MESH-P201 for ``@dist`` on a stream; MESH-P214
            for the name of a stream that can't be part of a subject.
    """
    problems = Diagnostics()
    with contextlib.suppress(TooManyErrors):
        _check_definitions(app, problems)
        for stream_name, annotation in app.stream_annotations:
            problems.attempt(_check_stream_annotation, annotation, app.stream(stream_name))
        for query in app.queries:
            problems.attempt(_check_query, query)
        for partition in app.partitions:
            problems.attempt(_check_partition, partition)
        problems.attempt(_check_models, app)
        positions = dict(app.stream_positions)
        for stream in app.streams:
            problems.attempt(_check_stream_name, stream.name, positions.get(stream.name))
    problems.raise_any()


def _check_models(app: BoundApp) -> None:
    """Refuse models that nothing trains, and calls that don't fit to their training."""
    queries = [*app.queries, *(query for part in app.partitions for query in part.queries)]
    calls = [call for query in queries for call in models_of(query)]
    trained = {(call.family, call.name): call for call in calls if call.trains}
    for call in calls:
        training = trained.get((call.family, call.name))
        what = f'stream function {call.call.name} of model "{call.name}"'
        if training is None:
            raise not_supported(
                f"{what}, which no query trains",
                call.call.position,
                hint=f"Add a query with #{call.family}('{call.name}', ..) to this app.",
            )
        features, other = (_features(one) for one in (call, training))
        if features != other:
            raise not_supported(
                f"{what} with {features} features",
                call.call.position,
                hint=f"The query that trains it has {other}.",
            )


def _features(call: ModelCall) -> int:
    """The number of features; a call that trains has the target as well."""
    attributes = sum(not isinstance(one, Constant) for one in call.call.arguments)
    return attributes - 1 if call.trains else attributes


def _check_definitions(app: BoundApp, problems: Diagnostics) -> None:
    for table in app.tables:
        problems.attempt(stored_table_of, table)
    for window in app.windows:
        problems.attempt(_check_window, window.window)
    plays_back = find(app.annotations, "app:playback") is not None
    for trigger in app.triggers:
        problems.attempt(_check_trigger, trigger, plays_back=plays_back)
    for script in app.scripts:
        problems.attempt(_check_script, script)
    for aggregation in app.aggregations:
        problems.attempt(_check_aggregation, aggregation)


def _check_trigger(trigger: BoundTrigger, *, plays_back: bool) -> None:
    if plays_back and (trigger.schedule or "").lower() != "start":
        raise not_supported(
            "a trigger by time in playback",
            trigger.position,
            hint="Leave @App:playback out: windows go by the time of events anyway.",
        )
    if trigger.schedule is not None and trigger.schedule.lower() != "start":
        check_cron(trigger.schedule, trigger.position)


def _check_aggregation(aggregation: BoundAggregation) -> None:
    check_aggregation(aggregation)
    _check_stream(aggregation.input)
    for handler in aggregation.input.handlers:
        _refuse_processor(handler, "in an aggregation", _ALONE)
    for output in aggregation.outputs:
        _check_expression(output.expression)


def _check_script(script: BoundScript) -> None:
    if script.language not in ("javascript", "python"):
        raise not_supported(
            f"functions in {script.language} (define function)",
            script.position,
            hint="Write it in JavaScript or Python: "
            "define function f[javascript] return int { return data[0]; }.",
        )
    compile_script(script)


def _name_hint(name: str) -> str:
    if name.startswith("#"):
        return "Streams with '#' are inside of a partition: leave it out, or write one."
    return "It is the subject of on-demand queries." if name in _QUERIES else _NAME_HINT


def _check_stream_name(name: str, position: Position | None) -> None:
    # Fault streams never leave their group.
    if not name.startswith("!") and (not _STREAM_NAME.match(name) or name in _QUERIES):
        raise MeshError(
            "MESH-P214",
            f'stream name "{name}" can\'t be part of a subject',
            hint=_name_hint(name),
            position=position,
        )


# Annotations.  Those that the engine has for its own threads and reports (``@Async``,
# ``@App:statistics``) mean nothing here and pass, as unknown ones do there.


def _check_stream_annotation(annotation: Annotation, stream: StreamSchema) -> None:
    name = annotation.name.lower()
    if name in ("source", "sink"):
        check_connector(connector_of(annotation), stream)
    if name in _CONNECTIONS:
        raise not_supported(
            f"@{annotation.name}",
            annotation.position,
            hint="Publish events to the stream's subject, and subscribe to it.",
        )
    if name == "dist":
        raise MeshError(
            "MESH-P201",
            "@dist precedes a stream",
            hint="Put it before the query's 'from'.",
            position=annotation.position,
        )


# Queries


def _check_partition(partition: BoundPartition) -> None:
    for key in partition.keys:
        for part in (key.value, *(one.condition for one in key.ranges)):
            if part is not None:
                _check_expression(part)
    for query in partition.queries:
        _check_query(query)


@memoized
def _check_query(query: BoundQuery) -> None:
    source = query.input
    match source:
        case BoundStream():
            _check_stream(source)
        case BoundPattern():
            _check_pattern(source)
        case BoundJoin():
            _check_join(source)
    for output in query.outputs:
        _check_expression(output.expression)
    for column in query.group_by:
        _check_expression(column)
    if query.having is not None:
        _check_expression(query.having)
    for order in query.order_by:
        if order.column.type is AttributeType.OBJECT:
            raise not_supported("order by an object", order.position)
    rate = query.rate
    if rate is not None and rate.kind is RateKind.SNAPSHOT and query.events is EventKind.EXPIRED:
        raise not_supported(
            "a snapshot of expired events",
            rate.position,
            hint="A snapshot shows what is in the window: insert current or all events.",
        )
    action = query.action
    if isinstance(action, Delete | Update):
        _check_condition(action.on, "the condition of a table's rows")
    if isinstance(action, Update):
        for assignment in action.assignments:
            _check_expression(assignment.value)
    # In joins, an input without a window expires each event at once.
    has_window = isinstance(source, BoundJoin) or (
        isinstance(source, BoundStream)
        and (source.window is not None or source.kind is SourceKind.WINDOW)
    )
    if query.events is EventKind.EXPIRED and not has_window:
        raise not_supported(
            "expired events of a query without a window",
            action.position,
            hint="Events expire by leaving a window, so the query would emit nothing: add one, "
            "or leave 'expired events' out.",
        )


def _article(kind: SourceKind) -> str:
    return f"{'an' if kind[0] in 'ai' else 'a'} {kind}"


def _check_stream(source: BoundStream) -> None:
    if source.kind not in EVENT_SOURCES:
        raise not_supported(f"reading {_article(source.kind)}", source.position)
    for place, handler in enumerate(source.handlers):
        _check_handler(handler)
        is_late = any(isinstance(earlier, Window) for earlier in source.handlers[:place])
        if is_late or source.kind is SourceKind.WINDOW:
            _refuse_processor(handler, "after a window", _PROCESSORS)


def _refuse_processor(handler: BoundHandler, where: str, names: Collection[str]) -> None:
    """Refuse a stream function with a state where its operator can't run."""
    if isinstance(handler, BoundStreamFunction) and handler.name in names:
        raise not_supported(
            f"stream function {handler.name} {where}",
            handler.position,
            hint="Put it into an earlier query that inserts into a stream of its own.",
        )


def _check_join(source: BoundJoin) -> None:
    for side in (source.left, source.right):
        for handler in side.handlers:
            _check_handler(handler)
            _refuse_processor(handler, "in a join", _ALONE)
        if side.kind is SourceKind.AGGREGATION and side.handlers:
            raise not_supported("a filter of an aggregation", side.position)
    if source.on is not None:
        _check_condition(source.on, "'on'")
    within = source.within
    for part in (within.start, within.end) if within is not None else ():
        if part is not None:
            _check_expression(part)
    if source.per is not None:
        _check_expression(source.per)


def _check_handler(handler: BoundHandler) -> None:
    match handler:
        case BoundFilter():
            _check_condition(handler.condition, "a filter")
        case Window():
            _check_window(handler)
        case BoundStreamFunction():
            if not _STREAM_FUNCTIONS[handler.name].runs:
                raise _absent(f"stream function {handler.name}", handler.name, handler.position)
            if handler.name in OF_RIVER:
                library("river", "ml")
            for argument in handler.arguments:
                _check_expression(argument)


def _check_window(window: Window) -> None:
    signature = _WINDOWS.get(window.name)
    if signature is None or not signature.runs:
        raise _absent(f"windows of kind {window.name}", window.name, window.position)
    if window.fails is not None:
        raise not_supported("a window that never works", window.position, hint=window.fails)
    parameters = signature.overloads[0].parameters
    for parameter, argument in zip(parameters, window.arguments, strict=False):
        if parameter.requires is not None:
            _check_requirement(parameter.requires, argument)


def _check_requirement(requirement: Requirement, argument: BoundExpression) -> None:
    value = argument.value if isinstance(argument, Constant) else None
    match requirement:
        case Requirement.CRON:
            if value is not None:
                check_cron(str(value), argument.position)
        case Requirement.NOT_NEGATIVE:
            if not isinstance(value, int) or value < 0:
                raise not_supported(
                    "a window of a time shorter than nothing",
                    argument.position,
                    hint="Write #window.time(2 min), or milliseconds: #window.time(120000).",
                )


def _check_pattern(source: BoundPattern) -> None:
    for step in source.steps:
        if step.kind not in EVENT_SOURCES:
            raise not_supported(f"reading {_article(step.kind)}", step.position)
        for handler in step.handlers:
            _check_handler(handler)
    check_pattern(source)


def _absent(what: str, name: str, position: Position) -> MeshError:
    """The refusal of an extension of the original that does not run."""
    return not_supported(what, position, hint=instead_of_call(name))


# Expressions


def _check_condition(condition: BoundExpression, where: str) -> None:
    _check_expression(condition)
    for part in walk(condition):
        if isinstance(part, AggregateCall):
            raise not_supported(
                f"an aggregator in {where}",
                part.position,
                hint="Compute it in 'select', and test it in 'having' by its name.",
            )


def _check_expression(root: BoundExpression) -> None:
    """Refuse expressions that can't be computed."""
    pending = [(root, 1)]
    while pending:
        part, level = pending.pop()
        if level > _LEVELS_MAX:
            raise not_supported(f"expressions of more than {_LEVELS_MAX} levels", root.position)
        _check_part(part)
        pending.extend((operand, level + 1) for operand in reversed(operands(part)))


def _check_part(part: BoundExpression) -> None:
    match part:
        case Constant() | UnaryExpression() | Column() | TableCheck():
            pass
        case EventIsNull():
            if part.step is None:
                raise not_supported("'is null' of what the query does not read", part.position)
        case BinaryExpression():
            _check_arithmetic(part)
        case FunctionCall():
            if not part.is_script and part.function not in _FUNCTIONS:
                raise _absent(f"function {part.function}", part.function, part.position)
            if part.function in _UNLIFTED:
                raise not_supported(
                    f'function "{_UNLIFTED[part.function]}" in this place',
                    part.position,
                    hint="Call it in the select clause of a query over one stream, outside of "
                    "conditions, and without aggregators among its arguments.",
                )
            if part.function in OF_AREAS:
                library("shapely", "geo")
            if part.fails is not None:
                raise not_supported("a call that always fails", part.position, hint=part.fails)
        case AggregateCall():
            if part.function not in _AGGREGATORS:
                raise _absent(f"aggregator {part.function}", part.function, part.position)


def _check_arithmetic(part: BinaryExpression) -> None:
    if part.operator not in _ARITHMETIC:
        return
    for operand in (part.left, part.right):
        if operand.type is None or not operand.type.is_numeric:
            raise not_supported(
                f"'{part.operator}' with {operand.type}",
                part.position,
                hint="The reference engine takes it, and then fails at every event.",
            )
