"""Rows for a database: merged by key, sorted, and as values of the drivers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from mesh.model.stored import NULL_KEYS, UNFIT, Backend, MergeRule
from mesh.model.types import AttributeType
from mesh.store.values import column_of
from pyspark_nats.arrow import ArrowArray, kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.model.stored import StoredColumn, StoredTable
    from mesh.model.values import Row

_FUNCTIONS: Final = {
    MergeRule.SUM: "sum",
    MergeRule.MIN: "min",
    MergeRule.MAX: "max",
    MergeRule.LATEST: "last",
    MergeRule.LAST: "last",
}


def merged(rows: pa.RecordBatch, table: StoredTable) -> pa.RecordBatch:
    """One row for each key, in the order of keys: writers that share rows lock them in one order.

    Equal keys are merged as in the database, in the order of ``rows``.
    """
    keys = [column.name for column in table.keys]
    whole = pa.Table.from_batches([rows])
    columns = [
        _key_values(whole.column(column.name).combine_chunks(), column) for column in table.keys
    ]
    columns += [whole.column(column.name).combine_chunks() for column in table.values]
    whole = pa.Table.from_arrays(columns, names=[c.name for c in (*table.keys, *table.values)])
    last = next((c.name for c in table.values if c.merge is MergeRule.LAST), None)
    if last is not None:
        order = np.argsort(whole.column(last).to_numpy(), kind="stable")
        whole = whole.take(order)
    options: Any = kernels.ScalarAggregateOptions(skip_nulls=False)
    aggregations = [
        (c.name, _FUNCTIONS[c.merge], options if c.merge is MergeRule.LATEST else None)
        for c in table.values
    ]
    grouped: Any = whole.group_by(keys, use_threads=False)
    result = grouped.aggregate(aggregations)
    names = {f"{name}_{function}": name for name, function, _ in aggregations}
    result = result.rename_columns([names.get(name, name) for name in result.column_names])
    result = result.sort_by([(name, "ascending") for name in keys])
    chosen = result.select([column.name for column in table.columns]).combine_chunks()
    batches = chosen.to_batches()
    return batches[0] if batches else rows.slice(0, 0)


def values(rows: pa.RecordBatch, backend: Backend) -> list[Row]:
    """Rows as tuples; a number that the database does not have is null."""
    columns = []
    for column in rows.columns:
        listed = column.to_pylist()
        if backend is not Backend.POSTGRESQL and pa.types.is_floating(column.type):
            listed = [None if v is not None and not math.isfinite(v) else v for v in listed]
        columns.append(listed)
    return list(zip(*columns, strict=True))


def _key_values(array: ArrowArray, column: StoredColumn) -> ArrowArray:
    if column.type is AttributeType.BOOL:
        array = array.cast(pa.int16())
    filled: ArrowArray = kernels.fill_null(array, NULL_KEYS[column.type])
    if pa.types.is_floating(filled.type):
        # Databases have one zero and one NaN, and a statement writes a key once.
        numbers = filled.to_numpy(zero_copy_only=False) + 0.0
        numbers[np.isnan(numbers)] = np.nan
        return pa.array(numbers, filled.type)
    return filled


def to_arrow(records: Sequence[Any], table: StoredTable) -> pa.RecordBatch:
    """Rows that a database returned, in the columns of ``table``, with nulls in keys again.

    A value that its attribute can't have is null here, and the column ``UNFIT`` has the reason; it
    is there if there is such a row.
    """
    columns = list(zip(*records, strict=True)) if records else [()] * len(table.columns)
    arrays: list[ArrowArray] = []
    reasons: dict[int, str] = {}
    for column, cells in zip(table.columns, columns, strict=True):
        listed = list(cells)
        if table.time and column.merge is MergeRule.KEY and column.type is not AttributeType.STRING:
            null = NULL_KEYS[column.type]
            listed = [None if value == null else value for value in listed]
        array, wrong = column_of(listed, column.type)
        arrays.append(array)
        for row, reason in wrong.items():
            reasons.setdefault(row, f'column "{column.name}" of table "{table.name}" has {reason}')
    rows = pa.RecordBatch.from_arrays(arrays, schema=table.arrow)
    if not reasons:
        return rows
    listed = [reasons.get(row) for row in range(len(records))]
    return rows.append_column(UNFIT, pa.array(listed, pa.string()))
