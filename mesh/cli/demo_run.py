"""The demo on a running cluster: a steady load, a burst, a killed worker, and a report.

Views of the demo: live on a terminal, plain lines elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import orjson

from mesh.cli.apps import describe_deploy
from mesh.cli.dev import wait_until_up
from mesh.cli.options import CommandClient
from mesh.cli.output import show_table
from mesh.client import wire
from mesh.errors import MeshError
from mesh.files import shipped
from mesh.model import names
from mesh.model.values import JsonMapping, JsonObject
from mesh.operators import loop_cache

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

    from mesh.cli.local import LocalCluster
    from mesh.model.answers import DeployAnswer, StatusAnswer

#: Interval of updates of the view.
_EVERY_S = 0.25
_LINE_EVERY_S = 2.0


@dataclass
class StreamTally:
    """Output of one stream."""

    events: int = 0
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=5))
    #: Broker's time of the output minus that of the input that caused it, ms.
    latency_ms: list[float] = field(default_factory=list)
    #: Number of times that each row was received.
    rows: Counter[bytes] = field(default_factory=Counter)


def make_view(stream: TextIO) -> DemoView:
    """The view for ``stream``: live on a terminal."""
    return LiveView() if stream.isatty() else DemoView()


class DemoView:
    """Progress and results of the demo as plain lines, at most one every two seconds."""

    def __init__(self) -> None:
        self._next_s = {"in": 0.0, "out": 0.0}

    def say(self, text: str) -> None:
        """Print a permanent line."""
        print(text, flush=True)

    def published(self, done: int, total: int, rate: float) -> None:
        """``done`` of ``total`` events are published, at ``rate`` a second: from time to time."""
        if done >= total or self._is_time("in"):
            self.say(f"published {done:,} of {total:,} events, {rate:,.0f}/s")

    def outputs(self, tallies: dict[str, StreamTally]) -> None:
        """An output has arrived: counts and one row of each stream, from time to time."""
        if self._is_time("out"):
            for stream, tally in tallies.items():
                latest = tally.recent[-1] if tally.recent else ""
                self.say(f"  {stream:<15} {tally.events:>8,}  {latest}")

    def close(self) -> None:
        """End the live part, if there is one."""

    def summary(
        self,
        findings: Sequence[tuple[str, str]],
        outputs: Sequence[tuple[object, ...]],
        instances: Sequence[JsonObject],
        hints: Sequence[str],
    ) -> None:
        """Print the last screen: findings, tables and hints."""
        print()
        for name, text in findings:
            print(f"{name:<8}{text}")
        streams = ("output stream", "events", "lost", "doubled", "steady ms p50", "p99")
        show_table(streams, outputs)
        columns = ("instance", "worker", "events in", "events out", "batch ms p50")
        shown = [
            (i["instance"], i["worker"], i["events_in"], i["events_out"], i["batch_ms_p50"])
            for i in instances
        ]
        show_table(columns, shown)
        print("Try next:")
        for hint in hints:
            print(f"  {hint}")
        # The cluster ends before this process does.
        sys.stdout.flush()

    def _is_time(self, what: str) -> bool:
        now_s = time.monotonic()
        if now_s < self._next_s[what]:
            return False
        self._next_s[what] = now_s + _LINE_EVERY_S
        return True


class LiveView(DemoView):
    """A progress bar and the latest rows of each stream, redrawn in place."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._console = Console()
        self._progress = Progress(
            TextColumn("published"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
        )
        self._task = self._progress.add_task("", rate="", total=None, visible=False)
        self._tallies: dict[str, StreamTally] = {}
        self._drawn_s = 0.0
        self._live: Live | None = Live(
            get_renderable=self._draw, console=self._console, auto_refresh=False, transient=True
        )
        self._live.start()

    def say(self, text: str) -> None:
        """Print it above the live part."""
        self._console.print(text, markup=False, highlight=False)

    def published(self, done: int, total: int, rate: float) -> None:
        """Move the bar."""
        self._progress.update(
            self._task, completed=done, total=total, rate=f"{rate:,.0f}/s", visible=True
        )
        self._refresh(done >= total)

    def outputs(self, tallies: dict[str, StreamTally]) -> None:
        """Show the latest rows."""
        self._tallies = tallies
        self._refresh(False)

    def close(self) -> None:
        """Remove the live part."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _refresh(self, now: bool) -> None:
        now_s = time.monotonic()
        if self._live is not None and (now or now_s - self._drawn_s >= _EVERY_S):
            self._drawn_s = now_s
            self._live.refresh()

    def _draw(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2), expand=True)
        for stream, tally in self._tallies.items():
            rows = Text("\n".join(tally.recent), style="dim", no_wrap=True, overflow="ellipsis")
            table.add_row(Text(stream, style="bold"), f"{tally.events:,}", rows)
        return Group(self._progress, table)


APP: Final = "Temperature"
INPUT: Final = "TempStream"
OUTPUTS: Final = ("AvgTempStream", "AlertStream", "HighTempStream")
#: The group with state, which emits the first of the output streams for every event.
STATEFUL: Final = "group-1"
STEADY_RATE: Final = 200
STEADY_EVENTS: Final = 1000
HINTS: Final = (
    "mesh init shop; cd shop; mesh dev --watch     an app of your own, deployed when you save it",
    "mesh demo --keep                              this cluster, until Ctrl-C",
    "docs/compose.md                               a cluster in containers, with three of each",
)
#: Most publishes without an acknowledgement.
_WINDOW: Final = 1000
#: Outputs are complete after this time without an output, if no instance lags.
_QUIET_S: Final = 2.0
#: The same between two parts of the demo, where a row that is late only counts as steady or burst.
_SETTLED_S: Final = 0.5
_LAST_S: Final = 0.3
_READY_S: Final = 120.0
#: Longest compilation of native loops before that, on a machine with other load, seconds.
_COMPILE_S: Final = 1200.0
#: The demo fails after this time without an output while events wait.
_STUCK_S: Final = 60.0


@dataclass
class Demo:
    """One run; ``age_s`` is the age of the command when it was created."""

    view: DemoView
    rows: int
    age_s: float
    began_s: float = field(default_factory=time.monotonic)
    tallies: dict[str, StreamTally] = field(
        default_factory=lambda: {s: StreamTally() for s in OUTPUTS}
    )
    #: Event time to the time at which its last event was published, ms since 1970.
    published_ms: dict[int, float] = field(default_factory=dict)
    events: list[tuple[int, JsonObject]] = field(default_factory=list)
    first_row_s: float | None = None
    last_row_s: float = 0.0
    #: Latencies count while events are published steadily.
    is_steady: bool = True
    burst_rate: float = 0.0
    burst_s: float = 0.0
    killed: str = ""
    is_killed: bool = False
    #: Arrival of the last row of the group with state, and its longest pause since the kill.
    stateful_row_s: float = 0.0
    pause_s: float = 0.0
    #: Whether the last screen shows that no row was lost or doubled.
    is_exact: bool = True

    def elapsed_s(self) -> float:
        """Seconds since the command was started."""
        return self.age_s + time.monotonic() - self.began_s

    async def run(self, cluster: LocalCluster) -> None:
        """Run the whole demo."""
        text = find_example()
        self.view.say(f"Data and logs are in {cluster.plan.directory}.")
        await wait_until_up(cluster)
        self.view.say(f"Manager is up after {self.elapsed_s():.1f} s; Spark sessions are starting.")
        if not loop_cache.has_usual():
            self.view.say("They compile native loops, which takes half a minute to two, once.")
        with CommandClient(cluster.context) as client:
            # The data is read while the sessions start.
            _, self.events = await asyncio.gather(
                self.until_ready(client, cluster.plan.workers),
                asyncio.to_thread(events_of, self.rows),
            )
            self.view.say(
                f"{cluster.plan.workers} workers are ready after {self.elapsed_s():.1f} s."
            )
            async with wire.connected(cluster.context) as nats:
                js = nats.jetstream(publish_async_max_pending=2 * _WINDOW)
                deployed_s = time.monotonic()
                done = await asyncio.to_thread(client.create, text)
                for stream in OUTPUTS:
                    await self._listen(js, stream)
                await self._tell_running(client, done, deployed_s)
                await self._play(cluster, client, js)
                # The whole output is computed here while the last of it arrives.
                status, expected = await asyncio.gather(
                    self._until_complete(client),
                    asyncio.to_thread(expected_rows, text, self.rows),
                )
        self.view.close()
        self.sum_up(status, expected, cluster.context.server)

    async def _play(
        self, cluster: LocalCluster, client: CommandClient, js: JetStreamContext
    ) -> None:
        """Publish the year: some of it steadily, most as a burst, the end while a worker dies."""
        steady, burst = parts_of(len(self.events))
        self.view.say(f"Steady: {steady:,} events at {STEADY_RATE}/s.")
        await self._publish_steadily(js, 0, steady)
        # Outputs of the last events are still on their way.
        await asyncio.sleep(_LAST_S)
        self.is_steady = False
        self.view.say(f"Burst: {burst - steady:,} events, as fast as this client can.")
        began_s = time.monotonic()
        self.burst_rate = await self._publish(js, steady, burst)
        await self._until_complete(client, quiet_s=_SETTLED_S)
        self.burst_s = max(self.last_row_s, began_s) - began_s
        await self._lose_worker(cluster, client, js, burst)

    async def _lose_worker(
        self, cluster: LocalCluster, client: CommandClient, js: JetStreamContext, start: int
    ) -> None:
        """Publish the rest steadily, and kill the worker of the group with state meanwhile."""
        status = await asyncio.to_thread(client.status, APP)
        self.killed = next(str(i["worker"]) for i in status["instances"] if i["group"] == STATEFUL)
        (child,) = (child for child in cluster.children if child.name == self.killed)
        count = len(self.events)
        self.view.say(f"{count - start:,} events at {STEADY_RATE}/s; kill -9 of {self.killed}:")
        before = start + (count - start) // 4
        await self._publish_steadily(js, start, before)
        child.process.kill()
        self.is_killed, self.stateful_row_s = True, time.monotonic()
        await self._publish_steadily(js, before, count)

    async def _tell_running(
        self, client: CommandClient, done: DeployAnswer, deployed_s: float
    ) -> None:
        """Wait until the app runs, and report the time."""
        status = await asyncio.to_thread(client.wait_running, done["app"], _READY_S)
        is_running = status["state"] == "running"
        seconds = time.monotonic() - deployed_s
        self.view.say(
            describe_deploy({**done, "running": is_running, "status": status, "seconds": seconds})
        )
        if not is_running:
            raise MeshError("MESH-U150", "the demo's app does not run", hint="See the logs.")

    async def until_ready(self, client: CommandClient, workers: int) -> None:
        """Wait for all workers, so that the instances are spread at once."""
        began_s = time.monotonic()
        deadline_s = began_s + _READY_S
        while True:
            nodes = await asyncio.to_thread(client.nodes)
            if sum(n["role"] == "worker" and n["ready"] for n in nodes) >= workers:
                return
            now_s = time.monotonic()
            if not loop_cache.has_usual():
                deadline_s = min(now_s, began_s + _COMPILE_S) + _READY_S
            if now_s > deadline_s:
                raise MeshError(
                    "MESH-U150",
                    f"workers are not ready after {now_s - began_s:.0f} s",
                    hint="Their logs are in the data directory. An installation by pip is prepared "
                    "once: python -m mesh.worker.prepare",
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
            tally.rows.update(map(row_key, events))
            if self.is_killed and stream == OUTPUTS[0]:
                self.pause_s = max(self.pause_s, self.last_row_s - self.stateful_row_s)
                self.stateful_row_s = self.last_row_s
            tally.recent.extend(orjson.dumps(e).decode() for e in events[-5:])
            cause_ms = self.published_ms.get(int(headers.get(names.EVENT_TIME_HEADER, -1)))
            if cause_ms is not None and self.is_steady:
                out_ms = message.metadata.timestamp.timestamp() * 1000
                tally.latency_ms.append(max(0.0, out_ms - cause_ms))
            self.view.outputs(self.tallies)

        await js.subscribe(
            names.subject(APP, stream),
            stream=names.js_stream(APP, stream),
            cb=take,
            ordered_consumer=True,
        )

    async def _publish_steadily(self, js: JetStreamContext, start: int, end: int) -> None:
        """Publish events at ``STEADY_RATE``."""
        began_s = time.monotonic()
        pending = []
        for number in range(start, end):
            due_s = began_s + (number - start) / STEADY_RATE
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            pending.append(await self._send(js, number))
            self.view.published(number + 1, len(self.events), STEADY_RATE)
        for one in pending:
            await one

    async def _publish(self, js: JetStreamContext, start: int, end: int) -> float:
        """Publish events at once; returns events per second, first to last acknowledgement."""
        began_s = time.monotonic()
        pending = set()
        for number in range(start, end):
            pending.add(await self._send(js, number))
            if len(pending) >= _WINDOW:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    one.result()
                rate = (number + 1 - start) / (time.monotonic() - began_s)
                self.view.published(number + 1, len(self.events), rate)
        for one in pending:
            await one
        return (end - start) / (time.monotonic() - began_s)

    async def _send(self, js: JetStreamContext, number: int) -> asyncio.Future[Any]:
        time_ms, event = self.events[number]
        headers = {names.EVENT_TIME_HEADER: str(time_ms)}
        self.published_ms[time_ms] = time.time_ns() / 1e6
        subject = names.subject(APP, INPUT)
        return await js.publish_async(subject, orjson.dumps(event), headers=headers)

    async def _until_complete(
        self, client: CommandClient, quiet_s: float = _QUIET_S
    ) -> StatusAnswer:
        """Return the status once no instance lags and no output has arrived for a while."""
        began_s, least_s = time.monotonic(), quiet_s
        while True:
            quiet_s = time.monotonic() - max(self.last_row_s, began_s)
            if quiet_s >= least_s:
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

    def sum_up(self, status: JsonMapping, expected: dict[str, Counter[bytes]], server: str) -> None:
        """Print the counts of the outputs, lost rows, and commands to try."""
        lost, doubled = 0, 0
        rows = []
        for stream, tally in self.tallies.items():
            missing, extra = expected[stream] - tally.rows, tally.rows - expected[stream]
            lost, doubled = lost + missing.total(), doubled + extra.total()
            numbers = (tally.events, missing.total(), extra.total())
            rows.append((stream, *numbers, *quantiles(tally.latency_ms)))
        self.is_exact = not lost and not doubled
        steady, burst = parts_of(len(self.events))
        latency_ms = quantiles([ms for tally in self.tallies.values() for ms in tally.latency_ms])
        burst_text = (
            f"{burst - steady:,} events, published at {self.burst_rate:,.0f}/s; "
            f"all output after {self.burst_s:.1f} s"
        )
        kill_text = (
            f"of {self.killed}: its group emitted nothing for {self.pause_s:.1f} s; "
            f"{lost} rows lost, {doubled} doubled"
        )
        findings = [
            ("steady", f"{steady:,} events at {STEADY_RATE}/s: {_latency(latency_ms)}"),
            ("burst", burst_text),
            ("kill -9", kill_text),
            ("all", f"{len(self.events):,} events in, {self.elapsed_s():.1f} s after the command"),
            ("address", f"{server} has the API and the dashboard while the cluster runs"),
        ]
        self.view.summary(findings, rows, status["instances"], hints())


def hints() -> tuple[str, ...]:
    """Suggestions of what to try next; first how to find `mesh` where the path lacks it."""
    if shutil.which("mesh"):
        return HINTS
    activate = shlex.quote(str(Path(os.path.relpath(sys.prefix), "bin", "activate")))
    return (f"{f'. {activate}':<46}first: finds mesh in this terminal", *HINTS)


def parts_of(events: int) -> tuple[int, int]:
    """The ends of the steady part and of the burst; the rest is for the loss of a worker."""
    steady = min(STEADY_EVENTS, events // 3)
    return steady, events - steady


def events_of(count: int) -> list[tuple[int, JsonObject]]:
    """The first ``count`` events: times in ms since 1970, and values."""
    # Imported late: it reads a table of 26,115 rows.
    from mesh.testing import weather

    return list(weather.load().events())[:count]


def expected_rows(text: str, count: int) -> dict[str, Counter[bytes]]:
    """The output of the app on the first ``count`` events, computed in this process.

    ``tests/operators/test_year.py`` compares it with the reference engine's.
    """
    import numpy as np

    from mesh.language.parser import parse
    from mesh.operators.executor import Executor, InputRun
    from mesh.plan.bind import bind
    from mesh.testing import weather

    year = weather.load()
    time_ms, rows = year.time_ms[:count], year.rows.slice(0, count)
    run = InputRun(INPUT, np.arange(1, 1 + len(time_ms)), time_ms, rows)
    counts: dict[str, Counter[bytes]] = {stream: Counter() for stream in OUTPUTS}
    for output in Executor(bind(parse(text)), OUTPUTS).run([run], {INPUT: int(time_ms[-1])}):
        counts[output.stream].update(map(row_key, output.rows.to_pylist()))
    return counts


def row_key(row: JsonObject) -> bytes:
    """A row as bytes that two rows share only if they are equal to the last bit."""
    return orjson.dumps(row, option=orjson.OPT_SORT_KEYS)


def _latency(quantiles_ms: tuple[float | None, float | None]) -> str:
    half, most = quantiles_ms
    if half is None or most is None:
        return "no output meanwhile"
    return f"output {half:.0f} ms after its event (median), {most:.0f} ms for 99 of 100"


def quantiles(values: list[float]) -> tuple[float | None, float | None]:
    """The 50th and the 99th percentile (nearest rank); None, None without values."""
    if not values:
        return None, None
    ordered = sorted(values)
    last = len(ordered) - 1
    return ordered[round(last * 0.5)], ordered[round(last * 0.99)]


def find_example() -> str:
    """The text of temperature.siddhi; MESH-U151 without it."""
    return shipped.path_of("examples/temperature.siddhi").read_text(encoding="utf-8")
