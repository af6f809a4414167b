"""Latencies of runs: exact for a few events, and by samples in order for many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mesh.model.histogram import LATENCY_BOUNDS_S, Histogram, quantile
from mesh.spark.dedicated_query.observing import Counts, end_ms, take_counts
from mesh.spark.latency import SAMPLES, count, sample

NOW = 1_795_440_000_000


def column(*ago_ms: int) -> pa.Array[Any]:
    return pa.array([NOW - one for one in ago_ms], pa.int64())


def test_a_few_events_are_counted_as_they_are() -> None:
    exact = Histogram(LATENCY_BOUNDS_S)
    for ago_ms in (130_000, 700, 700, 10, 1):
        exact.observe(ago_ms / 1000)
    counts, sum_s = count(
        [([column(130_000, 700), column()], [NOW]), ([column(700, 10, 1)], [NOW])]
    )
    assert counts == exact.counts
    assert sum_s == pytest.approx(exact.sum_s)
    assert count([]) == ((), 0.0)
    # The clock of the broker is ahead.
    assert count([([column(-50)], [NOW])])[0][0] == 1


@pytest.mark.parametrize("size", [SAMPLES, SAMPLES + 1, 1000, 4097])
def test_of_a_large_run_each_event_counts_once_and_about_where_it_is(size: int) -> None:
    ago_ms = np.linspace(9000, 100, size).astype(np.int64)
    counts, sum_s = count([([column(*ago_ms.tolist())], [NOW])])
    assert sum(counts) == size
    exact = Histogram(LATENCY_BOUNDS_S)
    for one in ago_ms.tolist():
        exact.observe(one / 1000)
    off = np.abs(np.cumsum(counts) - np.cumsum(exact.counts))
    assert off.max() <= size / SAMPLES + 1
    assert sum_s == pytest.approx(exact.sum_s, rel=0.1)


def test_quantiles_are_within_their_bucket() -> None:
    bounds = (1.0, 2.0, 4.0)
    assert quantile((0, 0, 0, 0), bounds, 0.5) is None
    assert quantile((), bounds, 0.5) is None
    assert quantile((0, 10, 0, 0), bounds, 0.5) == 1.5
    assert quantile((5, 0, 5, 0), bounds, 0.99) == pytest.approx(3.96)
    assert quantile((0, 0, 0, 3), bounds, 0.5) == 4.0


class Received:
    """An accumulator of a driver."""

    def __init__(self, *value: tuple[int, int, list[Any], Counts]) -> None:
        self.value = list(value)


def test_batches_end_where_the_next_one_begins_and_later_ones_wait() -> None:
    stored = sample(column(1000))
    later = (9, NOW + 50, [stored], Counts(1, 1, 1))
    received: Any = Received(
        (6, NOW - 900, [stored], Counts(1, 5, 5)),
        (7, NOW - 800, [stored] * 2, Counts(2, 20, 3, 1)),
        later,
    )
    counted, (counts, sum_s) = take_counts(received, 7, NOW)
    assert counted == Counts(messages=3, events_in=25, events_out=8, errors=1)
    assert sum(counts) == 3
    # The progress of batch 6 was missed: it ended before a task of batch 7 began.
    assert sum_s == pytest.approx(0.2 + 2 * 1.0)
    assert received.value == [later]
    assert take_counts(received, 8, NOW) == (Counts(), ((), 0.0))


def test_the_end_of_a_batch_is_that_of_its_progress() -> None:
    progress = {"timestamp": "2026-11-23T21:00:00.250Z", "durationMs": {"triggerExecution": 80}}
    assert end_ms(progress) % 1000 == 330
