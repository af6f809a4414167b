"""Common parts of benches: options, console, measurements that are modules, results."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

from rich.console import Console

from bench.connector import report

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.connector.harness import Figure


def parser_of(bench: str, about: str | None, names: Sequence[str]) -> argparse.ArgumentParser:
    """A parser with the options ``--check`` and ``--only`` of ``python -m bench.BENCH``."""
    parser = argparse.ArgumentParser(prog=f"python -m bench.{bench}", description=about)
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    known = ", ".join(names)
    parser.add_argument("--only", default="", help=f"comma list of {known}; nothing is kept then")
    return parser


def wanted(only: str, names: Sequence[str]) -> Sequence[str] | None:
    """The measurements to run; None, after a message, if one is unknown."""
    chosen = only.split(",") if only else names
    unknown = sorted(set(chosen) - set(names))
    if unknown:
        listed = f"{', '.join(unknown)}; there are {', '.join(names)}"
        print(f"no such measurement: {listed}", file=sys.stderr)
        return None
    return chosen


def console_of(*, stderr: bool = False) -> Console:
    """The terminal, or a wide page for a file."""
    return Console(stderr=stderr, width=None if sys.stdout.isatty() else 160)


def measured(console: Console, bench: str, name: str, *arguments: object) -> list[Figure]:
    """Run one measurement of a bench, and show the time that it took."""
    module: Any = importlib.import_module(f"bench.{bench}.{name}")
    began_s = time.monotonic()
    try:
        found = module.measure(*arguments)
        figures: list[Figure] = asyncio.run(found) if asyncio.iscoroutine(found) else found
    finally:
        console.print(f"{name}: {time.monotonic() - began_s:.0f} s", style="dim")
    return figures


def all_measured(
    console: Console, bench: str, names: Sequence[str], *arguments: object
) -> tuple[list[Figure], list[str]]:
    """Run measurements of a bench; their figures, and the errors of those that failed."""
    figures: list[Figure] = []
    failures: list[str] = []
    for name in names:
        try:
            figures += measured(console, bench, name, *arguments)
        except Exception as error:
            # A failure must not lose the others' figures; the exit status shows it.
            traceback.print_exc()
            failures.append(f"{name}: {type(error).__name__}: {str(error).splitlines()[:1]}")
    return figures, failures


def keep(kept: dict[str, Any], kind: str) -> Path:
    """Write a result to ``bench/results/``, named by kind, day and commit."""
    commit = str(kept["commit"])[:10] or "unknown"
    report.RESULTS.mkdir(exist_ok=True)
    path = report.RESULTS / f"{kind}-{kept['time'][:10]}-{commit}.json"
    path.write_text(json.dumps(kept, indent=1) + "\n")
    return path


def is_missed(figures: Sequence[Figure]) -> bool:
    """Whether a figure misses its target."""
    return any(one.is_met is False for one in figures)
