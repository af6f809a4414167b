"""Schema of a query's output rows: names and types of their attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.model.types import Attribute, AttributeType, StreamSchema
from mesh.plan.bound import Delete, Update

if TYPE_CHECKING:
    from mesh.plan.bound import BoundQuery


def output_schema(query: BoundQuery) -> StreamSchema:
    """The schema of the output: an insert has that of its target, a delete or update its own."""
    if not isinstance(query.action, Delete | Update):
        return query.target
    return StreamSchema(
        query.target.name,
        tuple(
            # A bare null has no type; no comparison with it holds, for any type given.
            Attribute(output.name, output.expression.type or AttributeType.BOOL)
            for output in query.outputs
        ),
    )
