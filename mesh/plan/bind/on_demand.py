"""Binding of on-demand queries: they read or change tables, windows and aggregations of an app."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError, Position
from mesh.language.syntax import InsertInto, ReturnEvents
from mesh.plan.aggregation_tables import duration_in, duration_of, tables_of
from mesh.plan.bind.aggregations import bind_per, bind_within
from mesh.plan.bind.names import AppNames, NamedDefinition
from mesh.plan.bind.selection import Selection, bind_action, bind_selection
from mesh.plan.bound import AnswerOutput, BoundOnDemandQuery, BoundStore, Constant, SourceKind
from mesh.plan.diagnostics import Diagnostics, TooManyErrors, nearest, shortened
from mesh.plan.expressions import bind_condition
from mesh.plan.scopes import InputScope, NamedSource, Sources, by_name

if TYPE_CHECKING:
    from mesh.language.syntax import OnDemandQuery, StoreInput
    from mesh.model.types import StreamSchema
    from mesh.plan.bound import Action, BoundAggregation, BoundApp, BoundExpression

_NO_PLACE: Final = Position(1, 1)
_ANSWER: Final = "query"
#: ``2019-10-** **:**:**``: a year, then parts that may be stars from some part on.
_SPAN: Final = re.compile(
    r"\d{4}-(?:\*\*-\*\* \*\*:\*\*:\*\*|\d\d-(?:\*\* \*\*:\*\*:\*\*|\d\d (?:\*\*:\*\*:\*\*"
    r"|\d\d:(?:\*\*:\*\*|\d\d:(?:\*\*|\d\d)))))(?: ?[+-]\d\d:\d\d)?\s*\Z"
)


def bind_on_demand(query: OnDemandQuery, app: BoundApp) -> BoundOnDemandQuery:
    """Resolve every name and type of ``query``.

    Args:
        query: as parsed.
        app: the app that it reads.

    Raises:
        MeshError: MESH-L2xx for a name that is not defined or a part that doesn't fit;
            ``MeshErrors`` for several.
    """
    problems, names = Diagnostics(), _names(app)
    bound = None
    with contextlib.suppress(TooManyErrors):
        bound = _bind(query, app, names, problems)
    problems.raise_any()
    assert bound is not None, "what could not be bound has been told"
    return bound


def _names(app: BoundApp) -> AppNames:
    names = AppNames()
    for stream in app.streams:
        names.streams[stream.name] = NamedDefinition(SourceKind.STREAM, stream, _NO_PLACE)
    for table in app.tables:
        names.tables[table.schema.name] = NamedDefinition(
            SourceKind.TABLE, table.schema, table.position
        )
    for window in app.windows:
        schema = window.schema
        names.windows[schema.name] = NamedDefinition(SourceKind.WINDOW, schema, window.position)
    for one in app.aggregations:
        definition = NamedDefinition(SourceKind.AGGREGATION, one.schema, one.position)
        names.aggregations[one.schema.name] = definition
    for name, schema in tables_of(app.aggregations).items():
        names.aggregations[name] = NamedDefinition(SourceKind.AGGREGATION, schema, _NO_PLACE)
    names.add_scripts((script.name, script.type) for script in app.scripts)
    return names


def _bind(
    query: OnDemandQuery, app: BoundApp, names: AppNames, problems: Diagnostics
) -> BoundOnDemandQuery | None:
    source = NamedSource("", {})
    origin: tuple[SourceKind, StreamSchema] | None = None
    if query.input is not None:
        written = query.input
        origin = problems.attempt(_readable, written, names)
        if origin is None:
            return None
        # The engine takes an alias and knows the store by its name alone.
        attributes = by_name(origin[1].attributes)
        source = NamedSource(origin[1].name, attributes, written.alias, keeps_name=True)
    scope = InputScope(Sources([source]), names.is_defined)
    store = None
    if query.input is not None and origin is not None:
        store = _store(query.input, origin, app, scope, names, problems)
    selects = bool(query.selector.attributes) or query.input is not None
    output = query.output
    target = _ANSWER if isinstance(output, ReturnEvents) else ""
    if isinstance(output, InsertInto):
        target = output.stream.name
    selection: Selection | None = Selection((), (), None, (), None, None)
    if selects:
        selection = bind_selection(
            query.selector,
            scope,
            names.vocabulary,
            problems,
            output=target,
            reads_input=True,
            position=query.position,
        )
    if selection is None:
        return None
    produced = selection.schema(target)
    action = problems.attempt(_action, query, produced, names)
    if action is None:
        return None
    return BoundOnDemandQuery(
        store,
        selection.outputs,
        selection.group_by,
        selection.having,
        action,
        selection.order_by,
        selection.limit,
        selection.offset,
    )


def _action(query: OnDemandQuery, produced: StreamSchema, names: AppNames) -> Action:
    output = query.output
    if isinstance(output, ReturnEvents):
        return AnswerOutput(produced, position=output.position)
    if isinstance(output, InsertInto):
        names.table(output.stream.name, output.stream.position)
    return bind_action(output, produced, names, bare_is_table=not query.selector.attributes)


def _readable(written: StoreInput, names: AppNames) -> tuple[SourceKind, StreamSchema]:
    name = written.store.name
    stores = {**names.windows, **names.tables, **names.aggregations}
    definition = stores.get(name)
    if definition is None or definition.schema is None:
        other = names.find(name)
        message = f'"{name}" is no table, window or aggregation'
        raise MeshError(
            "MESH-L217",
            f"{message}, it is a {other.kind}" if other is not None else message,
            detail=f"There are {shortened(stores)}." if stores else "The app has none of them.",
            hint=nearest(name, stores),
            position=written.store.position,
        )
    return definition.kind, definition.schema


def _store(
    written: StoreInput,
    origin: tuple[SourceKind, StreamSchema],
    app: BoundApp,
    scope: InputScope,
    names: AppNames,
    problems: Diagnostics,
) -> BoundStore:
    kind, schema = origin
    on = within = per = None
    if written.on is not None:
        condition = written.on
        on = problems.attempt(bind_condition, condition, scope, names.vocabulary, "'on'")
    at = written.store.position
    table_of = next(
        (
            (one.schema.name, duration)
            for one in app.aggregations
            if (duration := duration_in(schema.name, one)) is not None
        ),
        None,
    )
    if kind is SourceKind.AGGREGATION and table_of is None:
        aggregation = next(one for one in app.aggregations if one.schema.name == schema.name)
        within = problems.attempt(bind_within, written.within, scope, names, at)
        per = problems.attempt(bind_per, written.per, scope, names, at)
        if within is not None and within.end is None:
            problems.attempt(_check_span, within.start)
        if per is not None:
            problems.attempt(_check_per, per, aggregation)
    elif written.within is not None or written.per is not None:
        problems.add(
            MeshError(
                "MESH-L226",
                f"'within' and 'per' of a {kind if table_of is None else 'table'}",
                hint="They say which rows of an aggregation are meant; use 'on' here.",
                position=written.within.position if written.within is not None else at,
            )
        )
    return BoundStore(schema, kind, on, within, per, table_of, position=at)


def _check_span(span: BoundExpression) -> None:
    if isinstance(span, Constant) and not _SPAN.match(str(span.value)):
        raise MeshError(
            "MESH-L226",
            f"'within' can't read '{span.value}'",
            hint="Write '2019-10-** **:**:**': a year, and stars for all of a part.",
            position=span.position,
        )


def _check_per(per: BoundExpression, aggregation: BoundAggregation) -> None:
    if not isinstance(per, Constant):
        return
    duration = duration_of(str(per.value))
    if duration not in aggregation.durations:
        raise MeshError(
            "MESH-L226",
            f'aggregation "{aggregation.schema.name}" is not kept by {duration}',
            detail=f"It is kept by {', '.join(aggregation.durations)}.",
            position=per.position,
        )
