"""``python -m bench.connector``: measure, print the table, keep the result.

A measurement is a module beside this one with ``def measure(bench: Bench) -> list[Figure]``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import signal
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from bench.connector import report
from bench.connector.harness import Bench

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.connector.harness import Figure

#: In the order in which they are run: those that most need a quiet machine are first.
MEASUREMENTS: Final = ("reading", "arrow_reading", "writing", "piping", "latency", "starts", "idle")


class InterruptedRunError(BaseException):
    """A signal ends the run; no handler of a measurement's own is to catch it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the measurements; returns the exit status."""
    given = _parse(arguments)
    wanted = given.only.split(",") if given.only else MEASUREMENTS
    unknown = sorted(set(wanted) - set(MEASUREMENTS))
    if unknown:
        known = ", ".join(MEASUREMENTS)
        print(f"no such measurement: {', '.join(unknown)}; there are {known}", file=sys.stderr)
        return 2
    console = Console(stderr=given.output == "json", width=None if sys.stdout.isatty() else 160)
    started_s = time.monotonic()
    _end_on_signals(given.timeout)
    try:
        figures, failures = _measured(wanted, console)
    except InterruptedRunError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 130
    finally:
        signal.alarm(0)
    took_s = time.monotonic() - started_s
    report.say(console, figures, failures)
    kept = report.document(figures, failures, took_s)
    if given.output == "json":
        print(json.dumps(kept, indent=1))
    if not given.only:
        console.print(f"kept in {report.keep(kept)}", markup=False)
    console.print(f"took {took_s:.0f} s", markup=False)
    if failures:
        return 1
    return int(given.check and any(one.is_met is False for one in figures))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.connector", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    names = ", ".join(MEASUREMENTS)
    parser.add_argument("--only", default="", help=f"comma list of {names}; nothing is kept then")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    parser.add_argument("--timeout", type=int, default=900, help="seconds for the whole run")
    return parser.parse_args(arguments)


def _measured(wanted: Sequence[str], console: Console) -> tuple[list[Figure], list[str]]:
    figures: list[Figure] = []
    failures: list[str] = []
    with Bench() as bench:
        for name in wanted:
            started_s = time.monotonic()
            module: Any = importlib.import_module(f"bench.connector.{name}")
            try:
                figures += module.measure(bench)
            except Exception as error:
                # A failure must not lose the others' figures; the exit status shows it.
                traceback.print_exc()
                failures.append(f"{name}: {type(error).__name__}: {str(error).splitlines()[:1]}")
            console.print(f"{name}: {time.monotonic() - started_s:.0f} s", style="dim")
    return figures, failures


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
