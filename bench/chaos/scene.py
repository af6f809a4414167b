"""The stage of one run: an app under load, faults on its processes, and its output."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from bench.chaos import app, totals
from bench.chaos.compare import Compared, compare
from bench.chaos.latency import Latency, stored_ms
from bench.chaos.outages import BEFORE_FAULT_MS, Outage
from mesh.clock import SystemClock
from mesh.errors import MeshError
from mesh.jetstream.connection import UNREACHABLE, close, connect
from mesh.model import names
from tests.support.secured import FEEDER, PUBLISHER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bench.chaos.outages import LeaderProbe
    from bench.chaos.stage import Stage
    from tests.support.databases import DatabaseServer
    from tools.cluster import Outside
    from tools.links import When

#: Events a second, during faults.
RATE: Final = 100
#: Events that are processed before the first fault, and that are sent after the last.
BEFORE: Final = 80
TAIL: Final = 60
#: The app has recovered when all rows of this many events after the fault are out.
AFTER: Final = 20
#: Maximum time without output before missing rows count as lost, seconds.
STILL_S: Final = 45.0
#: The journal's last entries may be this late, seconds.
STORY_S: Final = 10.0


class ScenarioError(Exception):
    """Something other than rows is not as it should be."""


@dataclass
class Scene:
    """The actions of a scenario; names of processes are those of its roles."""

    stage: Stage
    outside: Outside
    name: str
    text: str
    #: The subject that events are published to.
    subject: str = ""
    #: Worker of the first instance of the group by key when the load begins, and the other one.
    holder: str = ""
    other: str = ""
    #: The manager that leads then, and the one that doesn't.
    leader: str = ""
    follower: str = ""
    published: int = 0
    #: Number of the event from which on latency counts: the first after all repairs.
    calm_from: int = 0
    #: Headers of further events besides their own.
    headers: dict[str, str] = field(default_factory=dict)
    #: Events from a number on are later by milliseconds.
    jumps: list[tuple[int, int]] = field(default_factory=list)
    #: The database of the app's aggregation, if it has one.
    server: DatabaseServer | None = None
    #: Whether the server may lose acknowledged events.
    is_lossy: bool = False
    #: By stream: rows that the scenario has read and purged.
    purged: dict[str, list[list[Any]]] = field(default_factory=dict)
    #: Events a second.
    rate: int = RATE
    #: Requests to the leaders of streams since the fault, if it is one of theirs.
    probe: LeaderProbe | None = None
    #: The longest interruptions after the fault; none without a probe.
    outage: Outage | None = None
    #: Latency of the last events: after all repairs.
    latency: Latency | None = None
    _clock: SystemClock = field(default_factory=SystemClock)
    _fault: tuple[int, int] | None = None
    _stopped: bool = False
    _load: asyncio.Task[None] | None = None

    @property
    def database(self) -> DatabaseServer:
        """The database of a scenario that has one."""
        assert self.server is not None, "the scenario says that it has a database"
        return self.server

    # --- progress

    async def begin(self) -> None:
        """Deploy the app, wait until it runs, and start the load."""
        await self.know_managers()
        await self.outside.service.deploy(self.text, by="chaos")
        await self.under_load()

    async def know_managers(self) -> None:
        """Find the present leader."""

        def leads() -> str | None:
            lease = self.outside.view.snapshot().lease
            alive = lease is not None and lease.value is not None
            holder = lease.value.holder if alive and lease and lease.value else ""
            return holder if self.stage.processes.is_alive(holder) else None

        self.leader = await self.outside.until("a leader", leads)
        self.follower = "m2" if self.leader == "m1" else "m1"

    async def under_load(self) -> None:
        """Wait until the app runs, start the load, and wait for the first rows."""
        await self.outside.until_running(self.name)
        self.holder = self.worker_of("sums-1")
        self.other = "w2" if self.holder == "w1" else "w1"
        self._load = asyncio.create_task(self._publish())
        await self.counted(BEFORE)

    async def end(self) -> None:
        """Repair everything, send the last events and wait for their output."""
        await self.stage.mended(self.outside)
        await self.outside.until_running(self.name)
        self.calm_from = self.calm_from or self.published
        await self.flow(TAIL)
        self._stopped = True
        if self._load is not None:
            await self._load

    async def give_up(self) -> None:
        """Stop the load, whatever has become of it."""
        if self._load is not None:
            self._load.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._load

    async def flow(self, events: int) -> None:
        """Wait until this many more events are published."""
        upto = self.published + events
        await self.outside.until(f"{upto} events", lambda: self.published >= upto)

    async def counted(self, rows: int) -> None:
        """Wait until this many more rows of the group by key are out."""
        await self.counted_in("Counts", rows)

    async def counted_in(self, stream: str, rows: int) -> None:
        """Wait until this many more rows of a stream are out."""
        first = await self._count(stream) or 0

        async def enough() -> bool:
            return (await self._count(stream) or 0) >= first + rows

        await self.outside.until(f"{rows} more rows in {stream}", enough)

    async def instances(self, group: str, count: int) -> None:
        """Wait until a group has this many instances, none on the move, and the app runs."""

        def has() -> bool:
            mine = [a for a in self.assignments() if a.group == group]
            return len(mine) == count and not any(a.stop for a in mine)

        await self.outside.until(f"{count} instances of {group}", has)
        await self.outside.until_running(self.name)

    async def passing(self, seconds: float) -> None:
        """Let time pass: for faults that last."""
        await asyncio.sleep(seconds)

    async def shows(self, pattern: str) -> None:
        """Wait until the status of an instance has an error that matches a pattern."""

        async def is_shown() -> bool:
            status = await self.outside.service.status(self.name)
            told = [*(one.error for one in status.instances), status.cure]
            return any(text and re.search(pattern, text) for text in told)

        await self.outside.until(f'an error "{pattern}" of {self.name}', is_shown)

    async def check_written(self, without: str = "") -> None:
        """Check that no row so far is doubled, wrong or out of order; there may be more to come.

        ``without``: a stream that is gone.
        """
        found = {}
        for stream in {*app.OUTPUTS} - {without}:
            read = await self.outside.messages(
                names.js_stream(self.name, stream), names.subject(self.name, stream)
            )
            found[stream] = [list(json.loads(message.data).values()) for message in read]
        # The event under way may be stored, and not acknowledged yet.
        sent = [self.event(number) for number in range(self.published + 1)]
        expected = await asyncio.to_thread(app.expected, sent, self.text)
        compared = compare(found, {stream: expected[stream] for stream in found}, app.UNORDERED)
        if compared.doubled or compared.disordered:
            raise ScenarioError(f"wrong rows before the remedy: {compared.told}")

    # --- actions

    def hit(self) -> None:
        """Record the time of the fault; the first call counts."""
        if self._fault is None:
            self._fault = (self._clock.wall_ms(), self.published)

    async def kill(self, *names_: str) -> None:
        """Kill -9 processes and all that they started, at once."""
        self.hit()
        for name in names_:
            await asyncio.to_thread(self.stage.processes.kill_all_of, name)

    async def kill_when(self, name: str, pattern: str, when: When) -> None:
        """Kill -9 a process when it writes ``pattern`` to NATS; returns when that has happened."""
        kill = self.stage.processes.killer(name)
        trap = self.stage.links.trap(name, pattern.encode(), when, kill)
        await self.outside.until(f"{name} writes {pattern}", trap.closed.is_set)
        self.hit()
        await asyncio.to_thread(self.stage.processes.wait, name)

    def pause(self, name: str, *, alone: bool = False) -> None:
        """SIGSTOP a process and all that it started; ``alone`` a worker's agent only."""
        self.hit()
        if alone:
            self.stage.processes.signal(name, signal.SIGSTOP)
        else:
            self.stage.processes.signal_all_of(name, signal.SIGSTOP)

    def wake(self, name: str) -> None:
        """SIGCONT."""
        self.stage.processes.wake(name)

    def cut(self, name: str, *, up: bool = True, down: bool = True) -> None:
        """Cut a process from NATS, one way or both."""
        self.hit()
        self.stage.links.cut(name, up=up, down=down)

    def heal(self, name: str) -> None:
        """Undo ``cut``."""
        self.stage.links.heal(name)

    async def order(self, worker: str, admission: str) -> None:
        """Cordon, drain or open a worker."""
        await self.outside.service.order_node(worker, admission, by="chaos")

    async def moved(self, worker: str) -> None:
        """Wait until the app has nothing on a worker, and runs."""
        await self.outside.until(
            f"nothing on {worker}",
            lambda: all(a.worker != worker for a in self.assignments()) and self.assignments(),
        )
        await self.outside.until_running(self.name)

    async def led_by(self, manager: str) -> None:
        """Wait until a manager leads."""

        def leads() -> bool:
            lease = self.outside.view.snapshot().lease
            return lease is not None and lease.value is not None and lease.value.holder == manager

        await self.outside.until(f"{manager} leads", leads)

    # --- state

    def assignments(self) -> list[Any]:
        """The app's, as they are written."""
        snapshot = self.outside.view.snapshot()
        return [a.value for a in snapshot.assignments if a.value.app == self.name]

    def worker_of(self, instance: str) -> str:
        """The worker that has an instance, named without its app."""
        wanted = f"{self.name}-{instance}"
        return str(next(a.worker for a in self.assignments() if a.instance == wanted))

    def pids(self) -> dict[str, int | None]:
        """Of managers, workers and their sessions: the same as long as none was restarted."""
        processes = self.stage.processes
        found: dict[str, int | None] = {name: processes.pid(name) for name in processes.names()}
        sessions = [name for name in found if name.startswith("w")]
        return found | {f"{name}'s session": processes.session_pid(name) for name in sessions}

    # --- results

    async def compared(self) -> tuple[Compared, float | None]:
        """Wait for all rows, and compare them; the time the app took to recover, seconds."""
        sent = [self.event(number) for number in await self._numbers()]
        expected = await asyncio.to_thread(app.expected, sent, self.text)
        gone = {stream: len(self.purged.get(stream, ())) for stream in expected}
        await self._until_still({name: len(rows) - gone[name] for name, rows in expected.items()})
        found: dict[str, list[list[Any]]] = {}
        #: When each row was stored, milliseconds.
        times: dict[str, list[float]] = {}
        outputs: list[tuple[int, float]] = []
        last_ms = 0.0
        for stream in expected:
            js_stream = names.js_stream(self.name, stream)
            subject = names.subject(self.name, stream)
            found[stream], times[stream] = [*self.purged.get(stream, ())], []
            for message in await self.outside.messages(js_stream, subject):
                row = list(json.loads(message.data).values())
                found[stream].append(row)
                at_ms = message.metadata.timestamp.timestamp() * 1000
                times[stream].append(at_ms)
                outputs.append((row[1], at_ms))
                if self._fault is not None and row[1] <= self._fault[1] + AFTER:
                    last_ms = max(last_ms, at_ms)
        if self.server is not None:
            expected[totals.TOTALS] = totals.expected(sent)
            js_stream = names.js_stream(self.name, app.INPUT)
            found[totals.TOTALS] = await totals.found(self.outside, self.name, js_stream, STILL_S)
        recovery_s = None
        if self._fault is not None:
            recovery_s = max(0.0, (last_ms - self._fault[0]) / 1000)
        events = await stored_ms(self.outside, self.name)
        self.latency = Latency.of(events, outputs, range(self.calm_from, self.published))
        if self.probe is not None and self._fault is not None:
            elections, load = await self.probe.end(), list(events.values())
            self.outage = Outage.of(elections, load, times, self._fault[0] - BEFORE_FAULT_MS)
        return compare(found, expected, app.UNORDERED), recovery_s

    async def told(
        self, *wanted: tuple[str, ...], within_s: float = STORY_S
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The story, and of ``wanted``, each patterns in order, those that it lacks."""
        deadline_s = self._clock.monotonic_s() + within_s
        strands = [[self._filled(pattern) for pattern in strand] for strand in wanted]
        while True:
            try:
                entries = await self.outside.service.story(self.name)
            except MeshError:
                # The journal may have no leader for a while.
                if self._clock.monotonic_s() > deadline_s:
                    raise
                await asyncio.sleep(1.0)
                continue
            lines = tuple(f"{e.by} {e.text}: {e.cause}" for e in entries)
            untold = tuple(p for strand in strands for p in unmatched(strand, lines))
            if not untold or self._clock.monotonic_s() > deadline_s:
                return lines, untold
            await self.outside.view.changed(self.outside.view.version, 0.3)

    def _filled(self, pattern: str) -> str:
        roles = {"app": self.name, "holder": self.holder, "other": self.other}
        roles |= {"leader": self.leader, "follower": self.follower}
        return re.sub(r"<(\w+)>", lambda found: roles[found[1]], pattern)

    def event(self, number: int) -> tuple[int, dict[str, Any]]:
        """Time in milliseconds and values of an event as it was published."""
        time_ms, row = app.event(number)
        return time_ms + sum(by_ms for first, by_ms in self.jumps if number >= first), row

    async def _numbers(self) -> Iterable[int]:
        """The events of the input, in their order."""
        if not self.is_lossy:
            return range(self.published)
        stream, subject = names.js_stream(self.name, app.INPUT), self.subject
        found = [json.loads(one.data)["a"] for one in await self.outside.messages(stream, subject)]
        if len(set(found)) != len(found):
            raise ScenarioError(f"{len(found)} events are stored, {len(set(found))} different ones")
        return found

    async def _until_still(self, expected: dict[str, int]) -> None:
        """Until each stream has its rows, or none gets any more."""
        before: dict[str, int | None] = {}
        changed_s = self._clock.monotonic_s()
        while True:
            counts = {stream: await self._count(stream) for stream in expected}
            if all((counts[stream] or 0) >= rows for stream, rows in expected.items()):
                return
            now_s = self._clock.monotonic_s()
            if counts != before:
                before, changed_s = counts, now_s
            elif now_s - changed_s > STILL_S:
                return
            await self.outside.view.changed(self.outside.view.version, 0.1)

    async def _count(self, stream: str) -> int | None:
        """Number of rows of a stream; None if no server answers."""
        try:
            return await self.outside.count(
                names.js_stream(self.name, stream), names.subject(self.name, stream)
            )
        except UNREACHABLE:
            return None

    async def _publish(self) -> None:
        """Publish the events in their order, each until it is acknowledged."""
        user = PUBLISHER if self.subject.startswith(f"{names.ROOT}.") else FEEDER
        client = await connect(self.stage.servers.settings(user), "chaos load")
        due_s = self._clock.monotonic_s()
        try:
            while not self._stopped:
                await self._send(client.jetstream().publish)
                self.published += 1
                # What an outage has delayed is not made up for.
                now_s = self._clock.monotonic_s()
                due_s = max(due_s + 1 / self.rate, now_s - 1 / self.rate)
                await asyncio.sleep(max(0.0, due_s - now_s))
        finally:
            await close(client)

    async def _send(self, publish: Callable[..., Any]) -> None:
        time_ms, row = self.event(self.published)
        # An event sent again, because its answer was lost, counts once.
        headers = {
            names.EVENT_TIME_HEADER: str(time_ms),
            "Nats-Msg-Id": f"{self.name}-{self.published}",
            **self.headers,
        }
        subject, data = self.subject, json.dumps(row).encode()
        while True:
            try:
                await publish(subject, data, headers=headers, timeout=0.5)
            except UNREACHABLE:
                await asyncio.sleep(0.05)
            else:
                return


def unmatched(patterns: list[str], lines: tuple[str, ...]) -> tuple[str, ...]:
    """The patterns without a line after that of the previous one; the rest of them too."""
    at = 0
    for number, pattern in enumerate(patterns):
        found = next((i for i in range(at, len(lines)) if re.search(pattern, lines[i])), None)
        if found is None:
            return tuple(patterns[number:])
        at = found + 1
    return ()
