"""The tables of an aggregation, by name: ``A_SECONDS``, ``A_MINUTES`` .. with its base values.

A row is that of a bucket that is over, and a group:

    AGG_TIMESTAMP, [AGG_EVENT_TIMESTAMP], group-by columns, latest values,
    [AGG_LAST_EVENT_TIMESTAMP], base values

The columns in brackets are there with ``aggregate by``, the second one if there are latest values.

Joins with an aggregation in a group of several instances: the attributes that divide both.

An instance has the groups of its own keys.  With ``on A.k == S.j`` an event of S finds rows of one
``k`` only.  So it finds all of them where it is if the events of the aggregation are divided by
``k`` and those of S by ``j``: equal values have one virtual partition.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mesh.language.syntax import BinaryOperator, TimeUnit
from mesh.model.types import Attribute, AttributeType, StreamSchema
from mesh.plan.bound import (
    AggregateCall,
    BinaryExpression,
    BoundAggregation,
    BoundJoin,
    BoundPartition,
    BoundQuery,
    BoundStreamFunction,
    Column,
    SourceKind,
    conjuncts,
    walk,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from mesh.plan.bound import BoundApp, BoundStream


TIMESTAMP: Final = "AGG_TIMESTAMP"
EVENT_TIMESTAMP: Final = "AGG_EVENT_TIMESTAMP"
LAST_EVENT_TIMESTAMP: Final = "AGG_LAST_EVENT_TIMESTAMP"
COUNT: Final = "AGG_COUNT"
_WHOLE: Final = (AttributeType.INT, AttributeType.LONG)

#: From short to long.
DURATIONS: Final = (
    TimeUnit.SECOND,
    TimeUnit.MINUTE,
    TimeUnit.HOUR,
    TimeUnit.DAY,
    TimeUnit.MONTH,
    TimeUnit.YEAR,
)

_NAMED: Final = re.compile(
    r"(sec|seconds?|min|minutes?|h|hours?|days?|months?|years?)\Z", re.IGNORECASE
)


def table_name(aggregation: str, duration: TimeUnit) -> str:
    """The name of the table of a duration."""
    return f"{aggregation}_{duration.name}S"


def tables_of(aggregations: Iterable[BoundAggregation]) -> dict[str, StreamSchema]:
    """The tables of aggregations, by name."""
    return {
        table_name(one.schema.name, duration): _schema(one, duration)
        for one in aggregations
        for duration in one.durations
    }


def duration_in(table: str, aggregation: BoundAggregation) -> TimeUnit | None:
    """The duration whose table has this name; None if it is none of the aggregation's."""
    name = aggregation.schema.name
    return next((one for one in aggregation.durations if table_name(name, one) == table), None)


def _schema(aggregation: BoundAggregation, duration: TimeUnit) -> StreamSchema:
    long = AttributeType.LONG
    is_timed = aggregation.aggregate_by is not None
    columns = {TIMESTAMP: long} | ({EVENT_TIMESTAMP: long} if is_timed else {})
    columns |= {column.name: column.type for column in aggregation.group_by}
    latest = latest_outputs(aggregation)
    columns |= latest
    columns |= {LAST_EVENT_TIMESTAMP: long} if is_timed and latest else {}
    for output in aggregation.outputs:
        for part in walk(output.expression):
            if isinstance(part, AggregateCall):
                columns |= base_columns(part)
    attributes = tuple(Attribute(name, type) for name, type in columns.items())
    return StreamSchema(table_name(aggregation.schema.name, duration), attributes)


def latest_outputs(aggregation: BoundAggregation) -> dict[str, AttributeType]:
    """Outputs that are values of the latest event, with their types."""
    keys = {(column.step, column.name) for column in aggregation.group_by}
    return {
        output.name: output.expression.type or AttributeType.OBJECT
        for output in aggregation.outputs
        if not any(isinstance(part, AggregateCall) for part in walk(output.expression))
        and not (
            isinstance(output.expression, Column)
            and (output.expression.step, output.expression.name) in keys
        )
    }


def base_columns(call: AggregateCall) -> dict[str, AttributeType]:
    """The columns of an aggregator's base values, with their types."""
    name = call.function.lower()
    if name == "count":
        return {COUNT: AttributeType.LONG}
    (value,) = call.arguments
    assert isinstance(value, Column), "the binder takes attributes alone"
    if name == "distinctcount":
        return {f"AGG_SET_{value.name}": AttributeType.OBJECT}
    if name in ("min", "max"):
        return {f"AGG_{name.upper()}_{value.name}": value.type}
    total = AttributeType.LONG if value.type in _WHOLE else AttributeType.DOUBLE
    columns = {f"AGG_SUM_{value.name}": total}
    return columns | ({COUNT: AttributeType.LONG} if name == "avg" else {})


def duration_of(text: str) -> TimeUnit | None:
    """The duration that a text names, ``day``, ``DAYS``; None if it names none."""
    if not _NAMED.match(text):
        return None
    if text.lower() == "h":
        return TimeUnit.HOUR
    return next(unit for unit in DURATIONS if text.lower().startswith(unit))


