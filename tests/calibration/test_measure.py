"""A run's number of events is what it can process in its time."""

from __future__ import annotations

from mesh.calibration.measure import affordable
from mesh.model.cost import GroupCost


def _cost(rate: float, messages: float = 1.0) -> GroupCost:
    return GroupCost("g", "calibrated", rate, 0.0, 0.0, messages=messages)


def test_a_fast_app_runs_all_events_and_a_slow_one_what_it_can() -> None:
    assert affordable([_cost(1_000_000.0)], 200_000) == 200_000
    assert affordable([_cost(2_000.0)], 200_000) == 16_000


def test_time_is_that_of_all_groups_with_the_messages_that_each_reads() -> None:
    # A second group that reads 40 messages for each event.
    assert affordable([_cost(2_000.0), _cost(80_000.0, 40.0)], 200_000) == 8_000
    assert affordable([_cost(1e-9)], 9) == 1
