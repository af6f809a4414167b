"""``python -m bench.ask``: aggregations beside the engine, their rows, and on-demand reads.

``--oracle PROGRAM`` drives the engine, as for ``bench.operators``; without it the rates of the
engine are left out.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench import measuring
from bench.ask import end_to_end, reads, rows, through_nats, under_load
from bench.connector import report
from bench.connector.harness import Figure
from bench.operators.__main__ import measure_one
from bench.operators.apps import MEASURED

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Measurements for ``--only``: reads while events come in, others, rows in PostgreSQL, events from
#: NATS to NATS, rates of one process.
_PARTS: Final = ("load", "reads", "rows", "trip", "rates")
_KEYS: Final = (100, 10_000)
#: Times the engine's rate, and events a second where event times spread over an hour.
_TIMES: Final = 4.0
_SPREAD_RATE: Final = 5e6
_BY_CLOCK: Final = "aggregation, five base values"
_BY_TIME: Final = "aggregation by times over an hour, five base values"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, keep the result; 1 when ``--check`` finds a missed target."""
    parser = argparse.ArgumentParser(prog="python -m bench.ask", description=__doc__)
    parser.add_argument("--oracle", type=Path, default=os.environ.get("SIDDHI_ORACLE"))
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--only", choices=_PARTS, help="measure these alone")
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--unchecked", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    started_s = time.monotonic()
    figures: list[Figure] = []
    chosen = _PARTS if given.only is None else (given.only,)
    if "load" in chosen:
        # It most needs a quiet machine.
        figures += asyncio.run(under_load.measure())
    if "reads" in chosen:
        figures += reads.measure()
        figures += through_nats.measure()
    if "rows" in chosen:
        figures += rows.measure()
    if "trip" in chosen:
        figures += end_to_end.measure()
    if "rates" in chosen:
        figures += _rates(given)
    measuring.console_of().print(report.shown(figures, "ask"))
    if given.only is None:
        kept = report.document(figures, [], time.monotonic() - started_s)
        print(f"kept in {measuring.keep(kept, 'ask')}")
    return int(given.check and measuring.is_missed(figures))


def _rates(given: argparse.Namespace) -> list[Figure]:
    """Events for each second of processor time, beside the engine's in arrays."""
    figures = []
    for measured in MEASURED:
        for keys in _KEYS if measured.name in (_BY_CLOCK, _BY_TIME) else ():
            row = measure_one(measured, keys, given)
            ours = row["ours"].get("cpu", 0.0)
            engine = row["engine"].get("median_events_per_thread_cpu_s")
            name = f"{measured.name}, {keys:,} groups"
            if measured.name == _BY_TIME:
                figures.append(Figure(name, ours, "events/s", _SPREAD_RATE))
            if engine:
                target = _TIMES if measured.name == _BY_CLOCK else None
                figures.append(
                    Figure(f"{name}, of the engine", ours, "events/s", target, limit=engine)
                )
    return figures


if __name__ == "__main__":
    sys.exit(main())
