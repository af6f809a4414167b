"""``python -m bench.connector``: measure, print the table, keep the result.

A measurement is a module beside this one with ``def measure(bench: Bench) -> list[Figure]``.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import TYPE_CHECKING, Final

from bench import measuring
from bench.connector import report
from bench.connector.harness import Bench

if TYPE_CHECKING:
    from collections.abc import Sequence

#: In the order in which they are run: those that most need a quiet machine are first.
MEASUREMENTS: Final = ("reading", "arrow_reading", "writing", "piping", "latency", "starts", "idle")


class InterruptedRunError(BaseException):
    """A signal ends the run; no handler of a measurement's own is to catch it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the measurements; returns the exit status."""
    parser = measuring.parser_of("connector", __doc__, MEASUREMENTS)
    parser.add_argument("--output", choices=("table", "json"), default="table")
    parser.add_argument("--timeout", type=int, default=900, help="seconds for the whole run")
    given = parser.parse_args(arguments)
    names = measuring.wanted(given.only, MEASUREMENTS)
    if names is None:
        return 2
    console = measuring.console_of(stderr=given.output == "json")
    started_s = time.monotonic()
    _end_on_signals(given.timeout)
    try:
        with Bench() as bench:
            figures, failures = measuring.all_measured(console, "connector", names, bench)
    except InterruptedRunError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 130
    finally:
        signal.alarm(0)
    took_s = time.monotonic() - started_s
    report.say(console, figures, failures, "pyspark_nats")
    kept = report.document(figures, failures, took_s)
    if given.output == "json":
        print(json.dumps(kept, indent=1))
    if not given.only:
        console.print(f"kept in {measuring.keep(kept, 'connector')}", markup=False)
    console.print(f"took {took_s:.0f} s", markup=False)
    if failures:
        return 1
    return int(given.check and measuring.is_missed(figures))


def _end_on_signals(timeout_s: int) -> None:
    """Make signals and the deadline end the run in order: server, JVM and files are removed."""

    def end(number: int, _: object) -> None:
        # Nothing may disturb the cleaning up.
        for other in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
            signal.signal(other, signal.SIG_IGN)
        why = f"not done in {timeout_s} s" if number == signal.SIGALRM else "interrupted"
        raise InterruptedRunError(why)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, end)
    signal.alarm(timeout_s)


if __name__ == "__main__":
    sys.exit(main())
