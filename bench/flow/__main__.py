"""``python -m bench.flow``: measure, print the table, keep the result.

A measurement is a module beside this one with ``async def measure() -> list[Figure]``.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from bench.connector import report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.connector.harness import Figure

#: In the order in which they are run.
MEASUREMENTS: Final = ("latency", "rates", "footprint")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the measurements; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.flow", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    names = ", ".join(MEASUREMENTS)
    parser.add_argument("--only", default="", help=f"comma list of {names}; nothing is kept then")
    given = parser.parse_args(arguments)
    wanted = given.only.split(",") if given.only else MEASUREMENTS
    unknown = sorted(set(wanted) - set(MEASUREMENTS))
    if unknown:
        print(f"no such measurement: {', '.join(unknown)}; there are {names}", file=sys.stderr)
        return 2
    console = Console(width=None if sys.stdout.isatty() else 160)
    started_s = time.monotonic()
    figures: list[Figure] = []
    for name in wanted:
        module: Any = importlib.import_module(f"bench.flow.{name}")
        began_s = time.monotonic()
        figures += asyncio.run(module.measure())
        console.print(f"{name}: {time.monotonic() - began_s:.0f} s", style="dim")
    console.print(report.shown(figures, "flow"))
    if not given.only:
        kept = report.document(figures, [], time.monotonic() - started_s)
        commit = str(kept["commit"])[:10] or "unknown"
        path = report.RESULTS / f"flow-{kept['time'][:10]}-{commit}.json"
        path.write_text(json.dumps(kept, indent=1) + "\n")
        console.print(f"kept in {path}", markup=False)
    return int(given.check and any(one.is_met is False for one in figures))


if __name__ == "__main__":
    sys.exit(main())
