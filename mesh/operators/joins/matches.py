"""Rows that the events of one side of a join found on the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.operators.base import RESET

if TYPE_CHECKING:
    from mesh.functions.vectors import Mask
    from mesh.operators.base import EventBatch, Longs


@dataclass(frozen=True, slots=True)
class JoinMatches:
    """Events of one side and their matches.

    ``row``: int64[m], growing, the event of each pair; ``place``: int64[m], the row of ``theirs``
    beside it, -1 for none.  An event that resets is in a pair with no row.
    """

    step: int
    events: EventBatch
    row: Longs
    place: Longs
    theirs: pa.RecordBatch
    #: int64[n, 2], the start and the end of the span that each event asks an aggregation for.
    spans: Longs | None = None

    def rows(self, step: int, schema: pa.Schema) -> tuple[pa.RecordBatch, Mask]:
        """The rows of side ``step`` in the pairs, nulls for missing ones, and a mask of those."""
        if step == self.step:
            rows, place = self.events.rows.select(schema.names), self.row
            none = self.events.kind[self.row] == RESET
        else:
            rows, place, none = self.theirs, self.place, self.place < 0
        if not rows.num_rows or not schema.names:
            return nothing(schema, len(place)), none
        index: Any
        if none.any():
            index = pa.array(np.where(none, 0, place), mask=none)
            rows = rows.take(index)
        elif len(place) != rows.num_rows or (place != np.arange(len(place))).any():
            index = pa.array(place)
            rows = rows.take(index)
        return rows if rows.schema == schema else rows.cast(schema), none


def nothing(schema: pa.Schema, count: int) -> pa.RecordBatch:
    """Rows of nulls."""
    nulls: list[pa.Array[Any]] = [pa.nulls(count, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(nulls, schema=schema)
