"""Report of the bench: a table, and a file with every run and the machine."""

from __future__ import annotations

import dataclasses
import math
import os
import platform
import re
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil
import pyspark
from rich.console import Console
from rich.table import Table

from mesh.jetstream import server
from mesh.processes import java

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.connector.harness import Figure

RESULTS: Final = Path(__file__).parents[1] / "results"

_ROOT: Final = Path(__file__).parents[2]


def shown(figures: Sequence[Figure], title: str) -> Table:
    """The figures as a table, one a line."""
    table = Table(title=title, title_justify="left")
    table.add_column("figure", overflow="fold")
    for name in ("measured", "ratio", "target", "ok"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("note", overflow="fold")
    for one in figures:
        met = {None: "", True: "yes", False: "NO"}[one.is_met]
        table.add_row(
            one.name,
            f"{number(one.value)} {one.unit}",
            "" if one.ratio is None else f"{one.ratio:.2f}",
            _target(one),
            met,
            one.note,
            style="red" if one.is_met is False else "",
        )
    return table


def _target(one: Figure) -> str:
    if one.target is None:
        return ""
    bound = ">=" if one.at_least else "<="
    unit = "" if one.ratio is not None else f" {one.unit}"
    return f"{bound} {number(one.target)}{unit}"


def number(value: float) -> str:
    """``value`` with three digits that matter, and commas from a thousand on."""
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def document(figures: Sequence[Figure], failures: Sequence[str], took_s: float) -> dict[str, Any]:
    """The result as stored: machine, commit, every figure with all its runs."""
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "took_s": round(took_s, 1),
        "machine": machine(),
        "commit": _git("rev-parse", "HEAD"),
        "is_dirty": bool(_git("status", "--porcelain", "--", ".", ":!bench/results")),
        "failures": list(failures),
        "figures": [
            dataclasses.asdict(one) | {"ratio": one.ratio, "is_met": one.is_met} for one in figures
        ],
    }


def machine() -> dict[str, Any]:
    """The machine of the measurement."""
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "cpu": _cpu_model(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "pyspark": pyspark.__version__,
        "nats_server": _first_match(r"v(\d\S+)", _said([str(server.find_binary()), "--version"])),
        "java": _first_match(
            r'version "([^"]+)"', _said([str(java.java_home() / "bin" / "java"), "-version"])
        ),
    }


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    return _first_match(r"model name\s*:\s*(.+)", text) or platform.machine()


def _first_match(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[1].strip() if found else ""


def _said(command: list[str]) -> str:
    """Both outputs of ``command``; "" when it does not run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return ""
    return done.stdout + done.stderr


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(_ROOT), *arguments],
            capture_output=True, text=True, timeout=30, check=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def say(console: Console, figures: Sequence[Figure], failures: Sequence[str], title: str) -> None:
    """Print the table, and the errors."""
    console.print(shown(figures, title))
    for failure in failures:
        console.print(f"failed: {failure}", style="red", markup=False)
