"""The demo on a running cluster: deploy, publish, listen, wait, report."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from mesh.cli import wire
from mesh.cli.apps import describe_deploy
from mesh.cli.client import Client
from mesh.cli.demo_view import Tally
from mesh.cli.dev import wait_until_up
from mesh.errors import MeshError
from mesh.model import names

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

    from mesh.cli.demo_view import View
    from mesh.cli.local import LocalCluster

APP: Final = "Temperature"
INPUT: Final = "TempStream"
OUTPUTS: Final = ("AvgTempStream", "AlertStream", "HighTempStream")
#: Most publishes without an acknowledgement.
_WINDOW: Final = 1000
#: Outputs are complete after this time without an output, if no instance lags.
_QUIET_S: Final = 2.0
_READY_S: Final = 120.0
#: The demo fails after this time without an output while events wait.
_STUCK_S: Final = 60.0


@dataclass
class Demo:
    """One run; ``age_s`` is the age of the command when it was created."""

    view: View
    rows: int
    age_s: float
    began_s: float = field(default_factory=time.monotonic)
    tallies: dict[str, Tally] = field(default_factory=lambda: {s: Tally() for s in OUTPUTS})
    #: Event time to the time at which its last event was published, ms since 1970.
    published_ms: dict[int, float] = field(default_factory=dict)
    first_row_s: float | None = None
    last_row_s: float = 0.0
    events_in: int = 0

    def elapsed_s(self) -> float:
        """Seconds since the command was started."""
        return self.age_s + time.monotonic() - self.began_s

    async def run(self, cluster: LocalCluster) -> None:
        """Run the whole demo."""
        text = find_example()
        self.view.say(f"Data and logs are in {cluster.plan.directory}.")
        await wait_until_up(cluster)
        self.view.say(f"Manager is up after {self.elapsed_s():.1f} s; Spark sessions are starting.")
        with Client(cluster.context) as client:
            await self._until_ready(client, cluster.plan.workers)
            self.view.say(
                f"{cluster.plan.workers} workers are ready after {self.elapsed_s():.1f} s."
            )
            async with wire.connected(cluster.context) as nats:
                js = nats.jetstream(publish_async_max_pending=2 * _WINDOW)
                deployed_s = time.monotonic()
                done = await asyncio.to_thread(client.deploy, text)
                # The channels exist as soon as the app is deployed, so publishing need not wait
                # until it runs.
                running = asyncio.create_task(self._tell_running(client, done, deployed_s))
                for stream in OUTPUTS:
                    await self._listen(js, stream)
                rate = await self._publish(js)
                await running
                status = await self._until_complete(client)
        self.view.close()
        self._sum_up(status, rate)

    async def _tell_running(self, client: Client, done: dict[str, Any], deployed_s: float) -> None:
        """Wait until the app runs, and report the time."""
        status = await asyncio.to_thread(client.wait_running, done["app"], _READY_S)
        is_running = status["state"] == "running"
        seconds = time.monotonic() - deployed_s
        self.view.say(
            describe_deploy({**done, "running": is_running, "status": status, "seconds": seconds})
        )
        if not is_running:
            raise MeshError("MESH-U150", "the demo's app does not run", hint="See the logs.")

    async def _until_ready(self, client: Client, workers: int) -> None:
        """Wait for all workers, so that the instances are spread at once."""
        deadline_s = time.monotonic() + _READY_S
        while True:
            nodes = await asyncio.to_thread(client.nodes)
            if sum(n["role"] == "worker" and n["ready"] for n in nodes) >= workers:
                return
            if time.monotonic() > deadline_s:
                raise MeshError(
                    "MESH-U150",
                    f"workers are not ready after {_READY_S:.0f} s",
                    hint="Their logs are in the data directory.",
                )
            await asyncio.sleep(0.2)

    async def _listen(self, js: JetStreamContext, stream: str) -> None:
        tally = self.tallies[stream]

        async def take(message: Msg) -> None:
            headers = message.headers or {}
            events = wire.decode(message.data, headers.get("Content-Type", ""))
            self.last_row_s = time.monotonic()
            if self.first_row_s is None:
                self.first_row_s = self.elapsed_s()
                self.view.say(f"First output row after {self.first_row_s:.1f} s.")
            tally.events += len(events)
            tally.recent.extend(orjson.dumps(e).decode() for e in events[-5:])
            cause_ms = self.published_ms.get(int(headers.get(names.EVENT_TIME_HEADER, -1)))
            if cause_ms is not None:
                out_ms = message.metadata.timestamp.timestamp() * 1000
                tally.latency_ms.append(max(0.0, out_ms - cause_ms))
            self.view.outputs(self.tallies)

        await js.subscribe(
            names.subject(APP, stream),
            stream=names.js_stream(APP, stream),
            cb=take,
            ordered_consumer=True,
        )

    async def _publish(self, js: JetStreamContext) -> float:
        """Publish the weather; returns events per second, first to last acknowledgement."""
        # Imported late: it reads a table of 26,115 rows.
        from mesh.testing import weather

        subject = names.subject(APP, INPUT)
        began_s = time.monotonic()
        pending: set[asyncio.Future[Any]] = set()
        for number, (time_ms, event) in enumerate(weather.load().events()):
            if number == self.rows:
                break
            headers = {names.EVENT_TIME_HEADER: str(time_ms)}
            self.published_ms[time_ms] = time.time_ns() / 1e6
            pending.add(await js.publish_async(subject, orjson.dumps(event), headers=headers))
            if len(pending) >= _WINDOW:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    one.result()
                self.view.published(number + 1, self.rows, number / (time.monotonic() - began_s))
        for one in pending:
            await one
        self.events_in = min(self.rows, weather.ROWS)
        rate = self.events_in / (time.monotonic() - began_s)
        self.view.published(self.events_in, self.events_in, rate)
        return rate

    async def _until_complete(self, client: Client) -> dict[str, Any]:
        """Return the status once no instance lags and no output has arrived for a while."""
        began_s = time.monotonic()
        while True:
            quiet_s = time.monotonic() - max(self.last_row_s, began_s)
            if quiet_s >= _QUIET_S:
                status = await asyncio.to_thread(client.status, APP)
                is_behind = any(i["behind"] for i in status["instances"])
                if self.first_row_s is not None and status["state"] == "running" and not is_behind:
                    return status
                if quiet_s >= _STUCK_S:
                    raise MeshError(
                        "MESH-U150",
                        f"no output for {_STUCK_S:.0f} s",
                        detail=f"App is {status['state']}: {status['reason']}.",
                        hint="The workers' logs are in the data directory.",
                    )
            await asyncio.sleep(0.1)

    def _sum_up(self, status: dict[str, Any], rate: float) -> None:
        rows = [
            (stream, tally.events, *quantiles(tally.latency_ms))
            for stream, tally in self.tallies.items()
        ]
        self.view.summary(self.events_in, rate, rows, status["instances"])
        assert self.first_row_s is not None
        self.view.say(
            f"First output row {self.first_row_s:.1f} s after the command, "
            f"all done after {self.elapsed_s():.1f} s."
        )


def quantiles(values: list[float]) -> tuple[float | None, float | None]:
    """The 50th and the 99th percentile (nearest rank); None, None without values."""
    if not values:
        return None, None
    ordered = sorted(values)
    last = len(ordered) - 1
    return ordered[round(last * 0.5)], ordered[round(last * 0.99)]


def find_example() -> str:
    """The text of examples/temperature.siddhi; MESH-U151 outside of a checkout."""
    root = Path(str(resources.files("mesh"))).parent
    path = root / "examples" / "temperature.siddhi"
    if not path.exists():
        raise MeshError(
            "MESH-U151",
            f'file "{path}" is not there',
            hint="The demo needs a checkout of the project.",
        )
    return path.read_text()
