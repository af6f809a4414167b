"""Runs of many clusters in turn, and the reduction of a failing scenario to its shortest form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from mesh.testing.simulator.cluster import Cluster, Tally
from mesh.testing.simulator.invariants import Violation
from mesh.testing.simulator.scenario import Scenario, draw

if TYPE_CHECKING:
    from mesh.testing.simulator.scenario import Event


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a cluster's run."""

    scenario: Scenario
    seed: int
    tally: Tally
    #: None when every invariant held.
    violation: str | None


def play(scenario: Scenario, seed: int) -> Outcome:
    """Play one scenario."""
    cluster = Cluster(scenario, seed)
    try:
        cluster.play()
    except Violation as violation:
        # Events after the violation don't matter.
        played = tuple(e for e in scenario.events if e.at_s <= cluster.now_s)
        return Outcome(replace(scenario, events=played), seed, cluster.tally, str(violation))
    return Outcome(scenario, seed, cluster.tally, None)


def play_many(
    seed: int, hours: float, life_hours: float, bursts_per_hour: float, *, loses: bool = False
) -> tuple[Tally, Outcome | None]:
    """Play clusters from ``seed`` on until ``hours`` have been simulated, or one fails.

    With ``loses``, NATS also loses acknowledged writes.
    """
    total = Tally()
    while total.simulated_s < hours * 3600:
        left_hours = min(life_hours, hours - total.simulated_s / 3600)
        outcome = play(draw(Random(seed), left_hours, bursts_per_hour, loses=loses), seed)
        total.add(outcome.tally)
        if outcome.violation is not None:
            return total, outcome
        seed += 1
    return total, None


def shrink(failure: Outcome, tries: int = 200) -> Outcome:
    """Remove events while it still fails: halves first, single ones at last."""
    best = failure
    # Often the last few are enough.
    for last in (2, 4, 8, 16, 32):
        events = failure.scenario.events[-last:]
        found = play(replace(failure.scenario, events=events), failure.seed)
        if found.violation is not None:
            best = found
            break
    size = max(1, len(best.scenario.events) // 2)
    while size and tries > 0:
        start = 0
        while start < len(best.scenario.events) and tries > 0:
            tries -= 1
            events = best.scenario.events
            fewer = _without(events, start, size)
            found = play(replace(best.scenario, events=fewer), best.seed)
            if found.violation is not None:
                best = found
            else:
                start += size
        size //= 2
    return best


def _without(events: tuple[Event, ...], start: int, size: int) -> tuple[Event, ...]:
    return events[:start] + events[start + size :]


def describe(total: Tally, took_s: float) -> str:
    """A run in a few lines."""
    hours = total.simulated_s / 3600
    counts = ", ".join(f"{number} {what}" for what, number in total.counts.items())
    events = ", ".join(f"{number} {what}" for what, number in sorted(total.events.items()))
    return (
        f"{hours:.0f} simulated hours, {hours / took_s * 60:.0f} a minute of CPU; "
        f"{total.played_s / 3600:.1f} hours of them event by event\n{counts}\n{events}"
    )
