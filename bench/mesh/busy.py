"""Test whether slow processes are declared dead, on a machine without spare processor time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import psutil

from bench.connector.harness import Figure
from bench.mesh import harness, scaling
from mesh.jetstream.journal import read
from mesh.processes.bounded_process import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.mesh.harness import View
    from mesh.control.journal import JournalEntry

MEASURED_S: Final = 60.0
#: Interval at which ages are sampled.
_LOOK_S: Final = 0.02
#: Journal texts about a worker, leader or server that was considered dead, also by itself.
_ALARMS: Final = ("is gone", "no heartbeat was accepted", "no longer leads", "lost its connection")


async def measure(servers: int) -> list[Figure]:
    """Load it, keep each core busy besides, and sample the ages of heartbeats and of the lease."""
    async with harness.mesh(2, managers=2, servers=servers) as view:
        await harness.deploy(view, ["Scaled"], scaling.APP)
        load = scaling.Load(view)
        publishing = asyncio.create_task(load.publish())
        await asyncio.sleep(scaling.CALM_S)
        before = set(_alarms(await read(view.js, "")))
        epochs = _epochs(view)
        published, started_s = load.published, time.monotonic()
        with _hogs(psutil.cpu_count() or 1):
            oldest_s = await _oldest(view, MEASURED_S)
        took_s = time.monotonic() - started_s
        rate = (load.published - published) / took_s
        alarms = sorted(set(_alarms(await read(view.js, ""))) - before)
        moves = len(_epochs(view) - epochs)
        load.is_over = True
        await publishing
    kinds = ", ".join(f"{kind} {age_s:.2f} s" for kind, age_s in sorted(oldest_s.items()))
    return [
        Figure(
            f"false alarms in {MEASURED_S:.0f} s of load and a busy loop on each core",
            len(alarms) + moves, "", 0.0, at_least=False,
            note=f"{moves} moves; told: {'; '.join(text for _, text in alarms) or 'nothing'}",
        ),
        Figure(
            "oldest heartbeat or lease meanwhile", max(oldest_s.values()), "s",
            note=f"{kinds}; {rate:,.0f} events/s",
        ),
    ]  # fmt: skip


def _alarms(entries: list[JournalEntry]) -> Iterator[tuple[int, str]]:
    for entry in entries:
        told = f"{entry.by} {entry.text}: {entry.cause}"
        if any(word in told for word in _ALARMS):
            yield entry.at_ms, told


def _epochs(view: View) -> set[tuple[str, int]]:
    """Each placement with its epoch."""
    return {(a.value.instance, a.value.epoch) for a in view.view.snapshot().assignments}


async def _oldest(view: View, seconds: float) -> dict[str, float]:
    """The longest time for which a node's heartbeat or the lease stood, seconds."""
    oldest_s = {"worker": 0.0, "manager": 0.0, "lease": 0.0}
    ends_s = time.monotonic() + seconds
    while time.monotonic() < ends_s:
        await asyncio.sleep(_LOOK_S)
        now = view.view.snapshot()
        for node in now.nodes:
            kind = node.value.role.value
            oldest_s[kind] = max(oldest_s[kind], now.now_s - node.seen_at_s)
        if now.lease is not None:
            oldest_s["lease"] = max(oldest_s["lease"], now.now_s - now.lease.seen_at_s)
    return oldest_s


@contextmanager
def _hogs(count: int) -> Iterator[None]:
    """Processes that do nothing but use a core each."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", "while True: pass"],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent(),
        )
        for _ in range(count)
    ]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()
