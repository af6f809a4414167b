"""Latency from a client's publication of an event to the subscription of another client.

A process of its own publishes and subscribes.  So times are of one clock, and its work is not that
of the mesh.  It also counts repeats: a core subscriber sees each event once.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from bench.connector.harness import Figure
from bench.flow.meter import Job, Measured
from bench.mesh import harness
from mesh.jetstream.server import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.mesh.harness import View

#: A filter, a window and a pattern on one stream, and three groups in a row.
APP: Final = """
@App:name('{name}')
define stream Input (n long, v double);
@dist(execGroup='filter')
from Input[v >= 0] select n, v * 2 as w insert into Filtered;
@dist(execGroup='window')
from Input#window.length(100) select n, avg(v) as mean insert into Averages;
@dist(execGroup='pattern')
from every a=Input[v >= 0] -> b=Input[v > a.v] select b.n, a.v as before insert into Rises;
@dist(execGroup='second')
from Filtered#window.length(10) select n, sum(w) as total insert into Sums;
@dist(execGroup='third')
from Sums[total >= 0] select n, total insert into Thirds;
"""
#: Stream, label, and the targets of the median and of the 99th percentile in milliseconds.
OUTPUTS: Final = (
    ("Filtered", "stateless", 8.0, 25.0),
    ("Averages", "window", 12.0, 40.0),
    ("Rises", "pattern", 12.0, 40.0),
    ("Thirds", "three groups in a row", None, 100.0),
)
_WARM_UP_S: Final = 5.0
_MEASURED_S: Final = 30.0
_RATE: Final = 200
_FAST: Final = 20_000
_SILENCE_S: Final = 60.0


async def measure() -> list[Figure]:
    """200 events a second, 20,000 events a second, and one event after a minute of silence."""
    async with harness.mesh(1) as view:
        await harness.deploy(view, ["Flow"], APP)
        streams = [stream for stream, *_ in OUTPUTS]
        await _metered(view, streams, _RATE, _WARM_UP_S)
        slow = await _metered(view, streams, _RATE, _MEASURED_S)
        await asyncio.sleep(_SILENCE_S)
        first = await _metered(view, streams, 1.0, 1.0)
        fast = await _metered(view, ["Filtered"], _FAST, 10.0)
    figures = []
    for stream, label, p50, p99 in OUTPUTS:
        found = slow[stream]
        name = f"{label}, {_RATE} events/s"
        note = f"{found.count} events, highest {found.max_ms:.0f} ms"
        figures += [
            Figure(f"{name}, p50", found.p50_ms, "ms", p50, at_least=False, note=note),
            Figure(f"{name}, p99", found.p99_ms, "ms", p99, at_least=False),
        ]
    figures += [
        Figure(
            f"stateless, {_FAST:,} events/s, p99", fast["Filtered"].p99_ms, "ms", 100.0,
            at_least=False, note=f"{fast['Filtered'].count} events",
        ),
        Figure(
            f"stateless, first after {_SILENCE_S:.0f} s of silence", first["Filtered"].max_ms, "ms",
            30.0, at_least=False,
        ),
        Figure(
            "events that a subscriber saw twice, or not at all",
            sum(m.repeats + m.missing for m in (*slow.values(), *first.values(), *fast.values())),
            "", 0.0, at_least=False,
        ),
    ]  # fmt: skip
    return figures


async def _metered(
    view: View, streams: Sequence[str], rate: float, seconds: float
) -> dict[str, Measured]:
    url = view.cluster.servers.url
    return await metered(Job(url, "Flow", tuple(streams), rate, round(rate * seconds)))


async def metered(job: Job) -> dict[str, Measured]:
    """Run a meter in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.flow.meter", job.to_json(),
        stdout=subprocess.PIPE, preexec_fn=die_with_parent(),
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )  # fmt: skip
    out, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError("the meter failed; what it said is above")
    told: dict[str, Any] = json.loads(out)
    return {stream: Measured(**values) for stream, values in told.items()}
