"""The answer to an on-demand query from the rows of its parts: see ``divided``.

Managers run this, which have no native loops: it uses NumPy and Arrow alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from mesh.errors import MeshError
from mesh.functions.vectors import Vector, from_arrow
from mesh.model.types import AttributeType
from mesh.operators.divided import Merging
from mesh.operators.expressions import compile_expression, compile_filter
from mesh.operators.frame import Frame
from mesh.operators.select.aggregate_extraction import AGGREGATES
from mesh.operators.select.ordering import sort_columns
from mesh.plan.bound import OUTPUT_STEP
from pyspark_nats.arrow import ArrowChunks, kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.operators.base import Longs
    from mesh.operators.divided import Division, Merge

_EXTREMES: Final[dict[Merging, Any]] = {Merging.MIN: np.minimum, Merging.MAX: np.maximum}


def merge(division: Division, parts: Sequence[pa.RecordBatch]) -> pa.Table:
    """The answer from the rows of all parts, in the schema of the query's outputs.

    Rows and groups without ``order by`` are in the order of the parts.

    Args:
        division: of the query.
        parts: the answers to ``division.part``; one part may have several.

    Raises:
        MeshError: MESH-O110, an expression fails on a row.
    """
    types = [output.expression.type or AttributeType.OBJECT for output in division.outputs]
    schema = pa.schema([(o.name, t.arrow) for o, t in zip(division.outputs, types, strict=True)])
    rows = [part for part in parts if part.num_rows]
    if not rows:
        return schema.empty_table()
    table = pa.Table.from_batches(rows)
    frame = _grouped(division, table) if division.keys is not None else _as_they_are(table)
    count = frame.length
    vectors = [compile_expression(o.expression)(frame).spread(count) for o in division.outputs]
    for output, vector in zip(division.outputs, vectors, strict=True):
        frame.add(OUTPUT_STEP, output.name, vector)
    indices: Longs = np.arange(count)
    if division.having is not None:
        indices = np.flatnonzero(np.broadcast_to(compile_filter(division.having)(frame), count))
    if frame.failures:
        raise MeshError(
            "MESH-O110",
            "the on-demand query fails on a row",
            detail=f"{frame.failures[min(frame.failures)]}.",
        )
    if division.order_by and len(indices):
        keys = [
            (compile_expression(order.column)(frame).spread(count).take(indices), order.direction)
            for order in division.order_by
        ]
        # A constant's take is of length 1.
        columns = sort_columns([(vector.spread(len(indices)), way) for vector, way in keys])
        indices = indices[np.lexsort(columns[::-1])]
    start = division.offset or 0
    indices = indices[start : None if division.limit is None else start + division.limit]
    chosen = pa.array(indices, pa.int64())
    arrays = [v.to_arrow(count, t).take(chosen) for v, t in zip(vectors, types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _as_they_are(table: pa.Table) -> Frame:
    return Frame(
        table.num_rows,
        {(0, name): table.column(name).combine_chunks() for name in table.schema.names},
    )


def _grouped(division: Division, table: pa.Table) -> Frame:
    """A row for each group: values of its last row, and of its aggregates."""
    assert division.keys is not None, "a query with groups"
    groups = _numbers([table.column(key.name) for key in division.keys], table.num_rows)
    count = int(groups.max()) + 1
    last = np.zeros(count, dtype=np.int64)
    last[groups] = np.arange(len(groups))
    frame = Frame(
        count,
        {
            (0, name): table.column(name).take(pa.array(last, pa.int64())).combine_chunks()
            for name in table.schema.names
        },
    )
    for number, one in enumerate(division.merges):
        columns = [table.column(column.name) for column in one.columns]
        if one.kind is Merging.DISTINCT:
            vector = _distinct(groups, columns[0], count)
        else:
            vectors = [from_arrow(c, a.type) for c, a in zip(columns, one.columns, strict=True)]
            vector = _merged(one, vectors, groups, count)
        frame.add(AGGREGATES, str(number), vector)
    return frame


def _numbers(columns: Sequence[ArrowChunks], length: int) -> Longs:
    """int64[length]: groups of equal rows, numbered by first appearance."""
    codes: Longs = np.zeros(length, dtype=np.int64)
    for column in columns:
        array = column.combine_chunks()
        if pa.types.is_string(array.type):
            # The text of a null key is that of the word, as in queries.
            array = array.fill_null("null")
        encoded = kernels.dictionary_encode(array, null_encoding="encode")
        of_column = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        codes = codes * len(encoded.dictionary) + of_column
        # As small as can be, for the product with the next.
        codes = np.unique(codes, return_inverse=True)[1]
    _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    ranks = np.empty(len(first), dtype=np.int64)
    ranks[np.argsort(first)] = np.arange(len(first))
    return ranks[codes]


def _distinct(groups: Longs, column: ArrowChunks, count: int) -> Vector:
    """Numbers of different values; null is one of them."""
    array = column.combine_chunks()
    encoded = kernels.dictionary_encode(array, null_encoding="encode")
    values = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    pairs = np.unique(groups * len(encoded.dictionary) + values)
    counts = np.bincount(pairs // len(encoded.dictionary), minlength=count)
    return Vector(AttributeType.LONG, counts.astype(np.int64))


def _merged(one: Merge, vectors: Sequence[Vector], groups: Longs, count: int) -> Vector:
    """The value of each group; null if no part has one."""
    nulls = [vector.null_mask for vector in vectors]
    has = ~nulls[-1]
    none = np.bincount(groups[has], minlength=count) == 0
    last = vectors[-1]
    match one.kind:
        case Merging.SUM:
            sums = np.zeros(count, dtype=last.values.dtype)
            with np.errstate(over="ignore"):
                np.add.at(sums, groups[has], last.values[has])
            return Vector(one.type, sums, none)
        case Merging.MIN | Merging.MAX:
            extremes = np.zeros(count, dtype=last.values.dtype)
            extremes[groups[has]] = last.values[has]
            _EXTREMES[one.kind].at(extremes, groups[has], last.values[has])
            return Vector(one.type, extremes, none)
        case _:
            return _spread_out(one, vectors, groups, count)


def _spread_out(one: Merge, vectors: Sequence[Vector], groups: Longs, count: int) -> Vector:
    """Means and deviations, from counts, sums or means, and deviations."""
    nulls = [vector.null_mask for vector in vectors]
    numbers = np.where(nulls[0], 0, vectors[0].values).astype(np.float64)
    values = np.where(nulls[1], 0.0, vectors[1].values)
    total = np.bincount(groups, numbers, count)
    divisor = np.where(total == 0, 1, total)
    none = total == 0
    if one.kind is Merging.MEAN:
        return Vector(one.type, np.bincount(groups, values, count) / divisor, none)
    # The sum of squared distances from the mean: within the parts, and of the parts' means.
    mean = np.bincount(groups, numbers * values, count) / divisor
    within = numbers * np.where(nulls[2], 0.0, vectors[2].values) ** 2
    squares = np.bincount(groups, within + numbers * (values - mean[groups]) ** 2, count)
    return Vector(one.type, np.sqrt(squares / divisor), none)
