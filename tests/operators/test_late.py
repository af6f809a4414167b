"""Late cells of an aggregation."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mesh.functions.vectors import Vector
from mesh.model.types import AttributeType
from mesh.operators.aggregations.cells import Cells
from mesh.operators.aggregations.late import LateCellStore
from mesh.operators.aggregations.values import BaseKind, BaseValue
from tests.support.aggregations import few_cells

__all__ = ("few_cells",)


@pytest.mark.parametrize("keys", [3, 1000])
def test_late_cells_are_merged_at_the_same_places_however_they_are_cut(keys: int) -> None:
    rng = np.random.default_rng(5)
    bucket, zeros = 1000 * rng.integers(0, keys, 100), np.zeros(100, dtype=np.int64)
    added = Cells(zeros, bucket, zeros, zeros[:0], {0: Vector(AttributeType.LONG, bucket)}, {})
    contents = []
    for cut in (1, 9, 100):
        store = LateCellStore([BaseValue(BaseKind.SUM, AttributeType.LONG)])
        for start in range(0, 100, cut):
            store.add(added.part(start, min(start + cut, 100)), "")
            # Cells wait until they are read, here between additions.
            if cut == 9:
                assert len(store.take(slice(0, len(store)))) == len(store)
        contents.append(pa.Table.from_batches(list(store.snapshot().pieces.values())))
    first, *others = contents
    assert all(other.equals(first) for other in others)
    assert first.num_rows < 20 or keys > 20
