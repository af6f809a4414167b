"""The tables of an aggregation, by name: ``A_SECONDS``, ``A_MINUTES`` .. with its base values.

A row is that of a bucket that is over, and a group:

    AGG_TIMESTAMP, [AGG_EVENT_TIMESTAMP], group-by columns, latest values,
    [AGG_LAST_EVENT_TIMESTAMP], base values

The columns in brackets are there with ``aggregate by``, the second one if there are latest values.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mesh.language.syntax import TimeUnit
from mesh.model.types import Attribute, AttributeType, StreamSchema
from mesh.plan.bound import AggregateCall, Column, walk

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mesh.plan.bound import BoundAggregation


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
