"""Rate at which a backlog is worked off exactly once, beside a plain program at least once.

W1 reads JSON events, filters, projects, and publishes one event a message.  W2 averages by key in
each second.  Both programs find the whole input in the stream, on the same server, one after the
other.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import orjson
import psutil

from bench.connector.harness import Figure
from bench.flow import plain
from bench.mesh import harness

if TYPE_CHECKING:
    from bench.mesh.harness import View

_COUNT: Final = 200_000
#: Messages published at once.
_CHUNK: Final = 2_000

APPS: Final = {
    "filter": """
@App:name('{name}')
define stream Input (n long, v double, k string);
@dist(execGroup='w')
from Input[v >= 0] select n, v * 2 as w, k insert into Output;
""",
    "average": """
@App:name('{name}')
define stream Input (n long, v double, k string);
@dist(execGroup='w')
from Input#window.timeBatch(1 sec) select k, avg(v) as mean group by k insert into Output;
""",
}
#: Label, and the target of the ratio to the plain program.
_KINDS: Final = {"filter": ("W1", 0.6), "average": ("W2", 0.5)}


async def measure() -> list[Figure]:
    """W1 and W2, ours and plain."""
    figures = []
    async with harness.mesh(1) as view:
        for kind, (label, target) in _KINDS.items():
            # The instance is placed when its input is there.
            await view.service.order_node("w1", "cordoned")
            await view.service.deploy(APPS[kind].format(name=label))
            await _fill(view, f"mesh.{label}.Input")
            before = _cpu_s(view)
            started_s = time.perf_counter()
            await view.service.order_node("w1", "open")
            await _until_last(view, label)
            ours = _COUNT / (time.perf_counter() - started_s)
            worker_s, nats_s = (b - a for a, b in zip(before, _cpu_s(view), strict=True))
            await view.service.undeploy(label)
            limit = await _plain(view, kind)
            figures.append(
                Figure(
                    f"{label}, exactly once, beside plain Python at least once", ours / 1000,
                    "k/s", target, limit=limit / 1000,
                    note=f"{_COUNT:,} events; CPU s per million: worker "
                    f"{worker_s / _COUNT * 1e6:.1f}, NATS {nats_s / _COUNT * 1e6:.1f}",
                )
            )  # fmt: skip
    return figures


async def _fill(view: View, subject: str) -> None:
    """Store the events, and one with the key ``end`` that is alone in its second."""
    event = b'{"n": %d, "v": %d.5, "k": "key%d", "note": "%b"}'
    pad = b"x" * 60
    for first in range(0, _COUNT, _CHUNK):
        await asyncio.gather(
            *(
                view.js.publish(subject, event % (n, n % 100, n % 50, pad))
                for n in range(first, first + _CHUNK)
            )
        )
    await asyncio.sleep(2.0)
    await view.js.publish(subject, b'{"n": -1, "v": 0.0, "k": "end"}')


async def _until_last(view: View, app: str) -> None:
    """Wait for the output of the last event."""
    while True:
        await asyncio.sleep(0.02)
        info = await view.js.stream_info(f"mesh-{app}-Output")
        if not info.state.messages:
            continue
        message = await view.js.get_last_msg(f"mesh-{app}-Output", f"mesh.{app}.Output")
        if orjson.loads(message.data or b"{}").get("k") == "end":
            return


async def _plain(view: View, kind: str) -> float:
    """Events per second of the plain program, with streams of its own."""
    await view.js.add_stream(name="plain-in", subjects=["plain.in"])
    await view.js.add_stream(name="plain-out", subjects=["plain.out"])
    try:
        await _fill(view, "plain.in")
        port = int(view.cluster.servers.url.rsplit(":", 1)[1])
        job = plain.Job(port, "plain-in", _COUNT + 1, "plain.out", kind)
        return _COUNT / await asyncio.to_thread(plain.run, job)
    finally:
        await view.js.delete_stream("plain-in")
        await view.js.delete_stream("plain-out")


def _cpu_s(view: View) -> tuple[float, float]:
    """Processor time so far of the worker with all its processes, and of NATS, seconds."""
    worker = harness.tree(view.processes.pid("w1"))
    servers = [psutil.Process(view.cluster.servers.pid(n)) for n in view.cluster.servers.names]
    return harness.cpu_s(worker), harness.cpu_s(servers)
