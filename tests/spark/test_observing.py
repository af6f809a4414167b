"""What a query of its own tells of its batches."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.spark.dedicated_query.observing import Counts, end_ms, take_counts
from mesh.spark.instance_metrics import sample
from tests.support.latencies import NOW, column


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
