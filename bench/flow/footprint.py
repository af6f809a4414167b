"""Start time, memory and idle processor time of a mesh without apps."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import TYPE_CHECKING, Final

import psutil

from bench.connector.harness import Figure
from bench.mesh import harness

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Spark ends the Python processes that planned a query after a minute without work.
_SETTLE_S: Final = 75.0
_IDLE_S: Final = 20.0
_STARTS: Final = 3


async def measure() -> list[Figure]:
    """A manager, a worker and NATS: memory is the processes' share of pages."""
    ready_s = [await _start_s() for _ in range(_STARTS - 1)]
    started_s = time.perf_counter()
    async with harness.mesh(1) as view:
        ready_s.append(time.perf_counter() - started_s)
        await asyncio.sleep(_SETTLE_S)
        worker = harness.tree(view.processes.pid("w1"))
        others = [
            *harness.tree(view.processes.pid("m1")),
            *view.server_processes,
        ]
        by_kind: dict[str, float] = {}
        for process in worker:
            kind = harness.kind_of(process)
            by_kind[kind] = by_kind.get(kind, 0.0) + _memory_mb([process])
        before_s = harness.cpu_s(worker)
        await asyncio.sleep(_IDLE_S)
        idle = (harness.cpu_s(worker) - before_s) / _IDLE_S * 100
        total = _memory_mb(worker) + _memory_mb(others)
    parts = ", ".join(f"{kind} {size:.0f}" for kind, size in sorted(by_kind.items()))
    return [
        Figure("start of NATS, a manager and a worker, until ready, median",
               statistics.median(ready_s), "s", 8.0, at_least=False, runs=tuple(ready_s),
               note=f"slowest of {_STARTS} {max(ready_s):.2f}"),
        Figure("memory of a worker without apps", sum(by_kind.values()), "MB", 600.0,
               at_least=False, note=parts),
        Figure("memory of NATS, a manager and a worker", total, "MB", 900.0, at_least=False),
        Figure("an idle worker without apps, of a core", idle, "%"),
    ]  # fmt: skip


async def _start_s() -> float:
    started_s = time.perf_counter()
    async with harness.mesh(1):
        return time.perf_counter() - started_s


def _memory_mb(processes: Iterable[psutil.Process]) -> float:
    return float(sum(process.memory_full_info().pss for process in processes)) / 2**20
