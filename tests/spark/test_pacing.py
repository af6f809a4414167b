"""Duration for which an instance has a query of its own."""

from __future__ import annotations

import pytest

from mesh.control.isolation import IsolationPeriod, IsolationReason
from mesh.model.cluster import InstanceState, InstanceStatus
from mesh.spark.shared_query import pacing

RUNNING, RETRYING = InstanceState.RUNNING, InstanceState.RETRYING


def status(
    state: InstanceState = RUNNING, messages_in: int = 0, restarts: int = 0, behind: int = 0
) -> InstanceStatus:
    return InstanceStatus(
        "A-g-1", "A", "w", 1, state, 0,
        messages_in=messages_in, restarts=restarts, behind=behind,
    )  # fmt: skip


def over_at(term: IsolationPeriod, *told: tuple[float, InstanceStatus]) -> list[float]:
    return [now_s for now_s, one in told if term.is_over(one, now_s)]


def test_one_whose_streams_answer_again_stays_apart_for_a_while_though_it_works() -> None:
    told = [(0.0, status(RETRYING)), (100.0, status(messages_in=1)), (159.0, status(messages_in=2))]
    told += [(160.0, status(messages_in=3))]
    assert over_at(IsolationPeriod(IsolationReason.UNANSWERED), *told) == [160.0]


@pytest.mark.parametrize(("times", "length_s"), [(1, 600.0), (2, 1200.0), (4, 4800.0)])
def test_a_suspect_is_trusted_later_each_time(times: int, length_s: float) -> None:
    told = [
        (0.0, status()),
        (100.0, status(restarts=1)),
        (100.0 + length_s - 1, status(restarts=1)),
    ]
    told += [(100.0 + length_s, status(restarts=1))]
    assert over_at(IsolationPeriod(IsolationReason.SUSPECT, times), *told) == [100.0 + length_s]


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
