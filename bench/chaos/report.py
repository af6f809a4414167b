"""Report of the suite: a table of faults, and the same as JSON."""

from __future__ import annotations

import dataclasses
import statistics
from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from bench.chaos.run import Outcome


def by_fault(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """One entry for each fault: its runs together, in the order played."""
    found = []
    for name in dict.fromkeys(one.scenario for one in outcomes):
        runs = [one for one in outcomes if one.scenario == name]
        times = [one.recovery_s for one in runs if one.recovery_s is not None]
        found.append(
            {
                "scenario": name,
                "fault": runs[0].fault,
                "runs": len(runs),
                "recovery_s": round(statistics.median(times), 2) if times else None,
                "recovery_s_max": round(max(times), 2) if times else None,
                "median_ms": _worst(one.latency.median_ms for one in runs if one.latency),
                "p99_ms": _worst(one.latency.p99_ms for one in runs if one.latency),
                "excess_s": _worst(one.outage.excess_s for one in runs if one.outage),
                "rows": sum(one.compared.rows for one in runs),
                "lost": sum(one.compared.lost for one in runs),
                "doubled": sum(one.compared.doubled for one in runs),
                "disordered": sum(one.compared.disordered for one in runs),
                "is_explained": not any(one.untold for one in runs),
                "failures": [one.error for one in runs if one.error],
                "is_good": all(one.is_good for one in runs),
            }
        )
    return found


def _worst(values: Iterable[float]) -> float | None:
    """The largest of some values; None for none."""
    return max((round(value, 2) for value in values), default=None)


def document(outcomes: Sequence[Outcome], skipped: dict[str, str]) -> dict[str, Any]:
    """Everything, with every run and its story."""
    return {
        "is_good": all(one.is_good for one in outcomes),
        "faults": by_fault(outcomes),
        "skipped": skipped,
        "runs": [dataclasses.asdict(one) for one in outcomes],
    }


def table(outcomes: Sequence[Outcome]) -> Table:
    """Fault, runs, recovery time, lost, doubled."""
    shown = Table(title="chaos", title_justify="left")
    shown.add_column("fault", overflow="fold")
    times = ("recovery s", "max", "p50 ms", "p99 ms")
    for name in ("runs", *times, "rows", "lost", "doubled", "disordered", "story", "ok"):
        shown.add_column(name, justify="right", no_wrap=True)
    for one in by_fault(outcomes):
        shown.add_row(
            one["fault"],
            str(one["runs"]),
            "" if one["recovery_s"] is None else f"{one['recovery_s']:.1f}",
            "" if one["recovery_s_max"] is None else f"{one['recovery_s_max']:.1f}",
            "" if one["median_ms"] is None else f"{one['median_ms']:.0f}",
            "" if one["p99_ms"] is None else f"{one['p99_ms']:.0f}",
            f"{one['rows']:,}",
            *(str(one[name]) for name in ("lost", "doubled", "disordered")),
            "told" if one["is_explained"] else "NOT",
            "yes" if one["is_good"] else "NO",
            style="" if one["is_good"] else "red",
        )
    return shown


def say(console: Console, outcomes: Sequence[Outcome], skipped: dict[str, str]) -> None:
    """Print the table, and the scenarios left out."""
    console.print(table(outcomes))
    for name, why in skipped.items():
        console.print(f"skipped {name}: {why}", style="yellow", markup=False)


def explain(console: Console, outcome: Outcome) -> None:
    """Print the errors of a run; nothing for a good one."""
    details = [f"failed: {outcome.error}"] if outcome.error else []
    details += outcome.compared.told
    details += (f"the story does not tell: {pattern}" for pattern in outcome.untold)
    if not outcome.is_good:
        details += outcome.story
    for detail in details:
        console.print(f"{outcome.scenario}: {detail}", style="red", markup=False)
