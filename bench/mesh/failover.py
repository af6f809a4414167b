"""Interruption of outputs when a worker dies or is paused, with little state and with much."""

from __future__ import annotations

import asyncio
import json
import signal
import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from bench.connector.harness import Figure
from bench.mesh import harness
from mesh.control.membership import HeartbeatStatus
from mesh.model.cluster import Admission

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.mesh.harness import View

PAUSES = KILLS = 10
#: Events a second, into each app.
RATE: Final = 50
#: Between two faults: outputs flow and snapshots are stored.
CALM_S: Final = 4.0
#: Rows of the large state, and the bytes of each.
ROWS: Final = 100_000
ROW_BYTES: Final = 1000

#: State of 100 rows; every event gives an output.
LIGHT: Final = """
@App:name('{name}')
define stream Events (id long, text string);
@dist(execGroup='held')
from Events#window.length(100) select id, count() as held insert into Seen;
"""
#: State of 100 MB, beside the query that gives an output for every event.
HEAVY: Final = f"""
@App:name('{{name}}')
define stream Events (id long, text string);
@dist(execGroup='held')
from Events select id insert into Seen;
@dist(execGroup='held')
from Events#window.length({ROWS}) select id, text insert expired events into Gone;
"""


@dataclass
class Flow:
    """Input of an app, and its output."""

    view: View
    app: str
    published: int = 0
    #: When each output was seen, by its event's number.
    seen: dict[int, float] = field(default_factory=dict)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _is_over: bool = False

    async def begin(self) -> None:
        """Listen, and publish from now on."""
        await self.view.client.subscribe(f"mesh.{self.app}.Seen", cb=self._take)
        self._tasks = [asyncio.create_task(self._publish())]

    async def end(self) -> None:
        """Stop publishing; all counted events are published."""
        self._is_over = True
        await asyncio.gather(*self._tasks)

    async def fill(self, rows: int) -> None:
        """Publish many events at once, and wait until all have passed."""
        text = "x" * ROW_BYTES
        for start in range(0, rows, 100):
            events = [{"id": self.published + n, "text": text} for n in range(100)]
            self.published += 100
            await self.view.js.publish(f"mesh.{self.app}.Events", json.dumps(events).encode())
            if start % 10_000 == 0:
                await asyncio.sleep(0)
        await self.until(self.published - 1)

    async def until(self, number: int) -> float:
        """Wait for the output of an event; its time."""
        deadline_s = time.monotonic() + 90
        while number not in self.seen:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{self.app}: no output of event {number} in 90 s")
            await asyncio.sleep(0.005)
        return self.seen[number]

    async def _take(self, message: Any) -> None:
        self.seen.setdefault(json.loads(message.data)["id"], time.monotonic())

    async def _publish(self) -> None:
        while not self._is_over:
            event = {"id": self.published, "text": "x" * ROW_BYTES}
            self.published += 1
            subject = f"mesh.{self.app}.Events"
            await self.view.js.publish(subject, json.dumps(event).encode())
            await asyncio.sleep(1 / RATE)


async def measure(servers: int) -> list[Figure]:
    """Kill and pause the worker that has all instances, again and again."""
    # Only instances that lose their worker move: all measured ones stay together.
    async with harness.mesh(2, servers=servers, MESH_MANAGER_MOVES_AT_ONCE="0") as view:
        await view.service.order_node("w2", Admission.CORDONED)
        await harness.deploy(view, ["Light"], LIGHT)
        await harness.deploy(view, ["Heavy"], HEAVY)
        await view.service.order_node("w2", Admission.OPEN)
        flows = [Flow(view, "Light"), Flow(view, "Heavy")]
        for flow in flows:
            await flow.begin()
        try:
            await flows[1].fill(ROWS)
            paused = [await _fault(view, flows, _pause) for _ in range(PAUSES)]
            killed = [await _fault(view, flows, _kill) for _ in range(KILLS)]
        finally:
            for flow in flows:
                await flow.end()
        for flow in flows:
            await flow.until(flow.published - 1)
        lost = doubled = 0
        for flow in flows:
            numbers = await asyncio.to_thread(_stored, view.cluster.servers.url, flow.app)
            lost += flow.published - len(set(numbers))
            doubled += len(numbers) - len(set(numbers))
    return [
        *_figures("kill -9 of a worker", killed, servers),
        *_figures("pause of a worker", paused, servers),
        Figure("outputs lost or doubled by all that", lost + doubled, "rows", 0.0, at_least=False,
               note=f"lost {lost}, doubled {doubled}"),
    ]  # fmt: skip


def _figures(what: str, runs: list[tuple[float, ...]], servers: int) -> list[Figure]:
    found = []
    limit_s = 2.2 if servers == 1 else 3.0
    for at, state in enumerate(("little state", "100 MB of state")):
        values = tuple(run[at] for run in runs)
        found += [
            Figure(
                f"{what} to the next output, {state}, median", statistics.median(values), "s",
                limit_s, at_least=False, runs=values,
            ),
            Figure(f"the same, slowest of {len(values)}", max(values), "s", 5.0, at_least=False),
        ]  # fmt: skip
    return found


async def _fault(
    view: View, flows: list[Flow], fault: Callable[[View, str], Awaitable[Callable[[], None]]]
) -> tuple[float, ...]:
    """Seconds from a fault to the first output of an event after it, for each flow."""
    await asyncio.sleep(CALM_S)
    (holder,) = {a.value.worker for a in view.view.snapshot().assignments if not a.value.stop}
    before = [flow.published for flow in flows]
    began_s = time.monotonic()
    repair = await fault(view, holder)
    took = tuple([await flow.until(n) - began_s for flow, n in zip(flows, before, strict=True)])
    told = ", ".join(f"{flow.app} {s:.2f} s" for flow, s in zip(flows, took, strict=True))
    print(f"{fault.__name__.strip('_')} of {holder}: {told}", file=sys.stderr, flush=True)
    repair()
    await view.until("both workers ready", lambda: _are_ready(view))
    return took


async def _are_ready(view: View) -> bool:
    """Whether the running processes have warm sessions, and their heartbeats arrive."""
    nodes = {node.id: node for node in await view.service.nodes()}
    found = (nodes.get(name) for name in ("w1", "w2"))
    return all(
        node is not None
        and node.pid == view.cluster.pid(node.id)
        and node.ready
        and node.presence == HeartbeatStatus.ALIVE
        for node in found
    )


def _stored(url: str, app: str) -> list[int]:
    """The numbers of the events with stored outputs."""
    parts = harness.stored(url, f"mesh-{app}-Seen", f"mesh.{app}.Seen")
    return [json.loads(data)["id"] for part in parts for data in part.data.to_pylist()]


async def _kill(view: View, worker: str) -> Callable[[], None]:
    view.cluster.kill_all_of(worker)
    return lambda: view.cluster.start_worker(worker)


async def _pause(view: View, worker: str) -> Callable[[], None]:
    view.cluster.signal_all_of(worker, signal.SIGSTOP)
    return lambda: view.cluster.wake(worker)
