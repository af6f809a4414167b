"""``python -m tools.simulator.load_days --days N``: the autoscaler under days of load.

One group of 8 partitions, read by another, in steps of ``SAMPLE_S``.  Loads are steady, daily,
bursty and adversarial; the adversary sees the number of instances and does what harms most: it
drops the load when the group has gone up, and raises it when it has gone down.

A day shows how often the number changed, how often its direction, and for how long messages waited
without a break.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mesh.control.autoscale import (
    SAMPLE_S,
    WAITING_MIN,
    WAITING_S,
    Autoscaler,
    GroupLoad,
    ScaleChange,
)
from mesh.model.app import ScaleBounds

DAY_S: Final = 86_400.0
#: Days with one load before another of its kind is drawn.
LIFE_DAYS: Final = 4.0
#: Messages a second that one instance reads.
CAPACITY: Final = 10_000.0
SIZES: Final = ScaleBounds(1, 8).sizes(8)
#: Time that a change of the number takes, seconds.
_RESCALE_S: Final = SAMPLE_S

#: Arrivals a second, from the time in seconds and the number of instances.
Load = Callable[[float, int], float]


@dataclass(slots=True)
class DayTally:
    """Observations over some days of one load."""

    days: float = 0.0
    changes: int = 0
    #: Changes of direction.
    turns: int = 0
    #: Longest time for which messages waited, seconds.
    busy_s: float = 0.0
    #: Greatest age of a backlog, seconds, at the rate of its reading.
    backlog_s: float = 0.0
    #: Mean number of instances beside the least that would have done.
    instances: float = 0.0
    least: float = 0.0

    def add(self, other: DayTally) -> None:
        """Add other days."""
        for name in ("instances", "least"):
            mean = getattr(self, name) * self.days + getattr(other, name) * other.days
            setattr(self, name, mean / (self.days + other.days))
        self.days += other.days
        self.changes += other.changes
        self.turns += other.turns
        self.busy_s = max(self.busy_s, other.busy_s)
        self.backlog_s = max(self.backlog_s, other.backlog_s)

    def __str__(self) -> str:
        return (
            f"{self.days:,.0f} days: {self.changes / self.days:.1f} changes and "
            f"{self.turns / self.days:.1f} turns a day, busy for {self.busy_s:.0f} s at most, "
            f"backlog of {self.backlog_s:.0f} s at most, {self.instances:.2f} instances for "
            f"{self.least:.2f}"
        )


def steady(draw: random.Random) -> Load:
    """One rate, with a tenth of noise."""
    rate = draw.uniform(0.1, 6.0) * CAPACITY
    return lambda _at_s, _size: rate * draw.uniform(0.9, 1.1)


def daily(draw: random.Random) -> Load:
    """Night and day, with a tenth of noise."""
    most = draw.uniform(2.0, 6.0) * CAPACITY

    def load(at_s: float, _size: int) -> float:
        wave = 0.5 - 0.5 * math.cos(2 * math.pi * at_s / DAY_S)
        return most * (0.05 + 0.95 * wave) * draw.uniform(0.9, 1.1)

    return load


def bursty(draw: random.Random) -> Load:
    """A low rate, and bursts of one to twenty minutes at random times."""
    ends_s, height = 0.0, 0.0
    rest = draw.uniform(0.1, 0.8) * CAPACITY

    def load(at_s: float, _size: int) -> float:
        nonlocal ends_s, height
        if at_s >= ends_s and draw.random() < SAMPLE_S / 3600:
            ends_s, height = at_s + draw.uniform(60, 1200), draw.uniform(1.0, 6.0) * CAPACITY
        return (height if at_s < ends_s else rest) * draw.uniform(0.9, 1.1)

    return load


def adversarial(draw: random.Random) -> Load:
    """High while the group is small, low as soon as it has grown."""
    high, low = draw.uniform(1.5, 3.0) * CAPACITY, 0.3 * CAPACITY

    def load(_at_s: float, size: int) -> float:
        return low if size * CAPACITY * 0.8 > high else high

    return load


LOADS: Final[dict[str, Callable[[random.Random], Load]]] = {
    "steady": steady,
    "daily": daily,
    "bursty": bursty,
    "adversarial": adversarial,
}


def play(load: Load, days: float, draw: random.Random) -> DayTally:
    """Some days of ``load``; the tally begins after the first hour."""
    scaler, tally = Autoscaler(), DayTally(days=days)
    size, backlog, rests_s, direction, busy_since_s = 1, 0.0, 0.0, 0, math.inf
    steps = round((days * DAY_S) / SAMPLE_S)
    for step in range(steps):
        at_s = step * SAMPLE_S
        arrivals = load(at_s, size)
        able = 0.0 if rests_s > 0 else size * CAPACITY * draw.uniform(0.95, 1.05)
        rests_s -= SAMPLE_S
        served = min(able, arrivals + backlog / SAMPLE_S)
        backlog = max(0.0, backlog + (arrivals - served) * SAMPLE_S)
        is_busy = backlog > max(WAITING_MIN, WAITING_S * served)
        busy_since_s = min(busy_since_s, at_s) if is_busy else math.inf
        sample = GroupLoad("A", "g", size, SIZES, served, round(backlog), served > 0 or able > 0)
        change = scaler.step(at_s, [sample])
        if at_s > 3600:
            _count(tally, at_s, busy_since_s, backlog / (size * CAPACITY))
            tally.instances += size / steps
            tally.least += math.ceil(arrivals / CAPACITY / 0.8) / steps
        if change is not None:
            direction = _turn(tally, change, direction, counts=at_s > 3600)
            size, rests_s = change.target, _RESCALE_S
    return tally


def _count(tally: DayTally, at_s: float, busy_since_s: float, backlog_s: float) -> None:
    tally.busy_s = max(tally.busy_s, at_s - busy_since_s)
    tally.backlog_s = max(tally.backlog_s, backlog_s)


def _turn(tally: DayTally, change: ScaleChange, before: int, *, counts: bool) -> int:
    direction = 1 if change.target > change.parallel else -1
    if counts:
        tally.changes += 1
        tally.turns += before not in (0, direction)
    return direction


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m tools.simulator.load_days")
    parser.add_argument("--days", type=float, default=40, help="simulated days of each load")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for name, make in LOADS.items():
        draw, tally = random.Random(options.seed), DayTally()
        while tally.days < options.days:
            tally.add(play(make(draw), min(LIFE_DAYS, options.days - tally.days), draw))
        sys.stdout.write(f"{name:<12} {tally}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
