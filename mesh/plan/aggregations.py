"""Limits of incremental aggregations: parts that operators can't run yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.errors import not_supported
from mesh.model.types import AttributeType
from mesh.plan.bound import AggregateCall, Column, has_aggregate, operands

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.plan.bound import BoundAggregation, BoundExpression

#: Annotations of aggregations with rows in a database.
_SHARED_ROWS: Final = ("store", "partitionbyid", "persistedaggregation")


def check_aggregation(aggregation: BoundAggregation) -> None:
    """Refuse an aggregation in a database, and outputs that have no value of a bucket.

    Raises:
        MeshError: MESH-P900 at the first such part.
    """
    for annotation in aggregation.annotations:
        is_off = (annotation.get("enable") or "").lower() == "false"
        if annotation.name.lower() in _SHARED_ROWS and not is_off:
            raise not_supported(
                f"an aggregation with @{annotation.name}",
                annotation.position,
                hint="Without it the values are kept in the state of the group.",
            )
    if any(column.type is AttributeType.OBJECT for column in aggregation.group_by):
        raise not_supported("group by an object", aggregation.position)
    keys = {column.name for column in aggregation.group_by}
    for output in aggregation.outputs:
        if isinstance(output.expression, AggregateCall) or not has_aggregate(output.expression):
            continue
        for part in _beside_aggregates(output.expression):
            if part.name not in keys:
                raise not_supported(
                    f'attribute "{part.name}" beside an aggregator',
                    part.position,
                    hint="An attribute that is not grouped by has no value of a bucket: "
                    "select it on its own, then it is that of the latest event.",
                )


def _beside_aggregates(expression: BoundExpression) -> Iterator[Column]:
    """The columns of ``expression`` outside of its aggregators."""
    if isinstance(expression, Column):
        yield expression
    elif not isinstance(expression, AggregateCall):
        for part in operands(expression):
            yield from _beside_aggregates(part)
