"""``python -m bench.operators --oracle PROGRAM``: our operators and the engine, one core each.

PROGRAM drives the engine (``--bench NAME --app-file FILE``); its default is the environment
variable ``SIDDHI_ORACLE``.  Rates are events for each second of processor time of the working
thread, so other load of the machine affects neither.  The measurements in Spark
(``bench.operators.spark``) are first, from NATS to NATS, by wall clock.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table

from bench import measuring
from bench.connector import report
from bench.operators import memory, sessions
from bench.operators.apps import MEASURED
from bench.operators.ours import BATCH
from mesh.files import scratch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.connector.harness import Figure
    from bench.operators.apps import Measured

#: Name of the measurement of ``bench.operators.memory`` for ``--only``.
_MEMORY: Final = "memory"
#: Name of the measurements of ``bench.operators.sessions`` for ``--only``.
_SESSIONS: Final = "sessions"
#: Name of the measurements of ``bench.operators.spark`` for ``--only``.
_THROUGH_SPARK: Final = "through spark"
_ONE_CORE: Final = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, keep the result; 1 when ``--check`` finds a missed target."""
    parser = argparse.ArgumentParser(prog="python -m bench.operators", description=__doc__)
    parser.add_argument("--oracle", type=Path, default=os.environ.get("SIDDHI_ORACLE"))
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--only", default="", help="measure those whose names hold this text")
    parser.add_argument("--keys", default="100,10000")
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--unchecked", action="store_true", help="also what the planner refuses")
    given = parser.parse_args(arguments)
    chosen = [measured for measured in MEASURED if given.only in measured.name]
    if chosen and given.oracle is None:
        parser.error("--oracle or SIDDHI_ORACLE: the program that drives the reference engine")
    started_s = time.monotonic()
    figures: list[Figure] = []
    if given.only in _THROUGH_SPARK:
        # Those that most need a quiet machine are first; without Spark there is no import of it.
        from bench.operators import spark

        figures = spark.measure()
    held = memory.measure() if given.only in _MEMORY else []
    held += sessions.measure() if given.only in _SESSIONS else []
    rows = []
    for measured in chosen:
        for keys in map(int, given.keys.split(",")):
            row = measure_one(measured, keys, given)
            rows.append(row)
            print(_line(row), file=sys.stderr)
    _table(rows, figures, held)
    figures += held
    if not given.only:
        kept = report.document(figures, [], time.monotonic() - started_s)
        kept |= {"through_spark": kept["figures"], "figures": rows}
        print(f"kept in {measuring.keep(kept, 'operators')}")
    is_missed = measuring.is_missed(figures) or not all(row["is_met"] for row in rows)
    return int(given.check and is_missed)


def measure_one(measured: Measured, keys: int, given: argparse.Namespace) -> dict[str, Any]:
    """Rates of an app here and in the engine; without an oracle the engine's is left out."""
    command = [sys.executable, "-m", "bench.operators.ours", measured.name, str(keys)]
    command += ["--events", str(given.events), *(["--unchecked"] if given.unchecked else [])]
    env = {**os.environ, **_ONE_CORE}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    ours: dict[str, Any] = {"error": done.stderr[-400:]}
    if done.stdout:
        ours = json.loads(done.stdout.splitlines()[-1])
    engine = _engine(given.oracle, measured, keys, given.events) if given.oracle else {}
    row: dict[str, Any] = {"name": measured.name, "keys": keys, "target": measured.targets[keys]}
    row |= {"ours": ours, "engine": engine, "times": None, "is_met": False}
    if "cpu" in ours and "median_events_per_thread_cpu_s" in engine:
        row["times"] = ours["cpu"] / engine["median_events_per_thread_cpu_s"]
        row["is_met"] = row["times"] >= row["target"]
    return row


def _engine(oracle: Path, measured: Measured, keys: int, events: int) -> dict[str, Any]:
    with scratch.directory("bench") as directory:
        path = directory / "app.siddhi"
        path.write_text(measured.app, encoding="utf-8")
        # No wait for a quiet machine: processor time is measured.
        command = [sys.executable, str(oracle), "--bench", "mine", "--app-file", str(path)]
        command += ["--n", str(events), "--keys", str(keys), "--batch", str(BATCH)]
        command += ["--runs", "3", "--warmup", "2", "--max-sec", "5", "--quiet", "99"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        return {"error": done.stderr[-400:]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _line(row: dict[str, Any]) -> str:
    if row["times"] is None:
        said = row["ours"].get("error") or row["engine"].get("error")
        return f"{row['name']}, {row['keys']} keys: {said}"
    return f"{row['name']}, {row['keys']} keys: {row['times']:.2f} of at least {row['target']:g}"


def _table(
    rows: Sequence[dict[str, Any]], figures: Sequence[Figure], held: Sequence[Figure]
) -> None:
    console = measuring.console_of()
    table = Table("query", "keys", "events/s here", "engine", "times", "at least", "")
    for row in rows:
        engine = row["engine"].get("median_events_per_thread_cpu_s")
        table.add_row(
            row["name"],
            f"{row['keys']:,}",
            f"{row['ours']['cpu']:,.0f}" if "cpu" in row["ours"] else "not yet",
            f"{engine:,.0f}" if engine else "failed",
            "" if row["times"] is None else f"{row['times']:.2f}",
            f"{row['target']:g}",
            "met" if row["is_met"] else "missed",
        )
    if rows:
        console.print(table)
    if figures:
        console.print(report.shown(figures, "through Spark"))
    if held:
        console.print(report.shown(held, "large states"))


if __name__ == "__main__":
    sys.exit(main())
