"""Cost of idle apps, time to deploy many of them, and latency of one that wakes up."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

import psutil

from bench.connector.harness import Figure
from bench.mesh import harness

if TYPE_CHECKING:
    from bench.mesh.harness import View

#: Time for compilers and caches to come to rest after the starts.
SETTLE_S: Final = 15.0
MEASURED_S: Final = 40.0
#: Apps that are woken, one after the other.
WOKEN: Final = 10


async def measure(servers: int, apps: int = 100) -> list[Figure]:
    """Deploy ``apps`` apps of two groups on one worker, leave them alone, and wake some."""
    async with harness.mesh(1, servers=servers) as view:
        # The cost of a first app is part of another measurement.
        await harness.deploy(view, ["First"])
        names = [f"Idle{number}" for number in range(apps)]
        deployed_s = await harness.deploy(view, names)
        await asyncio.sleep(SETTLE_S)
        pids = {"worker": view.processes.pid("w1"), "manager": view.processes.pid("m1")}
        pids |= {name: view.cluster.servers.pid(name) for name in view.cluster.servers.names}
        used = await _used(pids, MEASURED_S)
        memory = _memory(pids["worker"])
        woken_ms = [await _wake(view, name) * 1000 for name in names[:: max(1, apps // WOKEN)]]
    share = 100 / MEASURED_S
    worker = sum(v for (owner, _), v in used.items() if owner == "worker")
    parts = ", ".join(
        f"{kind} {seconds * share:.1f}"
        for (owner, kind), seconds in sorted(used.items())
        if owner == "worker"
    )
    others = ", ".join(
        f"{owner} {seconds * share:.1f}"
        for (owner, _), seconds in sorted(used.items())
        if owner != "worker"
    )
    held = ", ".join(f"{kind} {mb:.0f}" for kind, mb in sorted(memory.items()))
    return [
        Figure(
            f"deploy of {apps} apps of 2 groups on one worker", deployed_s, "s", 120.0,
            at_least=False, note="from the first deploy until all instances run",
        ),
        Figure(
            f"{apps} idle apps of 2 groups, of a core", worker * share, "%", 50.0,
            at_least=False, note=f"{parts}; besides: {others}",
        ),
        Figure(
            "first output after silence, median", statistics.median(woken_ms), "ms", 300.0,
            at_least=False, runs=tuple(woken_ms), note=f"slowest {max(woken_ms):.0f}",
        ),
        Figure(
            "memory of an idle instance", sum(memory.values()) / apps / 2, "MB",
            note=f"the worker's share of pages, whole: {held}",
        ),
    ]  # fmt: skip


async def _wake(view: View, name: str) -> float:
    """Seconds from an event to both of the app's first outputs, one with state and one without."""
    app = next(a.value for a in view.view.snapshot().apps if a.value.spec.name == name)
    _, entry = harness.channel(app.spec, "Input")
    streams = [harness.channel(app.spec, name)[1] for name in ("Means", "Twice")]
    return await harness.until_all(view, streams, (entry, b'{"k": 1, "v": 2.0}'))


async def _used(pids: dict[str, int], seconds: float) -> Counter[tuple[str, str]]:
    """Processor time by owner and kind of process in the next ``seconds``.

    Processes start and end, so the last sample of each counts.
    """
    ends_s = time.perf_counter() + seconds
    begins = _times(pids)
    latest = dict(begins)
    while (left_s := ends_s - time.perf_counter()) > 0:
        await asyncio.sleep(min(left_s, 4.0))
        latest |= _times(pids)
    used: Counter[tuple[str, str]] = Counter()
    for key, end_s in latest.items():
        used[key[0], key[1]] += end_s - begins.get(key, 0.0)  # type: ignore[assignment]
    return used


def _times(pids: dict[str, int]) -> dict[tuple[str, str, int], float]:
    found = {}
    for owner, pid in pids.items():
        for process in harness.tree(pid):
            try:
                times = process.cpu_times()
                kind = harness.kind_of(process)
            except psutil.Error:
                continue
            found[owner, kind, process.pid] = times.user + times.system
    return found


def _memory(pid: int) -> Counter[str]:
    """MB by kind of process; a page that several share counts once."""
    found: Counter[str] = Counter()
    for process in harness.tree(pid):
        try:
            found[harness.kind_of(process)] += process.memory_full_info().pss / 2**20  # type: ignore[assignment]
        except psutil.Error:
            continue
    return found
