"""Cost of a run, and of storing the state, with many open sessions."""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from bench.connector.harness import Figure
from mesh.language.parser import parse_app
from mesh.operators.executor import Executor, InputRun
from mesh.plan.bind import bind

if TYPE_CHECKING:
    from collections.abc import Callable

MANY: Final = 100_000
FEW: Final = 1_000
#: Events of a run.
RUN: Final = 200
RUNS: Final = 15
_START_MS: Final = 1_700_000_000_000
_APP: Final = (
    "define stream S (k string, n long);\n"
    "from S#window.session(1 hour, k) select k, n insert all events into O;"
)


def measure() -> list[Figure]:
    """The figures; a run is compared with the same among few sessions."""
    few_ms, _, _ = _times(FEW)
    many_ms, stored_ms, first_ms = _times(MANY)
    return [
        Figure(
            f"{RUN} events amid {MANY:,} open sessions, beside amid {FEW:,}", many_ms / few_ms,
            "times", 3.0, at_least=False, note=f"{many_ms:.1f} and {few_ms:.1f} ms",
        ),
        Figure(
            f"state of {MANY:,} sessions of which {RUN} have changed, beside all",
            stored_ms / first_ms, "times", 0.7, at_least=False,
            note=f"{stored_ms:.0f} and {first_ms:.0f} ms",
        ),
    ]  # fmt: skip


def _times(sessions: int) -> tuple[float, float, float]:
    """Median ms of a run and of the state after it; of the first state."""
    executor = Executor(bind(parse_app(_APP)), ["O"])
    for first in range(0, sessions, 10_000):
        _run(executor, first, min(10_000, sessions - first), sessions)
    first_ms = _ms(executor.snapshot)
    runs, states = [], []
    for number in range(RUNS):
        runs.append(_ms(partial(_run, executor, sessions + number * RUN, RUN, sessions)))
        states.append(_ms(executor.snapshot))
    return statistics.median(runs), statistics.median(states), first_ms


def _run(executor: Executor, first: int, count: int, sessions: int) -> None:
    numbers = np.arange(first, first + count)
    keys = pa.array([f"k{number % sessions}" for number in numbers.tolist()])
    rows = pa.RecordBatch.from_arrays([keys, pa.array(numbers)], names=["k", "n"])
    times = _START_MS + numbers // 1000
    executor.run([InputRun("S", numbers + 1, times, rows)], {"S": int(times[-1])})


def _ms(call: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    call()
    return (time.perf_counter() - started_s) * 1000
