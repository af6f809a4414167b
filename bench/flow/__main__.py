"""``python -m bench.flow``: measure, print the table, keep the result.

A measurement is a module beside this one with ``async def measure() -> list[Figure]``.  With
``--secured`` each is made beside its twin with TLS and roles (``bench.flow.secured``).
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from bench import measuring
from bench.connector import report
from bench.flow import secured

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.connector.harness import Figure

#: In the order in which they are run.
MEASUREMENTS: Final = (
    "latency", "repeats", "batches", "rates", "backlog", "bulk", "crowd", "footprint", "history",
)  # fmt: skip
#: Those that ``--events`` gives a size.
_SIZED: Final = ("latency", "repeats", "rates", "backlog", "history")
#: Those of which ``--secured`` has both meshes run at the same time.
_ALTERNATED: Final = ("latency", "rates")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the measurements; returns the exit status."""
    parser = measuring.parser_of("flow", __doc__, MEASUREMENTS)
    sized = " and ".join(_SIZED)
    parser.add_argument("--events", type=int, help=f"number of events in {sized}")
    parser.add_argument("--times", type=int, help="rows of history for each event that is played")
    parser.add_argument("--secured", action="store_true", help="beside TLS, roles, three servers")
    parser.add_argument("--servers", default="1,3", help="numbers of servers with --secured")
    parser.add_argument("--rounds", type=int, default=1, help="of which --secured takes the best")
    given = parser.parse_args(arguments)
    names = measuring.wanted(given.only, MEASUREMENTS)
    if names is None:
        return 2
    console = measuring.console_of()
    started_s = time.monotonic()
    figures: list[Figure] = []
    title = "flow, secured beside plain" if given.secured else "flow"
    for name in names:
        size: tuple[int, ...] = (given.events,) if given.events and name in _SIZED else ()
        if name == "history" and size and given.times:
            size = (*size, given.times)
        measure = partial(measuring.measured, console, "flow", name, *size)
        counts = [int(count) for count in given.servers.split(",")]
        if given.secured and name in _ALTERNATED:
            module: Any = importlib.import_module(f"bench.flow.{name}")
            timed = partial(module.measure, *size)
            shown = asyncio.run(secured.alternated(timed, counts, given.rounds))
        elif given.secured:
            shown = secured.measured(measure, counts, given.rounds)
        else:
            shown = measure()
        # As they come: a later measurement may fail, and some take half an hour.
        console.print(report.shown(shown, title))
        figures += shown
    if not given.only:
        kept = report.document(figures, [], time.monotonic() - started_s)
        kind = "flow-secured" if given.secured else "flow"
        console.print(f"kept in {measuring.keep(kept, kind)}", markup=False)
    return int(given.check and measuring.is_missed(figures))


if __name__ == "__main__":
    sys.exit(main())
