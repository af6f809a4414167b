"""Answers about aggregations in a store: the state that a step leaves, with the rows written."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from mesh.operators.aggregations.rollup import Aggregation
from mesh.operators.on_demand import answer, stores_of
from mesh.store.reader import read_rows
from mesh.store.sources import database

if TYPE_CHECKING:
    import pyarrow as pa

    from mesh.language.syntax import TimeUnit
    from mesh.operators.aggregations.tables import AggregationTables
    from mesh.operators.executor import Executor
    from mesh.plan.bound import BoundApp, BoundOnDemandQuery


def answer_with_rows(
    app: BoundApp, executor: Executor, query: BoundOnDemandQuery, now_ms: int
) -> pa.RecordBatch:
    """The rows of a query of an aggregation in a store, as a worker's query process finds them."""
    stores = stores_of(app, executor.snapshot(), executor.places, query.reads)
    for one in stores.aggregations.values():
        cells = one.cells
        if isinstance(cells, Aggregation) and cells.tables is not None:
            cells.find_rows = partial(
                _rows, cells.tables, executor.producer, executor.outputs_count
            )
    return answer(query, stores, now_ms)


def _rows(
    tables: AggregationTables, producer: str, position: int, per: TimeUnit, start: int, end: int
) -> list[pa.RecordBatch]:
    where = database(tables.target.options)
    return read_rows(where, tables.of(per), (start, end), producer, position)
