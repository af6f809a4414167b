"""Buckets of an aggregation: closed, running, purged and forgotten.

Late cells of an aggregation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from mesh.functions.vectors import Vector
from mesh.language.syntax import TimeUnit
from mesh.model.types import AttributeType
from mesh.operators.aggregations.cells import Cells
from mesh.operators.aggregations.find import closed_cells, find
from mesh.operators.aggregations.rollup import LateCellStore, Purging
from mesh.operators.aggregations.values import BaseKind, BaseValue
from tests.support.aggregations import add, few_cells, new_aggregation, random
from tests.support.recorder import stored

if TYPE_CHECKING:
    from collections.abc import Iterable


__all__ = ("few_cells",)


def _modelled(events: Iterable[tuple[int, list[Any]]], duration_ms: int) -> dict[Any, list[Any]]:
    """By bucket and group the values that ``SELECT`` gives, from a list of its events."""
    by_key: dict[Any, list[list[Any]]] = {}
    for _, (k, v, s, ts) in sorted(events, key=lambda event: event[0]):
        by_key.setdefault((ts - ts % duration_ms, str(s).replace("None", "null")), []).append(
            [k, v, s, ts]
        )
    return {cell: _values(rows) for cell, rows in by_key.items()}


def _values(rows: list[list[Any]]) -> list[Any]:
    ks = [k for k, *_ in rows if k is not None]
    vs = [v for _, v, *_ in rows if v is not None]
    last = max(enumerate(rows), key=lambda row: (row[1][3], row[0]))[1]
    total, count = sum(vs), len(rows)
    mean = total / count if vs else None
    return [
        sum(ks) if ks else None,
        mean,
        count,
        min(vs, default=None),
        max(ks, default=None),
        len({k for k, *_ in rows}),
        last[1],
        "up" if last[1] is not None and last[1] > 0 else last[2],
        None if mean is None else mean + 1,
    ]


@pytest.mark.parametrize("seed", range(4))
def test_running_and_closed_values_answer_together(seed: int) -> None:
    events = random(400, seed)
    aggregation = new_aggregation()
    for start in range(0, len(events), 37):
        add(aggregation, events[start : start + 37])
        if seed % 2:
            state = stored(aggregation.snapshot())
            aggregation = new_aggregation()
            aggregation.restore(state)
    for duration, ms in ((TimeUnit.SECOND, 1000), (TimeUnit.HOUR, 3_600_000)):
        found = find(aggregation, (-(10**9), 10**9), duration, now_ms=events[-1][0])
        rows = [list(row.values()) for row in found.to_pylist()]
        ours = {(bucket, s): values for bucket, s, *values in rows}
        assert len(ours) == len(rows)
        assert ours == _modelled(events, ms)
        assert [row[0] for row in rows] == sorted(row[0] for row in rows)


def test_closed_cells_that_late_events_repeat_stay_few() -> None:
    aggregation = new_aggregation()
    for second in range(200):
        add(aggregation, [(1000 * second, [1, 1.0, "ab"[second % 2], 0])])
    closed = aggregation.closed[TimeUnit.SECOND]
    # Two different ones: at most twice as many and the few that are appended.
    assert 2 < len(closed) <= 2 * 2 + 4
    assert len(closed_cells(aggregation, TimeUnit.SECOND)) == 2
    for per in (TimeUnit.SECOND, TimeUnit.YEAR):
        found = find(aggregation, (0, 1000), per, now_ms=300_000)
        assert found.column("c").to_pylist() == [100, 100]


def test_closed_values_are_purged_and_those_of_longer_durations_stay() -> None:
    aggregation = new_aggregation(Purging(10_000, {TimeUnit.SECOND: 120_000}))
    add(aggregation, [(0, [1, 1.0, "a", 500])])

    def found(per: TimeUnit, now_ms: int) -> int:
        return find(aggregation, (-(10**9), 10**9), per, now_ms=now_ms).num_rows

    assert found(TimeUnit.SECOND, 129_999) == 1
    assert found(TimeUnit.SECOND, 130_000) == 0
    assert found(TimeUnit.MINUTE, 130_000) == found(TimeUnit.YEAR, 130_000) == 1


def test_groups_that_no_value_has_any_more_are_forgotten() -> None:
    aggregation = new_aggregation(Purging(10_000, dict.fromkeys(TimeUnit, 20_000)))
    for second in range(60):
        rows = [[n, 1.0, f"{second}-{n}", second * 1000] for n in range(500)]
        add(aggregation, [(second * 1000, row) for row in rows])
    last = 120_000_000_000
    add(aggregation, [(last, [1, 1.0, "59-7", last])])
    assert len(aggregation.groups) < 5000
    state = stored(aggregation.snapshot())
    again = new_aggregation(Purging(10_000, dict.fromkeys(TimeUnit, 20_000)))
    again.restore(state)
    add(again, [(last + 1, [2, 1.0, "59-7", last]), (last + 1, [2, 1.0, "new", last])])
    found = find(again, (last - 1, last + 1), TimeUnit.SECOND, now_ms=last + 2).to_pylist()
    assert [(row["s"], row["t"]) for row in found] == [("59-7", 3), ("new", 2)]


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
