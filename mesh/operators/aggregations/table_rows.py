"""Rows of the tables of an aggregation by name, ``A_SECONDS`` ..: see ``aggregation_tables``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.functions.objects import ValueSet, object_array, to_binary
from mesh.operators.aggregations.find import closed_cells, written_cells
from mesh.operators.aggregations.layout import LATEST
from mesh.operators.aggregations.values import BaseKind
from mesh.plan.aggregation_tables import EVENT_TIMESTAMP, LAST_EVENT_TIMESTAMP, TIMESTAMP
from mesh.plan.bound import Column

if TYPE_CHECKING:
    from mesh.language.syntax import TimeUnit
    from mesh.operators.aggregations.cells import Cells
    from mesh.operators.aggregations.rollup import Aggregation
    from pyspark_nats.arrow import ArrowArray


def table_rows(
    aggregation: Aggregation, duration: TimeUnit, schema: pa.Schema, *, now_ms: int
) -> pa.RecordBatch:
    """The rows of the table of ``duration``: one for each bucket that is over, and group.

    Of an aggregation in a store they are what its database has.

    Args:
        aggregation: with its present state; what is over at ``now_ms`` is closed.
        duration: one of its durations.
        schema: of the table.
        now_ms: the clock.
    """
    if aggregation.tables is None:
        aggregation.advance(now_ms)
        store = closed_cells(aggregation, duration)
    else:
        store = written_cells(aggregation, duration)
    order = np.lexsort((store.groups, store.buckets))
    cells = store.take(order)
    columns: dict[str, Any] = {
        TIMESTAMP: pa.array(cells.bucket),
        EVENT_TIMESTAMP: pa.array(cells.bucket),
        LAST_EVENT_TIMESTAMP: pa.array(cells.last if len(cells.last) else cells.bucket),
    }
    for place, key in enumerate(aggregation.layout.keys):
        columns[key.name] = _keys(aggregation, place, cells)
    names = base_names(aggregation)
    for number, value in enumerate(aggregation.layout.base):
        for name in names[number]:
            columns[name] = (
                _sets(aggregation, number, cells)
                if value.kind is BaseKind.SET
                else cells.values[number].to_arrow(len(cells))
            )
    arrays = [columns[field.name].cast(field.type, safe=False) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def base_names(aggregation: Aggregation) -> list[list[str]]:
    """By base value the names of its columns: that of its attribute, or of the outputs it is."""
    layout = aggregation.layout
    names = [
        [] if value.kind is BaseKind.LATEST else [name]
        for name, value in zip(layout.names, layout.base, strict=True)
    ]
    for output, name in zip(layout.outputs, aggregation.schema.names[1:], strict=True):
        if isinstance(output, Column) and output.step == LATEST:
            names[int(output.name)].append(name)
    return names


def _keys(aggregation: Aggregation, place: int, cells: Cells) -> ArrowArray:
    return aggregation.groups.values(place).take(cells.group).to_arrow(len(cells))


def _sets(aggregation: Aggregation, number: int, cells: Cells) -> ArrowArray:
    places, values = cells.sets[number]
    members = aggregation.set_values(number)
    lists: list[list[Any]] = [[] for _ in range(len(cells))]
    taken = members.take(values).to_arrow(len(values)).to_pylist()
    for place, value in zip(places.tolist(), taken, strict=True):
        lists[place].append(value)
    return to_binary(object_array([ValueSet(one) for one in lists]))
