"""Rows of a window that are found by their numbers."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa

from mesh.operators.state.row_store import CHUNK_ROWS, RowStore


def test_rows_are_found_by_their_numbers() -> None:
    rng = random.Random(1)
    store = RowStore(pa.schema([pa.field("n", pa.int64())]))
    kept: list[int] = []
    for _ in range(200):
        count = rng.choice([0, 1, 5, 100, CHUNK_ROWS])
        first = store.came
        column = pa.array(range(first, first + count), type=pa.int64())
        store.append(pa.RecordBatch.from_arrays([column], schema=store.schema))
        kept += range(first, first + count)
        if rng.random() < 0.3:
            kept = [n for n in kept if rng.random() < 0.3]
            store.keep(np.array(kept, dtype=np.int64))
        elif rng.random() < 0.2 and kept:
            lowest = kept[len(kept) // 3]
            store.release_below(lowest)
            kept = [n for n in kept if n >= lowest]
        if rng.random() < 0.3:
            pieces, scalars = store.pieces(), store.scalars()
            store = RowStore(store.schema)
            store.restore(pieces, scalars)
        asked = [rng.choice(kept) for _ in range(rng.randint(0, 50))] if kept else []
        found = store.take(np.array(asked, dtype=np.int64))
        assert found.column("n").to_pylist() == asked
    assert store.count >= len(kept)