def aggregation_side(query: BoundQuery) -> int | None:
    """The side of a join that is an aggregation, 0 or 1; None if there is none."""
    if not isinstance(query.input, BoundJoin):
        return None
    sides = (query.input.left, query.input.right)
    return next((n for n, one in enumerate(sides) if one.kind is SourceKind.AGGREGATION), None)


def joins_with(
    aggregation: BoundAggregation, element: BoundQuery | BoundPartition | BoundAggregation
) -> Iterator[Mapping[str, str]]:
    """The pairs of attributes that may divide each join of ``element`` with ``aggregation``.

    Pairs are in the order of ``group by``: its attribute, and the attribute of the stream.
    """
    if isinstance(element, BoundAggregation):
        return
    keys: Mapping[str, str] | None = None
    if isinstance(element, BoundPartition):
        keys = {k.stream: k.value.name for k in element.keys if isinstance(k.value, Column)}
    for query in element.queries if isinstance(element, BoundPartition) else (element,):
        place = aggregation_side(query)
        if place is None:
            continue
        assert isinstance(query.input, BoundJoin), "it has sides"
        sides = (query.input.left, query.input.right)
        if sides[place].schema.name != aggregation.schema.name:
            continue
        other = sides[1 - place]
        attributes = _attributes(other)
        if keys is not None:
            attributes = attributes & {keys.get(other.schema.name, "")}
        yield _pairs(query.input, place, attributes, aggregation)


def dividing_attribute(joins: Sequence[Mapping[str, str]]) -> str | None:
    """The first group-by attribute that all ``joins`` may be divided by; None for none."""
    return next((k for k in joins[0] if all(k in one for one in joins)), None) if joins else None


def divided_by(
    aggregation: BoundAggregation,
    elements: Iterable[BoundQuery | BoundPartition | BoundAggregation],
) -> str | None:
    """The attribute that divides the events of ``aggregation`` for the joins of ``elements``."""
    return dividing_attribute([one for e in elements for one in joins_with(aggregation, e)])


def is_divisible(query: BoundQuery) -> bool:
    """Whether each output of a join with an aggregation depends on one event and found rows."""
    place = aggregation_side(query)
    if place is None or query.group_by:
        return False
    assert isinstance(query.input, BoundJoin), "it has sides"
    return replace(query, input=(query.input.right, query.input.left)[place]).is_stateless


def with_divided_joins(app: BoundApp) -> BoundApp:
    """``app`` with ``BoundJoin.divided_by`` in its joins, for one of several partitions."""
    by = {
        one.schema.name: (one, divided_by(one, (*app.queries, *app.partitions)))
        for one in app.aggregations
    }

    def divided(query: BoundQuery, keys: BoundPartition | None = None) -> BoundQuery:
        place = aggregation_side(query)
        if place is None:
            return query
        assert isinstance(query.input, BoundJoin), "it has sides"
        side = (query.input.left, query.input.right)[place]
        aggregation, attribute = by[side.schema.name]
        alone = query if keys is None else replace(keys, queries=(query,))
        (pairs,) = joins_with(aggregation, alone)
        if attribute is None:
            return query
        return replace(query, input=replace(query.input, divided_by=pairs[attribute]))

    return replace(
        app,
        queries=tuple(divided(query) for query in app.queries),
        partitions=tuple(
            replace(p, queries=tuple(divided(query, p) for query in p.queries))
            for p in app.partitions
        ),
    )


def _pairs(
    join: BoundJoin, place: int, attributes: Collection[str], aggregation: BoundAggregation
) -> dict[str, str]:
    """The equalities of ``on`` between a group-by attribute and one of ``attributes``."""
    if join.on is None:
        return {}
    selected = {one.name: one.expression for one in aggregation.outputs}
    pairs: dict[str, str] = {}
    for part in conjuncts(join.on):
        if not isinstance(part, BinaryExpression) or part.operator is not BinaryOperator.EQUAL:
            continue
        for row, event in ((part.left, part.right), (part.right, part.left)):
            if not isinstance(row, Column) or row.step != place:
                continue
            if not isinstance(event, Column) or event.step == place or event.name not in attributes:
                continue
            grouped = selected.get(row.name)
            if isinstance(grouped, Column) and _has_one_text(row.type, event.type):
                pairs.setdefault(grouped.name, event.name)
    return {k.name: pairs[k.name] for k in aggregation.group_by if k.name in pairs}


def _attributes(stream: BoundStream) -> set[str]:
    """The attributes that events of a stream have when they are published."""
    if stream.kind is not SourceKind.STREAM:
        return set()
    added = {a.name for h in stream.handlers if isinstance(h, BoundStreamFunction) for a in h.adds}
    return {a.name for a in stream.schema.attributes} - added


def _has_one_text(one: AttributeType, other: AttributeType) -> bool:
    return one is other is AttributeType.STRING or (one in _WHOLE and other in _WHOLE)
