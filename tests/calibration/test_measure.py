"""Events of a run, and bytes of states by keys, measured with few of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.calibration.measure import affordable, state_cost
from mesh.model.cost import GroupCost
from mesh.plan.build import plan

if TYPE_CHECKING:
    from mesh.model.cost import StateCost

HEAD = "@App:name('X') define stream S (k string, v double);\n@dist(execGroup='g')\n"


def _cost(rate: float, messages: float = 1.0) -> GroupCost:
    return GroupCost("g", "calibrated", rate, 0.0, 0.0, messages=messages)


def test_a_fast_app_runs_all_events_and_a_slow_one_what_it_can() -> None:
    assert affordable([_cost(1_000_000.0)], 200_000) == 200_000
    assert affordable([_cost(2_000.0)], 200_000) == 16_000


def test_time_is_that_of_all_groups_with_the_messages_that_each_reads() -> None:
    # A second group that reads 40 messages for each event.
    assert affordable([_cost(2_000.0), _cost(80_000.0, 40.0)], 200_000) == 8_000
    assert affordable([_cost(1e-9)], 9) == 1


def cost(query: str, rate: float, keys: int) -> StateCost:
    (group,) = plan(HEAD + query).spec.groups
    return state_cost(group, rate, keys)


def test_a_sum_by_key_has_bytes_for_each_key() -> None:
    query = "from S select k, sum(v) as total group by k insert into T;"
    of_keys = [cost(query, 1e4, keys).key_bytes for keys in (1000, 10**6)]
    assert of_keys[0] == pytest.approx(of_keys[1], rel=0.05)
    assert 8 < of_keys[0] < 200


@pytest.mark.slow
def test_a_long_window_has_bytes_for_each_event() -> None:
    query = "from S#window.time(1 hour) select k, sum(v) as total group by k insert into T;"
    found = cost(query, 50_000.0, 1000)
    assert (found.key_bytes, found.longest_s) == (0.0, 3600.0)
    assert 8 < found.event_bytes < 100


def test_events_of_a_key_come_as_often_as_with_all_keys() -> None:
    # A minute holds three events of each of a million keys.
    query = "from S#window.time(1 min) select k, sum(v) as total group by k insert into T;"
    found = cost(query, 50_000.0, 10**6)
    assert found.event_bytes == 0.0
    assert 24 < found.key_bytes < 400
