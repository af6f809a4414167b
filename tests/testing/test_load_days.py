"""Simulated days of load: the number of instances follows, and does not oscillate."""

from __future__ import annotations

from random import Random

import pytest

from tools.simulator.load_days import LOADS, DayTally, play

#: Seconds for which messages may wait: half a minute, three changes with their rests, the drain.
WAIT_MAX_S = 900.0
#: Greatest age of a backlog at the rate of its reading, seconds: six times what an instance reads
#: for half a minute and two rests.
BACKLOG_MAX_S = 300.0
#: Bursts of a day, as the load draws them: one an hour.
BURSTS = 24


#: Four loads of 250 days are a thousand.
MANY = pytest.param(250, marks=[pytest.mark.extended, pytest.mark.timeout(600)])


@pytest.fixture(params=[3, MANY])
def days(request: pytest.FixtureRequest) -> float:
    return float(request.param)


def seen(name: str, days: float) -> DayTally:
    draw, tally = Random(5), DayTally()
    while tally.days < days:
        tally.add(play(LOADS[name](draw), 1.0, draw))
    return tally


@pytest.mark.slow
def test_a_steady_load_changes_nothing(days: float) -> None:
    tally = seen("steady", days)
    # Noise of a tenth is rarely at the bound of two numbers for five minutes.
    assert tally.turns <= days / 100
    assert tally.changes <= days / 50
    assert tally.backlog_s <= BACKLOG_MAX_S
    assert tally.instances < tally.least + 1


@pytest.mark.slow
def test_days_and_nights_are_one_turn_each(days: float) -> None:
    tally = seen("daily", days)
    assert tally.turns <= 2 * days
    assert tally.busy_s <= WAIT_MAX_S
    assert tally.backlog_s <= BACKLOG_MAX_S


def test_bursts_are_drained_with_a_turn_for_each_and_one_back(days: float) -> None:
    tally = seen("bursty", days)
    assert tally.turns <= 2 * BURSTS * days
    assert tally.busy_s <= WAIT_MAX_S
    assert tally.backlog_s <= BACKLOG_MAX_S


@pytest.mark.slow
def test_an_adversary_gets_a_turn_or_two_an_hour(days: float) -> None:
    tally = seen("adversarial", days)
    # Early turns take five minutes, later ones an hour.
    assert tally.turns <= (2 * 24 + 16) * days
    assert tally.busy_s <= WAIT_MAX_S
    assert tally.backlog_s <= BACKLOG_MAX_S
