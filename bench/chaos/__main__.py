"""``python -m bench.chaos``: play faults under load, and compare each output row with a calm run's.

Exit status 1 unless no row is lost, duplicate or out of order, and every story is complete.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench import measuring
from bench.chaos import disks, namespaces, report
from bench.chaos.faults import machines
from bench.chaos.run import Outcome, play, said
from bench.chaos.scenario import CALM
from bench.chaos.scenarios import SCENARIOS
from bench.chaos.stage import Stage, Topology
from tests.support import databases

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from bench.chaos.latency import Latency
    from bench.chaos.scenario import Scenario
#: Name of the plain run that those with TLS and roles are compared with.
PLAIN: Final = "calm-plain"
_PLAYED: Final = "played {0.scenario}: {1}, {0.took_s:.0f} s"


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the scenarios; returns the exit status."""
    given = _parse(arguments)
    if given.list:
        for one in SCENARIOS:
            print(f"{one.name:28} {one.fault} ({one.topology})")
        return 0
    wanted = given.only.split(",") if given.only else [one.name for one in SCENARIOS]
    if given.secured:
        # Before the faults, and so in the same minutes as the plain run.
        wanted = [CALM, *(name for name in wanted if name != CALM)]
    known = {one.name: one for one in SCENARIOS}
    unknown = sorted(set(wanted) - set(known))
    if unknown:
        print(f"no such scenario: {', '.join(unknown)}; --list shows them", file=sys.stderr)
        return 2
    console = measuring.console_of(stderr=given.output == "json")
    chosen = [_on_three(known[name]) if given.secured else known[name] for name in wanted]
    skipped = {one.name: why for one in chosen if (why := _why_not(one))}
    chosen = [one for one in chosen if one.name not in skipped]
    outcomes: list[Outcome] = []
    is_whole = False
    # On SIGINT the loop ends its waiting task; an exception in a handler would get lost in it.
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        plain = _plain_latency(outcomes, console, given) if given.secured else None
        for topology, mine in _stages(chosen):
            runs = [(one, run) for one in mine for run in range(1, given.runs + 1)]
            while runs:
                for outcome in _played_on_one(topology, runs, given, is_secured=given.secured):
                    outcome = outcome if plain is None else outcome.beside(plain)
                    outcomes.append(outcome)
                    _tell(console, outcome)
        is_whole = True
    except KeyboardInterrupt:
        console.print("interrupted: this is what was played", style="red", markup=False)
    finally:
        signal.signal(signal.SIGTERM, before)
    report.say(console, outcomes, skipped)
    if given.output == "json":
        print(json.dumps(report.document(outcomes, skipped), indent=1))
    return int(not is_whole or not outcomes or not all(one.is_good for one in outcomes))


def _plain_latency(
    outcomes: list[Outcome], console: Console, given: argparse.Namespace
) -> Latency | None:
    """The latency of a run without faults, TLS and roles, which precedes those with them.

    Its outcome is added to ``outcomes``; without a latency that one is not good.
    """
    (calm,) = (one for one in SCENARIOS if one.name == CALM)
    calm = replace(calm, name=PLAIN, fault="nothing at all, without TLS and roles")
    (outcome,) = _played_on_one(calm.topology, [(calm, 1)], given, is_secured=False)
    outcomes.append(outcome)
    _tell(console, outcome)
    return outcome.latency


def _on_three(one: Scenario) -> Scenario:
    """The scenario on three servers, if it has one and can have three."""
    can = one.topology is Topology.ONE and not one.has_one_server
    return replace(one, topology=Topology.THREE) if can else one


def _stages(chosen: Sequence[Scenario]) -> list[tuple[Topology, list[Scenario]]]:
    """Assign scenarios to stages: for three servers an isolated stage, if there is one."""
    played = {where: [one for one in chosen if one.topology is where] for where in Topology}
    if played[Topology.APART]:
        played[Topology.APART][:0] = played[Topology.THREE]
        played[Topology.THREE] = []
    # The run without a fault is compared with one that precedes all.
    return sorted(played.items(), key=lambda one: all(s.name != CALM for s in one[1]))


def _played_on_one(
    topology: Topology,
    runs: list[tuple[Scenario, int]],
    given: argparse.Namespace,
    *,
    is_secured: bool,
) -> Iterator[Outcome]:
    """Play ``runs``, and remove those that were played: up to one that spoils the stage.

    The remains of a failed one must not affect the others, nor those of one that is known to.
    """
    try:
        with Stage(topology, given.logs, is_secured=is_secured) as stage:
            while runs:
                scenario, run = runs.pop(0)
                outcome = asyncio.run(play(stage, scenario, run))
                yield outcome
                if outcome.error or scenario.spoils_stage:
                    return
    except Exception as failure:
        if not runs:
            raise
        one, _ = runs.pop(0)
        yield Outcome(one.name, one.fault, error=f"no stage for it: {said(failure)}")


def _tell(console: Console, outcome: Outcome) -> None:
    word = "good" if outcome.is_good else "NOT GOOD"
    console.print(_PLAYED.format(outcome, word), style="dim", markup=False)
    report.explain(console, outcome)


def _why_not(scenario: Scenario) -> str:
    """The reason why a scenario can't be played here; empty if it can."""
    if scenario.has_database and not databases.POSTGRESQL.exists():
        return "PostgreSQL 15 is not installed"
    if scenario.topology is Topology.APART:
        return namespaces.why_not()
    if scenario.needs_clocks and machines.COMPILER is None:
        return "no C compiler"
    if scenario.needs_mounts:
        return disks.why_not()
    return disks.why_not() if scenario.topology is Topology.DISKS else ""


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.chaos", description=__doc__)
    parser.add_argument("--only", default="", help="comma list of scenarios, see --list")
    parser.add_argument("--runs", type=int, default=1, help="how often each is played")
    parser.add_argument("--logs", type=Path, help="folder to keep what the processes say in")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    parser.add_argument(
        "--secured",
        action="store_true",
        help="three servers, with TLS, client certificates and the roles of mesh nats-config",
    )
    parser.add_argument("--list", action="store_true", help="name the scenarios and end")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
