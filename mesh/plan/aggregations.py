"""Limits of incremental aggregations: parts that operators can't run yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.errors import not_supported
from mesh.model.types import AttributeType
from mesh.plan.bound import (
    AggregateCall,
    Column,
    has_aggregate,
    operands,
)
from mesh.plan.stores import stored_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.plan.bound import BoundAggregation, BoundExpression

#: Annotations of aggregations with rows in a database that mean nothing without ``@store``.
_SHARED_ROWS: Final = ("partitionbyid", "persistedaggregation")


def check_aggregation(aggregation: BoundAggregation) -> None:
    """Refuse what can't be kept in a database, and outputs that have no value of a bucket.

    Raises:
        MeshError: MESH-P900 at the first such part; MESH-P240 for a wrong option of a store.
    """
    store = stored_in(aggregation)
    for annotation in aggregation.annotations:
        name = annotation.name.lower()
        is_off = (annotation.get("enable") or "").lower() == "false"
        is_here = name == "partitionbyid" and store is not None
        if name in _SHARED_ROWS and not is_off and not is_here:
            raise not_supported(
                f"an aggregation with @{annotation.name}"
                + (" and without @store" if name == "partitionbyid" else ""),
                annotation.position,
                hint="Without it the values are kept in the state of the group.",
            )
    if store is not None:
        _check_stored(aggregation)
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


def _check_stored(aggregation: BoundAggregation) -> None:
    """Refuse values that a table of base values does not have."""
    keys = {column.name for column in aggregation.group_by}
    seen = {name.lower() for name in keys}
    for output in aggregation.outputs:
        expression = output.expression
        if has_aggregate(expression):
            continue
        if expression.type is AttributeType.OBJECT:
            raise not_supported("an object of an aggregation in a store", expression.position)
        if isinstance(expression, Column) and expression.name in keys:
            continue
        if output.name.lower() in seen:
            raise not_supported(
                f'two columns "{output.name}" of an aggregation in a store',
                expression.position,
                hint="Give the attribute another name with 'as'.",
            )
        seen.add(output.name.lower())


def _beside_aggregates(expression: BoundExpression) -> Iterator[Column]:
    """The columns of ``expression`` outside of its aggregators."""
    if isinstance(expression, Column):
        yield expression
    elif not isinstance(expression, AggregateCall):
        for part in operands(expression):
            yield from _beside_aggregates(part)
