"""Simulated days of load: the number of instances follows, and does not oscillate."""

from __future__ import annotations

from random import Random

import pytest

from mesh.testing.simulator.load_days import LOADS, Tally, play

#: Seconds for which messages may wait: half a minute, three changes with their rests, the drain.
WAIT_MAX_S = 900.0


@pytest.fixture(params=[3, pytest.param(30, marks=pytest.mark.extended)])
def days(request: pytest.FixtureRequest) -> float:
    return float(request.param)


def seen(name: str, days: float) -> Tally:
    draw, tally = Random(5), Tally()
    while tally.days < days:
        tally.add(play(LOADS[name](draw), 1.0, draw))
    return tally


def test_a_steady_load_changes_nothing(days: float) -> None:
    tally = seen("steady", days)
    assert (tally.turns, tally.changes) == (0, 0)
    assert tally.instances < tally.least + 1


def test_days_and_nights_are_one_turn_each(days: float) -> None:
    tally = seen("daily", days)
    assert tally.turns <= 2 * days
    assert tally.busy_s <= WAIT_MAX_S


def test_bursts_are_drained(days: float) -> None:
    tally = seen("bursty", days)
    assert tally.busy_s <= WAIT_MAX_S


def test_an_adversary_gets_a_turn_or_two_an_hour(days: float) -> None:
    tally = seen("adversarial", days)
    # Early turns take five minutes, later ones an hour.
    assert tally.turns <= (2 * 24 + 16) * days
    assert tally.busy_s <= WAIT_MAX_S
