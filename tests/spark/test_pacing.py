"""Shares of a slot's time: what a part gets, and how often it reports."""

from __future__ import annotations

import pytest

from mesh.spark.shared_query import pacing


def test_a_part_gets_what_takes_a_fair_time() -> None:
    assert pacing.next_limit(1000, 1000, 20.0, 20.0) == 2000
    assert pacing.next_limit(1000, 1000, 80.0, 20.0) == 250
    assert pacing.next_limit(1000, 1000, 80.0, 200.0) == 2000
    assert pacing.next_limit(10_000, 10_000, 600_000.0, 20.0) == pacing.ROWS_MIN
    assert pacing.next_limit(10, 10, 30.0, 20.0) == pacing.ROWS_MIN
    assert pacing.next_limit(pacing.ROWS_MAX, 1, 1.0, 20.0) == pacing.ROWS_MAX


def test_a_wait_counts_less_than_work() -> None:
    assert pacing.charged_ms(30.0, 30.0) == 30.0
    assert pacing.charged_ms(30.0, 5.0) == 15.0
    # A function that only waits is bounded all the same.
    assert pacing.charged_ms(400.0, 0.0) == 200.0


def test_many_busy_instances_report_less_often() -> None:
    assert [pacing.report_s(busy) for busy in (0, 1, 20, 100)] == [1.0, 1.0, 1.0, 5.0]


def test_many_busy_instances_store_snapshots_less_often() -> None:
    intervals_s = [pacing.snapshot_s(2.0, busy) for busy in (0, 100, 200, 500, 5000)]
    assert intervals_s == [2.0, 2.0, 2.0, 5.0, 10.0]
    assert pacing.snapshot_s(30.0, 5000) == 30.0


@pytest.mark.parametrize(
    ("least_s", "busy", "interval_s"),
    [(1.0, 3, 1.0), (0.0, 99, 0.0), (1.0, 250, 2.0), (1.0, 5000, 3.0), (5.0, 5000, 5.0)],
)
def test_each_of_many_parts_reports_less_often(
    least_s: float, busy: int, interval_s: float
) -> None:
    assert pacing.part_interval_s(least_s, busy) == interval_s


def test_many_parts_are_due_together_and_few_are_not() -> None:
    assert pacing.part_due_s(10.1, 1.0, 5) == pytest.approx(11.1)
    many = {pacing.part_due_s(10.01 + n / 1000, 1.0, 300) for n in range(200)}
    assert many == {13.25}
