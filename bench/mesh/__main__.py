"""``python -m bench.mesh``: measure, print the table, keep the result.

A measurement is a module beside this one with ``async def measure(servers: int) -> list[Figure]``.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

from bench import measuring
from bench.connector import report
from bench.mesh import written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.connector.harness import Figure

#: In the order in which they are run.
MEASUREMENTS: Final = ("idle", "deciding", "scaling", "busy", "failover")
#: Run by name only; the number of apps of the first, the time of the second are options.
THOUSAND: Final = "thousand"
SOAK: Final = "soak"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the measurements; returns the exit status."""
    known = (*MEASUREMENTS, THOUSAND, SOAK)
    parser = measuring.parser_of("mesh", __doc__, known)
    servers = parser.add_argument("--servers", type=int, default=1, choices=(1, 3))
    servers.help = "NATS servers; with three each stream has three replicas"
    apps = parser.add_argument("--apps", type=int, default=1000)
    apps.help = f"apps of {THOUSAND}, which is run by name only"
    minutes = parser.add_argument("--minutes", type=float, default=60.0)
    minutes.help = f"time of {SOAK}, which is run by name only"
    given = parser.parse_args(arguments)
    names = measuring.wanted(given.only or ",".join(MEASUREMENTS), known)
    if names is None:
        return 2
    console = measuring.console_of()
    started_s = time.monotonic()
    figures: list[Figure] = []
    failures: list[str] = []
    for name in names:
        sizes = (given.servers, *{THOUSAND: [given.apps], SOAK: [given.minutes]}.get(name, []))
        found, failed = measuring.all_measured(console, "mesh", [name], *sizes)
        figures, failures = figures + found, failures + failed
    report.say(console, figures, failures, "mesh")
    took_s = time.monotonic() - started_s
    if not given.only:
        kind = "mesh" if given.servers == 1 else f"mesh-{given.servers}-servers"
        made = {**report.document(figures, failures, took_s), "servers": given.servers}
        kept = measuring.keep(made, kind)
        console.print(f"kept in {kept}, and in docs/operations.md", markup=False)
        written.rewrite()
    console.print(f"took {took_s:.0f} s", markup=False)
    if failures:
        return 1
    return int(given.check and measuring.is_missed(figures))


if __name__ == "__main__":
    sys.exit(main())
