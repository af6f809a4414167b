"""The order of values, as numbers: what ``order by`` sorts by.

NaN is more than every number, -0.0 less than 0.0, and texts compare by their UTF-16 units, as
Java's do.  Nulls are last in both directions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mesh.language.syntax import Direction
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.functions.vectors import Vector
    from mesh.operators.base import Longs


def sort_columns(keys: Sequence[tuple[Vector, Direction]]) -> list[Any]:
    """Columns of numbers that sort rows by ``keys``: the first counts most.

    Nulls are equal, with any value in their place: they keep their order.
    """
    columns: list[Any] = []
    for vector, direction in keys:
        ranks = np.where(vector.null_mask, 0, _ranks(vector))
        columns += [vector.null_mask, ~ranks if direction is Direction.DESCENDING else ranks]
    return columns


def _ranks(vector: Vector) -> Longs:
    """Whole numbers in the order of the values; any for null."""
    values = vector.values
    if vector.type is AttributeType.STRING:
        encoded = values.fill_null("").dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        order = sorted(range(len(texts)), key=lambda n: texts[n].encode("utf-16-be"))
        ranks = np.empty(len(texts), dtype=np.int64)
        ranks[order] = np.arange(len(texts))
        of_rows: Longs = ranks[encoded.indices.to_numpy()]
        return of_rows
    if vector.type is AttributeType.OBJECT:
        raise AssertionError("the planner refuses to order by objects")
    if values.dtype.kind != "f":
        longs: Longs = values.astype(np.int64)
        return longs
    bits: Longs = np.where(np.isnan(values), np.nan, values).astype(np.float64).view(np.int64)
    flipped: Longs = np.where(bits < 0, bits ^ np.int64(np.iinfo(np.int64).max), bits)
    return flipped
