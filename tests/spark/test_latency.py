"""Latencies of runs: exact for a few events, and by samples in order for many."""

from __future__ import annotations

import numpy as np
import pytest

from mesh.model.histogram import LATENCY_BOUNDS_S, Histogram
from mesh.spark.latency import SAMPLES, count
from tests.support.latencies import NOW, column


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
