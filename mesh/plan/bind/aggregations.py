"""Binding of ``define aggregation``, and of ``within`` and ``per`` in queries of aggregations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError, Position
from mesh.functions.catalogue import (
    DOCUMENTED_FUNCTIONS,
    INCREMENTAL_AGGREGATORS,
    SCALARS,
    NameKind,
)
from mesh.language.syntax import Call, StreamKind, Variable
from mesh.model.types import Attribute, AttributeType, StreamSchema
from mesh.plan.aggregation_tables import DURATIONS, duration_of, table_name
from mesh.plan.bound import BoundWithin, Constant
from mesh.plan.diagnostics import nearest, unknown_source
from mesh.plan.expressions import bind_expression, type_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mesh.language.syntax import (
        AggregationDefinition,
        Durations,
        Expression,
        SelectClause,
        TimeUnit,
        WithinRange,
    )
    from mesh.plan.bind.names import AppNames
    from mesh.plan.bound import BoundExpression, Column
    from mesh.plan.expressions import Vocabulary
    from mesh.plan.scopes import Scope

#: Functions that the select clause of an aggregation may call.
AGGREGATION_FUNCTIONS: Final = SCALARS | INCREMENTAL_AGGREGATORS | DOCUMENTED_FUNCTIONS
TIMESTAMP: Final = Attribute("AGG_TIMESTAMP", AttributeType.LONG)

_TIMES: Final = (AttributeType.STRING, AttributeType.LONG)


def durations(written: Durations) -> tuple[TimeUnit, ...]:
    """The durations of an aggregation from short to long; MESH-L225 if there are none."""
    for unit in written.units:
        if unit not in DURATIONS:
            raise MeshError(
                "MESH-L225",
                f"aggregation by {unit}",
                hint=f"It may be by {', '.join(DURATIONS)}.",
                position=written.position,
            )
    places = [DURATIONS.index(unit) for unit in written.units]
    if not written.is_range:
        return tuple(DURATIONS[place] for place in sorted(set(places)))
    first, last = places
    if first > last:
        raise MeshError(
            "MESH-L225",
            f"durations from {written.units[0]} to {written.units[1]}",
            hint=f"They go from short to long: {written.units[1]}...{written.units[0]}.",
            position=written.position,
        )
    return DURATIONS[first : last + 1]


def check_table_names(
    definition: AggregationDefinition, every: Iterable[TimeUnit], names: AppNames
) -> None:
    """Refuse a definition with the name of one of the aggregation's tables; MESH-L209."""
    for duration in every:
        name = table_name(str(definition.name), duration)
        other = names.find(name)
        if other is not None:
            raise MeshError(
                "MESH-L209",
                f'{other.kind} "{name}" has the name of a table of aggregation "{definition.name}"',
                detail=f"The aggregation keeps its values by {duration} there.",
                hint="Give one of them another name.",
                position=other.position,
            )


def check_time(column: Column, position: Position) -> None:
    """Refuse an ``aggregate by`` that is no time; MESH-L225."""
    if column.type not in _TIMES:
        raise MeshError(
            "MESH-L225",
            f"'aggregate by' takes a long or a string, not {column.type}",
            hint="A long is milliseconds; a string is like '2019-10-07 10:00:00'.",
            position=position,
        )


def refuse_prefix(variable: Variable) -> None:
    """Refuse ``group by S.a``, as the engine does; MESH-L203."""
    if variable.source is not None and variable.kind is not StreamKind.INNER:
        raise unknown_source(variable, [], f"Write group by {variable.name}.")


def without_prefixes(selector: SelectClause, vocabulary: Vocabulary) -> SelectClause:
    """The selector as the engine reads it: it passes over ``S.`` in ``select sum(S.a) as x``."""
    attributes = tuple(
        replace(one, expression=_bare(one.expression, vocabulary)) for one in selector.attributes
    )
    return replace(selector, attributes=attributes)


def _bare(expression: Expression, vocabulary: Vocabulary) -> Expression:
    if not isinstance(expression, Call) or expression.namespace is not None:
        return expression
    signature = vocabulary.functions.get(expression.name)
    if signature is None or signature.kind is not NameKind.AGGREGATOR:
        return expression
    arguments = tuple(
        Variable(one.name, position=one.position) if isinstance(one, Variable) else one
        for one in expression.arguments
    )
    return replace(expression, arguments=arguments)


def result_schema(name: str, outputs: StreamSchema) -> StreamSchema:
    """Schema of the rows that a query finds in an aggregation: the time, and its outputs."""
    others = tuple(a for a in outputs.attributes if a.name != TIMESTAMP.name)
    return StreamSchema(name, (TIMESTAMP, *others))


def bind_within(
    written: WithinRange | None, scope: Scope, names: AppNames, position: Position
) -> BoundWithin:
    """The requested span of time; MESH-L226 if there is none or it is no time."""
    if written is None:
        raise _missing("within", position)
    start = bind_expression(written.start, scope, names.vocabulary)
    if written.end is None:
        if start.type is not AttributeType.STRING:
            raise _no_time(
                f"'within' of one value takes a string, not {start.type}",
                written.start,
                "Write '2019-10-** **:**:**'; or two values, the start and the end.",
            )
        return BoundWithin(start)
    end = bind_expression(written.end, scope, names.vocabulary)
    for bound, expression in ((start, written.start), (end, written.end)):
        if type_of(bound) not in _TIMES:
            raise _no_time(
                f"'within' takes strings and longs, not {bound.type}",
                expression,
                "A long is milliseconds, written 1569888000000L.",
            )
    return BoundWithin(start, end)


def bind_per(
    written: Expression | None, scope: Scope, names: AppNames, position: Position
) -> BoundExpression:
    """The requested duration; MESH-L226 if there is none or it is no duration."""
    if written is None:
        raise _missing("per", position)
    per = bind_expression(written, scope, names.vocabulary)
    if per.type is not AttributeType.STRING:
        raise _no_time(f"'per' takes a string, not {per.type}", written, "Write per 'days'.")
    if isinstance(per, Constant) and duration_of(str(per.value)) is None:
        units = ("seconds", "minutes", "hours", "days", "months", "years")
        near = nearest(str(per.value), units)
        raise _no_time(
            f"'per' knows no '{per.value}'", written, near or f"It is one of {', '.join(units)}."
        )
    return per


def _missing(what: str, position: Position) -> MeshError:
    return MeshError(
        "MESH-L226",
        f"an aggregation is asked without '{what}'",
        hint="Write within '2019-10-** **:**:**' per 'days'.",
        position=position,
    )


def _no_time(message: str, expression: Expression, hint: str) -> MeshError:
    return MeshError("MESH-L226", message, hint=hint, position=expression.position)
