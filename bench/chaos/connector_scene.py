"""The stage of a run without Spark: an HTTP source, and a sink with two HTTP destinations.

Events are posted one by one, each until it is answered 200, with an Idempotency-Key.  The channel
must hold each once, and each destination must get each: a repeat has the key of the original.
"""

from __future__ import annotations

import asyncio
import json
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import httpx
import psutil

from bench.chaos.compare import Compared, compare
from bench.chaos.endpoints import Endpoint, Manner
from bench.chaos.scene import AFTER, BEFORE, RATE, TAIL, ScenarioError, Scene
from mesh.model import names
from mesh.model.cluster import InstanceState

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The query group waits for a worker with Spark, and there is none.
_TEXT: Final = """@App:name('{name}')
@source(type='http', receiver.url='http://127.0.0.1:0/in', @map(type='json'))
@sink(type='http', socket.idle.timeout='2 sec', @map(type='json', envelope='none'),
      @distribution(strategy='broadcast',
                    @destination(publisher.url='{near}'), @destination(publisher.url='{far}')))
define stream S (k string, a int, v double);
from S select k insert into Out;
"""
SOURCE: Final = "receiver-S-1"
SINK: Final = "sink-S-1"


@dataclass
class ConnectorScene(Scene):
    """The actions of a scenario of connector hosts."""

    near: Endpoint = field(default_factory=Endpoint)
    far: Endpoint = field(default_factory=Endpoint)

    async def begin(self) -> None:
        """Deploy the app, wait until its source and sink run, and start the load."""
        await self.know_managers()
        for end in (self.near, self.far):
            await end.become(Manner.WELL)
        text = _TEXT.format(name=self.name, near=self.near.url, far=self.far.url)
        await self.outside.service.deploy(text, by="chaos")
        await self.both_run()
        self.holder = self.worker_of(SINK)
        self.other = "w2" if self.holder == "w1" else "w1"
        self._load = asyncio.create_task(self._publish())
        await self.arrived(BEFORE)

    async def both_run(self) -> None:
        """Wait until source and sink run."""
        await self.outside.until(
            "source and sink run", lambda: self.url() and self._running(SINK) is not None
        )

    async def arrived(self, events: int, *ends: Endpoint) -> None:
        """Wait until this many more events have arrived at destinations, or at both."""
        chosen = ends or (self.near, self.far)
        upto = [len(end.found) + events for end in chosen]
        await self.outside.until(
            f"{events} more events",
            lambda: all(len(e.found) >= n for e, n in zip(chosen, upto, strict=True)),
        )

    async def end(self) -> None:
        """Repair everything, send the last events and wait for them."""
        for one in (self.near, self.far):
            await one.become(Manner.WELL)
        await self.stage.mended(self.outside)
        await self.both_run()
        await self.flow(TAIL)
        self._stopped = True
        if self._load is not None:
            await self._load

    async def give_up(self) -> None:
        """Stop the load and the destinations."""
        await super().give_up()
        for end in (self.near, self.far):
            await end.become(Manner.CLOSED)

    # --- faults

    def hosts(self, worker: str) -> list[psutil.Process]:
        """The connector host of a worker, if it has one."""
        agent = psutil.Process(self.stage.processes.pid(worker))
        return [p for p in agent.children() if any("mesh.receiver" in w for w in p.cmdline())]

    def signal_hosts(self, number: signal.Signals) -> None:
        """Send a signal to the connector hosts of all workers."""
        self.hit()
        for worker in {self.worker_of(SINK), self.worker_of(SOURCE)}:
            for host in self.hosts(worker):
                host.send_signal(number)

    async def with_config(self, **changes: Any) -> None:
        """Change the configuration of the JetStream stream of the channel."""
        js_stream, client = names.js_stream(self.name, "S"), self.outside.client
        asked = await client.request(f"$JS.API.STREAM.INFO.{js_stream}", b"", timeout=5)
        config = json.loads(asked.data)["config"] | changes
        call = f"$JS.API.STREAM.UPDATE.{js_stream}"
        answer = json.loads(
            (await client.request(call, json.dumps(config).encode(), timeout=10)).data
        )
        if "error" in answer:
            raise ScenarioError(answer["error"]["description"])

    async def stored_bytes(self) -> int:
        """Bytes of the JetStream stream of the channel."""
        info = await self.outside.js.stream_info(names.js_stream(self.name, "S"))
        return info.state.bytes

    # --- state and results

    def _running(self, instance: str) -> Any:
        """The status of an instance that runs in its present epoch."""
        wanted = f"{self.name}-{instance}"
        epoch = next((a.epoch for a in self.assignments() if a.instance == wanted), None)
        for status in self.outside.view.snapshot().statuses:
            found = status.value
            if (found.instance, found.epoch) == (wanted, epoch):
                return found if found.state is InstanceState.RUNNING else None
        return None

    def url(self) -> str:
        """The present address of the source; empty while it has none."""
        found = self._running(SOURCE)
        urls = [connector.endpoint for connector in found.connectors] if found is not None else []
        return next((url for url in urls if not url.endswith(":0/in")), "")

    async def compared(self) -> tuple[Compared, float | None]:
        """Wait for all events, and compare them; the time to recover, seconds."""
        rows = [list(self.event(number)[1].values()) for number in range(self.published)]
        expected = {"channel": rows, "near": rows, "far": rows}
        await self.outside.until(
            "all events", lambda: min(len(e.found) for e in (self.near, self.far)) >= len(rows)
        )
        js_stream, subject = names.js_stream(self.name, "S"), names.subject(self.name, "S")
        messages = await self.outside.messages(js_stream, subject)
        lines = (line for message in messages for line in message.data.split(b"\n"))
        found = {
            "channel": [list(json.loads(line).values()) for line in lines],
            "near": list(_rows(self.near)),
            "far": list(_rows(self.far)),
        }
        if self.near.changed or self.far.changed:
            raise ScenarioError("a key was used for two events")
        return compare(found, expected), self._recovery_s()

    def _recovery_s(self) -> float | None:
        if self._fault is None:
            return None
        at_ms, published = self._fault
        times = [ms for ms, event in self.near.found.values() if event["a"] <= published + AFTER]
        return max(0.0, (max(times) - at_ms) / 1000)

    async def _publish(self) -> None:
        """Post the events in their order, each until it is answered 200."""
        async with httpx.AsyncClient(timeout=3.0) as client:
            while not self._stopped:
                await self._post(client)
                self.published += 1
                await asyncio.sleep(1 / RATE)

    async def _post(self, client: httpx.AsyncClient) -> None:
        _, row = self.event(self.published)
        headers = {"Idempotency-Key": f"{self.name}-{self.published}"}
        while True:
            try:
                url = self.url()
                if url:
                    answer = await client.post(url, json={"event": row}, headers=headers)
                    if answer.status_code == 200:
                        return
            except httpx.HTTPError:
                pass
            await asyncio.sleep(0.1)


def _rows(end: Endpoint) -> Iterator[list[Any]]:
    return (list(event.values()) for _, event in end.found.values())
