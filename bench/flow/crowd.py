"""Many instances on one worker: at rest, with events for each, and beside an endless function."""

from __future__ import annotations

import asyncio
from typing import Final

import psutil

from bench.connector.harness import Figure
from bench.flow.latency import APPS, HEAD, metered
from bench.mesh import harness

IDLE: Final = 200
BUSY: Final = 100
#: Events per second of each busy instance.
_RATE: Final = 100
_SETTLE_S: Final = 20.0
_IDLE_S: Final = 30.0
_MEASURED_S: Final = 10.0
_LOOP: Final = """
@App:name('{name}')
define function loop[python] return long {{ while True: pass }};
define stream Input (n long, v double);
from Input select loop(n) as n insert into Output;
"""


async def measure() -> list[Figure]:
    """Processor time of idle instances; latency with many busy ones, and beside an endless loop."""
    text = HEAD + APPS["Stateless"]
    async with harness.mesh(1) as view:
        bare = await _share(view)
        names = [f"Crowd{number}" for number in range(IDLE)]
        await harness.deploy(view, names, text)
        idle = await _share(view)
        busy = names[:BUSY]
        await metered(view, busy, BUSY * _RATE, 2.0)
        worker_s, nats_s = _processor_s(view)
        found = await metered(view, busy, BUSY * _RATE, _MEASURED_S)
        ends = _processor_s(view)
        await harness.deploy(view, ["Loop"], _LOOP)
        await view.client.publish("mesh.Loop.Input", b'{"n": 1, "v": 1.0}')
        beside = await metered(view, names[0], 200, _MEASURED_S)
    wrong = sum(one.repeats + one.missing for one in (found, beside))
    return [
        Figure(f"{IDLE} idle instances, of a core, beyond an idle worker", idle - bare, "%", 1.0,
               at_least=False, note=f"the worker alone {bare:.1f} %"),
        Figure(f"{BUSY} instances with {_RATE} events/s each, p99", found.p99_ms, "ms", 60.0,
               at_least=False, note=f"median {found.p50_ms:.1f} ms, highest {found.max_ms:.0f} ms"),
        Figure("processor time of that by the worker and by NATS",
               sum(ends) - worker_s - nats_s, "s", None,
               note=f"worker {ends[0] - worker_s:.1f} s, NATS {ends[1] - nats_s:.1f} s"),
        Figure("another instance's function never returns, p99", beside.p99_ms, "ms", 100.0,
               at_least=False, note=f"200 events/s; highest {beside.max_ms:.0f} ms"),
        Figure("events of them that a subscriber saw twice, or not at all", wrong, "", 0.0,
               at_least=False),
    ]  # fmt: skip


def _processor_s(view: harness.View) -> tuple[float, float]:
    """Processor time so far of the worker and of NATS, seconds."""
    worker = harness.tree(view.processes.pid("w1"))
    return harness.cpu_s(worker), harness.cpu_s(view.server_processes)


async def _share(view: harness.View) -> float:
    """Share of a core that the worker uses, percent."""
    await asyncio.sleep(_SETTLE_S)
    processes: list[psutil.Process] = harness.tree(view.processes.pid("w1"))
    before_s = harness.cpu_s(processes)
    await asyncio.sleep(_IDLE_S)
    return (harness.cpu_s(processes) - before_s) / _IDLE_S * 100
