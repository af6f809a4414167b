"""Runs of many clusters in turn, and the reduction of a failing scenario to its shortest form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from tools.simulator.cluster import Cluster, RunTally
from tools.simulator.invariants import Violation
from tools.simulator.scenario import Scenario, draw

if TYPE_CHECKING:
    from tools.simulator.scenario import Event


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The result of a cluster's run."""

    scenario: Scenario
    seed: int
    tally: RunTally
    #: None when every invariant held.
    violation: str | None


def play(scenario: Scenario, seed: int) -> RunOutcome:
    """Play one scenario."""
    cluster = Cluster(scenario, seed)
    try:
        cluster.play()
    except Violation as violation:
        # Events after the violation don't matter.
        played = tuple(e for e in scenario.events if e.at_s <= cluster.now_s)
        return RunOutcome(replace(scenario, events=played), seed, cluster.tally, str(violation))
    return RunOutcome(scenario, seed, cluster.tally, None)


def play_many(
    seed: int, hours: float, life_hours: float, bursts_per_hour: float, *, loses: bool = False
) -> tuple[RunTally, RunOutcome | None]:
    """Play clusters from ``seed`` on until ``hours`` have been simulated, or one fails.

    With ``loses``, NATS also loses acknowledged writes.
    """
    total = RunTally()
    while total.simulated_s < hours * 3600:
        left_hours = min(life_hours, hours - total.simulated_s / 3600)
        outcome = play(draw(Random(seed), left_hours, bursts_per_hour, loses=loses), seed)
        total.add(outcome.tally)
        if outcome.violation is not None:
            return total, outcome
        seed += 1
    return total, None


def shrink(failure: RunOutcome, tries: int = 200) -> RunOutcome:
    """Remove events while it still fails: halves first, single ones at last."""
    best = failure
    # Often the last few are enough.
    for last in (2, 4, 8, 16, 32):
        events = failure.scenario.events[-last:]
        outcome = play(replace(failure.scenario, events=events), failure.seed)
        if outcome.violation is not None:
            best = outcome
            break
    size = max(1, len(best.scenario.events) // 2)
    while size and tries > 0:
        start = 0
        while start < len(best.scenario.events) and tries > 0:
            tries -= 1
            events = best.scenario.events
            fewer = _without(events, start, size)
            outcome = play(replace(best.scenario, events=fewer), best.seed)
            if outcome.violation is not None:
                best = outcome
            else:
                start += size
        size //= 2
    return best


def _without(events: tuple[Event, ...], start: int, size: int) -> tuple[Event, ...]:
    return events[:start] + events[start + size :]


def describe(total: RunTally, took_s: float) -> str:
    """A run in a few lines."""
    hours = total.simulated_s / 3600
    counts = ", ".join(f"{number} {what}" for what, number in total.counts.items())
    events = ", ".join(f"{number} {what}" for what, number in sorted(total.events.items()))
    return (
        f"{hours:.0f} simulated hours, {hours / took_s * 60:.0f} a minute of CPU; "
        f"{total.played_s / 3600:.1f} hours of them event by event\n{counts}\n{events}"
    )
