"""Duration for which an instance has a query of its own."""

from __future__ import annotations

import pytest

from mesh.control.isolation import IsolationPeriod, IsolationReason
from mesh.model.cluster import InstanceState, InstanceStatus

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
