"""Scenarios as texts."""

from __future__ import annotations

from random import Random

from tools.simulator.scenario import draw, read


def test_a_scenario_is_read_back_as_it_is_printed() -> None:
    text = str(draw(Random(7), hours=20, bursts_per_hour=5))
    assert str(read(text)) == text
