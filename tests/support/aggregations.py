"""An aggregation outside of an app, and random events for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mesh.language.parser import parse
from mesh.operators.aggregations import rollup
from mesh.operators.aggregations.rollup import Aggregation, Purging
from mesh.operators.base import CURRENT, WHOLE, EventBatch
from mesh.operators.query.handlers import Failures
from mesh.plan.bind import bind
from tools.cases import batch

if TYPE_CHECKING:
    from collections.abc import Iterator

SELECT = (
    "select s, sum(k) as t, avg(v) as a, count() as c, min(v) as lo, max(k) as hi, "
    "distinctCount(k) as n, v as last, ifThenElse(v > 0.0, 'up', s) as word, "
    "sum(v) / count() + 1 as more group by s"
)


@pytest.fixture(autouse=True, scope="module")
def few_cells() -> Iterator[None]:
    """Closed cells of one key are merged after a few cells, instead of a quarter of a million."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollup, "_LATE_MIN", 4)
        patch.setattr(rollup, "_WAITING_MAX", 3)
        yield


APP = bind(
    parse(
        "define stream M (k int, v double, s string, ts long); "
        f"define aggregation A from M {SELECT} aggregate by ts every sec...year; "
        "from M select k insert into O;"
    )
)


def new_aggregation(purging: Purging | None = None) -> Aggregation:
    made = Aggregation(APP.aggregations[0], purging)
    made.begin(0)
    return made


def add(to: Aggregation, events: list[tuple[int, list[Any]]]) -> None:
    count = len(events)
    zeros = np.zeros(count, dtype=np.int64)
    clock = np.array([time for time, _ in events], dtype=np.int64)
    to.add(
        EventBatch(
            clock,
            clock,
            2 * np.arange(count) + 1,
            zeros,
            zeros,
            np.full(count, CURRENT, dtype=np.int8),
            np.full(count, WHOLE),
            batch(APP.stream("M"), [row for _, row in events]),
        ),
        Failures(),
    )


def random(count: int, seed: int) -> list[tuple[int, list[Any]]]:
    """Events that arrive over some minutes, with times of their own over three hours."""
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.integers(0, 900, count))
    return [
        (
            int(time),
            [
                None if rng.random() < 0.1 else int(rng.integers(-3, 4)),
                None if rng.random() < 0.1 else float(rng.integers(-9, 9)) / 2,
                [None, "null", "a", "b", "c"][int(rng.integers(5))],
                int(rng.integers(-3_600_000, 7_200_000)) // 500 * 500,
            ],
        )
        for time in times
    ]
