"""Latency from a client's publication of an event to the subscription of another client.

A process of its own publishes and subscribes.  So times are of one clock, and its work is not that
of the mesh.  It also counts repeats: a core subscriber sees each event once.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from bench.connector.harness import Figure
from bench.flow.meter import Job, Measured
from bench.mesh import harness
from mesh.processes.bounded_process import die_with_parent
from tests.support.secured import PUBLISHER, READER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.mesh.harness import View

HEAD: Final = """
@App:name('{name}')
define stream Input (n long, v double);
@dist(execGroup='first')
"""
#: Apps with one group, and one with three in a row.
APPS: Final = {
    "Stateless": "from Input[v >= 0] select n, v * 2 as w insert into Output;",
    "Window": "from Input#window.length(100) select n, avg(v) as mean insert into Output;",
    "Pattern": """
from every a=Input[v >= 0] -> b=Input[v > a.v] select b.n, a.v as before insert into Output;
""",
    "Chain": """
from Input[v >= 0] select n, v * 2 as w insert into Filtered;
@dist(execGroup='second')
from Filtered#window.length(10) select n, sum(w) as total insert into Sums;
@dist(execGroup='third')
from Sums[total >= 0] select n, total insert into Output;
""",
}
#: Label, and the targets of the median and of the 99th percentile in milliseconds.
_TARGETS: Final = {
    "Stateless": ("stateless", 8.0, 25.0),
    "Window": ("window", 12.0, 40.0),
    "Pattern": ("pattern", 12.0, 40.0),
    "Chain": ("three groups in a row", None, 100.0),
}
_WARM_UP_S: Final = 5.0
#: Events of each app; ``--events`` gives another number.
EVENTS: Final = 4_000
_RATE: Final = 200
_FAST: Final = 20_000
_SILENCE_S: Final = 60.0


async def measure(events: int = EVENTS) -> list[Figure]:
    """200 events a second, 20,000 events a second, and one event after a minute of silence."""
    figures = []
    wrong = 0
    async with harness.mesh(1) as view:
        for name, text in APPS.items():
            await harness.deploy(view, [name], HEAD + text)
            await metered(view, name, _RATE, _WARM_UP_S)
            found = await metered(view, name, _RATE, events / _RATE)
            label, p50, p99 = _TARGETS[name]
            note = f"{found.count} events, highest {found.max_ms:.0f} ms"
            figures += [
                Figure(f"{label}, {_RATE} events/s, p50", found.p50_ms, "ms", p50,
                       at_least=False, note=note),
                Figure(f"{label}, {_RATE} events/s, p99", found.p99_ms, "ms", p99,
                       at_least=False),
            ]  # fmt: skip
            wrong += found.repeats + found.missing
            if name != "Stateless":
                await view.service.undeploy(name)
        # A short run has a short one.
        silence_s = _SILENCE_S * min(1.0, events / EVENTS)
        await asyncio.sleep(silence_s)
        first = await metered(view, "Stateless", 1.0, 1.0)
        fast = await metered(view, "Stateless", _FAST, 10.0)
    wrong += sum(one.repeats + one.missing for one in (first, fast))
    figures += [
        Figure(
            f"stateless, first after {silence_s:.0f} s of silence", first.max_ms, "ms", 30.0,
            at_least=False,
        ),
        Figure(
            f"stateless, {_FAST:,} events/s, p99", fast.p99_ms, "ms", 100.0, at_least=False,
            note=f"{fast.count} events, median {fast.p50_ms:.1f} ms",
        ),
        Figure("events that a subscriber saw twice, or not at all", wrong, "", 0.0, at_least=False),
    ]  # fmt: skip
    return figures


async def metered(view: View, apps: str | Sequence[str], rate: float, seconds: float) -> Measured:
    """Run a meter of one or more apps, which get ``rate`` together, in a process of its own."""
    names = (apps,) if isinstance(apps, str) else tuple(apps)
    source, target = view.access(PUBLISHER), view.access(READER)
    job = Job(source, target, names, "Output", rate, round(rate * seconds))
    async with harness.turn():
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.flow.meter", job.to_json(),
            stdout=subprocess.PIPE, preexec_fn=die_with_parent(),
        )  # fmt: skip
        out, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError("the meter failed; what it said is above")
    return Measured(**json.loads(out))
