"""Duration for which an instance has a query of its own."""

from __future__ import annotations

import pytest

from mesh.model.cluster import InstanceState, InstanceStatus
from mesh.spark.isolation import IsolationPeriod, IsolationReason, TaskLoad
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


def test_one_is_much_when_it_was_twice_in_a_row() -> None:
    load = TaskLoad(0.0)
    found = []
    for now_s, more_ms in [
        (1, 900),
        (3, 1000),
        (4, 0),
        (6, 1600),
        (9, 1400),
        (12, 1600),
        (15, 1600),
    ]:
        load.ms += more_ms
        found.append(load.is_saturated(now_s))
    assert found == [False, False, False, True, False, False, True]


def test_one_that_was_busy_stays_apart_until_nothing_comes() -> None:
    told = [
        (0.0, status(messages_in=1)),
        (50.0, status(messages_in=2)),
        (109.0, status(messages_in=2)),
    ]
    told += [(110.0, status(messages_in=2))]
    assert over_at(IsolationPeriod(IsolationReason.BUSY), *told) == [110.0]
    waits = [(0.0, status(behind=1)), (60.0, status(behind=1)), (70.0, status()), (129.0, status())]
    assert over_at(IsolationPeriod(IsolationReason.BUSY), *waits) == []


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
    assert pacing.next_batch_limit(1000, 250.0) is None
    assert pacing.next_batch_limit(1000, 1000.0) == 250
    assert pacing.next_batch_limit(10_000, 600_000.0) == pacing.ROWS_MIN
    grown = [pacing.ROWS_FIRST]
    while grown[-1] < pacing.ROWS_MAX:
        grown.append(pacing.increased(grown[-1]))
    assert grown == [200, 400, 800, 1600, 3200, 6400, 10_000]
