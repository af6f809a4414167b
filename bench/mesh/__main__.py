"""``python -m bench.mesh``: measure, print the table, keep the result.

A measurement is a module beside this one with ``async def measure(servers: int) -> list[Figure]``.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from bench.connector import report
from bench.mesh import written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.connector.harness import Figure

#: In the order in which they are run.
MEASUREMENTS: Final = ("idle", "deciding", "scaling", "busy", "failover")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the measurements; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.mesh", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    names = ", ".join(MEASUREMENTS)
    parser.add_argument("--only", default="", help=f"comma list of {names}; nothing is kept then")
    servers = parser.add_argument("--servers", type=int, default=1, choices=(1, 3))
    servers.help = "NATS servers; with three each stream has three replicas"
    given = parser.parse_args(arguments)
    wanted = given.only.split(",") if given.only else MEASUREMENTS
    unknown = sorted(set(wanted) - set(MEASUREMENTS))
    if unknown:
        print(f"no such measurement: {', '.join(unknown)}; there are {names}", file=sys.stderr)
        return 2
    console = Console(width=None if sys.stdout.isatty() else 160)
    started_s = time.monotonic()
    figures: list[Figure] = []
    failures: list[str] = []
    for name in wanted:
        module: Any = importlib.import_module(f"bench.mesh.{name}")
        began_s = time.monotonic()
        try:
            figures += asyncio.run(module.measure(given.servers))
        except Exception as error:
            # A failure must not lose the others' figures; the exit status shows it.
            traceback.print_exc()
            failures.append(f"{name}: {type(error).__name__}: {str(error).splitlines()[:1]}")
        console.print(f"{name}: {time.monotonic() - began_s:.0f} s", style="dim")
    console.print(report.shown(figures, "mesh"))
    for failure in failures:
        console.print(f"failed: {failure}", style="red", markup=False)
    took_s = time.monotonic() - started_s
    if not given.only:
        kept = _keep(report.document(figures, failures, took_s), given.servers)
        console.print(f"kept in {kept}, and in docs/operations.md", markup=False)
        written.rewrite()
    console.print(f"took {took_s:.0f} s", markup=False)
    if failures:
        return 1
    return int(given.check and any(one.is_met is False for one in figures))


def _keep(kept: dict[str, Any], servers: int) -> str:
    commit = str(kept["commit"])[:10] or "unknown"
    kind = "mesh" if servers == 1 else f"mesh-{servers}-servers"
    path = report.RESULTS / f"{kind}-{kept['time'][:10]}-{commit}.json"
    path.write_text(json.dumps({**kept, "servers": servers}, indent=1) + "\n")
    return str(path)


if __name__ == "__main__":
    sys.exit(main())
