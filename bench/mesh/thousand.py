"""A thousand apps of one query on one worker: what each costs, and how soon all are there.

Apps are deployed and removed through the manager's API, as users do.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections import defaultdict
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import httpx
import psutil

from bench.connector.harness import Figure
from bench.flow.latency import APPS as TEXTS
from bench.flow.latency import HEAD, metered
from bench.mesh import harness
from bench.mesh.deciding import decision_s
from mesh.model.cluster import InstanceState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence

    from bench.mesh.harness import View

#: Apps without an argument.
APPS: Final = 1000
APP: Final = HEAD + TEXTS["Stateless"]
#: Requests to the manager at once.
_AT_ONCE: Final = 8
#: Time for compilers and caches to come to rest, and over which processor time is measured: reports
#: repeat and apps are verified each minute.
SETTLE_S: Final = 15.0
IDLE_S: Final = 60.0
#: Events a second of each app, and for how long before and while latencies are measured.
_RATE: Final = 1
_WARM_UP_S: Final = 5.0
_EVENTS_S: Final = 30.0
#: Apps that are deployed when all others run, one after the other.
MORE: Final = 20
_FAILOVERS: Final = 3
_PAGES: Final = 9
#: The dashboard keeps what it shows for less than that, seconds.
_PAGE_AGE_S: Final = 1.0
_LONG_S: Final = 900.0
#: Time limit for outputs that a busy machine could not keep up with, seconds.
_BACKLOG_S: Final = 180.0


@dataclass(frozen=True)
class Cost:
    """Needs of the processes of a mesh at one moment."""

    #: Processor time so far, seconds, and share of memory, MB, by owner.
    cpu_s: Mapping[str, float]
    memory_mb: Mapping[str, float]
    #: Memory of the worker by kind of process.
    worker_mb: Mapping[str, float]
    files: Mapping[str, float]
    #: Of NATS: calls of its JetStream API, streams, consumers, bytes that are reserved.
    calls: int
    streams: int
    consumers: int
    reserved: int


async def measure(servers: int, apps: int = APPS) -> list[Figure]:
    """Deploy ``apps`` apps, use them, lose a leader and the worker, and remove all."""
    names = [f"Many{number}" for number in range(apps)]
    # Only instances that lose their worker move.
    async with harness.mesh(1, servers=servers, MESH_MANAGER_MOVES_AT_ONCE="0") as view:
        view.deadline_s = _LONG_S
        await asyncio.sleep(SETTLE_S)
        empty = cost(view)
        alone_s = await _manager_start_s(view, "m0")
        view.cluster.end("m0")
        figures = await _deployed(view, names)
        figures += await _used(view, names, empty)
        figures += await _managed(view, names, alone_s)
        figures += await _lost(view, names)
        figures.append(await _removed(view, names))
    return figures


async def _deployed(view: View, names: Sequence[str]) -> list[Figure]:
    before = cost(view)
    async with api(view) as client:
        began_s = time.perf_counter()
        await _each(names, lambda name: deploy(client, name))
        answered_s = time.perf_counter() - began_s
    await view.until("all run", lambda: running(view, names) == len(names))
    took_s = time.perf_counter() - began_s
    told = f"all deploys were answered after {answered_s:.1f} s; {_calls(before, cost(view))}"
    _say(f"{len(names)} apps run after {took_s:.1f} s; {told}")
    return [
        Figure(
            f"deploy of {len(names)} apps of one query, until all run", took_s, "s", 300.0,
            at_least=False, note=told,
        )
    ]  # fmt: skip


async def _used(view: View, names: Sequence[str], empty: Cost) -> list[Figure]:
    """Needs of the apps at rest, and with events."""
    await asyncio.sleep(SETTLE_S)
    before = cost(view)
    await asyncio.sleep(IDLE_S)
    after = cost(view)
    idle = {k: (s - before.cpu_s[k]) / IDLE_S * 100 for k, s in after.cpu_s.items()}
    held = f"{after.streams} streams, {after.consumers} consumers"
    _say(f"at rest, of a core: {_shown(idle, '%')}; {_calls(before, after)}; {held}")
    await metered(view, names, _RATE * len(names), _WARM_UP_S)
    before = cost(view)
    found = await metered(view, names, _RATE * len(names), _EVENTS_S)
    after = cost(view)
    busy = {k: (s - before.cpu_s[k]) / _EVENTS_S * 100 for k, s in after.cpu_s.items()}
    _say(f"p50 {found.p50_ms:.1f}, p99 {found.p99_ms:.1f} ms; of a core: {_shown(busy, '%')}")
    each = {
        k: (mb - empty.memory_mb[k]) / len(names)
        for k, mb in after.memory_mb.items()
    }  # fmt: skip
    parts = {k: mb - empty.worker_mb[k] for k, mb in after.worker_mb.items()}
    told = f"files {_shown(after.files)}; {after.streams} streams, {after.consumers} consumers"
    _say(f"MB an app: {_shown(each)}; the worker's in all: {_shown(parts)}; {told}")
    began_s = time.perf_counter()
    wrong = await _difference(view, names)
    worked_off = f"{found.missing} of {found.count + found.missing - found.repeats} came late; "
    worked_off += f"all were stored after {time.perf_counter() - began_s:.0f} s"
    _say(f"outputs that are missing or too many: {wrong}; {worked_off}")
    return [
        Figure("all of them at rest, of a core", sum(idle.values()), "%", 15.0,
               at_least=False, note=_shown(idle)),
        Figure(f"{_RATE} event/s each, p99", found.p99_ms, "ms", 250.0, at_least=False,
               note=f"median {found.p50_ms:.1f} ms, highest {found.max_ms:.0f}; "
               f"of a core: {_shown(busy)}"),
        Figure("outputs of them that a subscriber saw twice, or that are not stored once",
               wrong + found.repeats, "", 0.0, at_least=False, note=worked_off),
        *(
            Figure(f"memory of {owner} for each app", each[owner], "MB", most,
                   at_least=False, note=note)
            for owner, most, note in (
                ("worker", 3.0, _shown(parts)), ("manager", 3.0, ""), ("NATS", 4.0, told),
            )
        ),
        Figure("JetStream's reservation for each app",
               (after.reserved - empty.reserved) / len(names) / 1e6, "MB"),
    ]  # fmt: skip


async def _difference(view: View, names: Sequence[str]) -> int:
    """Outputs that are missing or too many, once a backlog of a busy machine is worked off."""
    deadline_s = time.monotonic() + _BACKLOG_S
    while True:
        wrong = 0
        for name in names:
            counts = [
                await view.count(f"mesh-{name}-{stream}", f"mesh.{name}.{stream}")
                for stream in ("Input", "Output")
            ]
            wrong += abs(counts[0] - counts[1])
        if not wrong or time.monotonic() > deadline_s:
            return wrong
        await asyncio.sleep(1.0)


async def _manager_start_s(view: View, name: str) -> float:
    """Seconds from the start of another manager until it is ready."""
    began_s = time.perf_counter()
    view.cluster.start_manager(name)
    async with api(view, name):
        return time.perf_counter() - began_s


async def _managed(view: View, names: Sequence[str], alone_s: float) -> list[Figure]:
    """The overview, deployments of one more app, and another manager."""
    async with api(view) as client:
        pages = []
        for _ in range(_PAGES):
            await asyncio.sleep(_PAGE_AGE_S)
            began_s = time.perf_counter()
            page = await client.get("/")
            pages.append((time.perf_counter() - began_s) * 1000)
            assert page.status_code == 200, page.text
            # It shows the first ones only.
            assert names[0][:4] in page.text
        before = cost(view)
        more = []
        for name in (f"More{number}" for number in range(MORE)):
            began_s = time.perf_counter()
            await deploy(client, name)
            await view.until(f"{name} runs", lambda name=name: running(view, [name]))  # type: ignore[misc]
            more.append(time.perf_counter() - began_s)
        told = _calls(before, cost(view))
        await _each([f"More{n}" for n in range(MORE)], lambda name: undeploy(client, name))
    await view.until("the others are gone", lambda: len(known(view)) == len(names))
    _say(f"overview {statistics.median(pages):.0f} ms; one more {statistics.median(more):.2f} s")
    started_s = await _manager_start_s(view, "m2")
    _say(f"a manager starts in {started_s:.1f} s, without apps in {alone_s:.1f} s")
    # The planner of this process starts with the first one.
    await harness.deploy(view, ["First"])
    failovers = [await decision_s(view, number) for number in range(_FAILOVERS)]
    _say(f"failovers of the leader: {', '.join(f'{s:.2f}' for s in failovers)} s")
    return [
        Figure("overview of the dashboard, median", statistics.median(pages), "ms", 300.0,
               at_least=False, runs=tuple(pages), note=f"slowest {max(pages):.0f}"),
        Figure("deploy of one more, p95", _p95(more), "s", 1.0, at_least=False,
               runs=tuple(more), note=f"median {statistics.median(more):.2f} s; {told}"),
        Figure("start of a manager", started_s, "s", 5.0, at_least=False,
               note=f"without apps {alone_s:.1f} s"),
        Figure("kill -9 of the leader to the next decision carried out, slowest",
               max(failovers), "s", 2.0, at_least=False, runs=tuple(failovers)),
    ]  # fmt: skip


async def _lost(view: View, names: Sequence[str]) -> list[Figure]:
    """The end of the worker, whose instances another one takes over."""
    view.cluster.start_worker("w2")
    await view.until_ready("w2")
    await asyncio.sleep(SETTLE_S)
    began_s = time.perf_counter()
    view.cluster.kill_all_of("w1")
    await view.until("a first one runs", lambda: running(view, names, "w2"))
    first_s = time.perf_counter() - began_s
    await view.until("all run", lambda: running(view, names, "w2") == len(names))
    took_s = time.perf_counter() - began_s
    _say(f"worker lost: the first one runs after {first_s:.1f} s, the last after {took_s:.1f} s")
    return [
        Figure("kill -9 of the worker until the last app runs elsewhere", took_s, "s", 30.0,
               at_least=False, note=f"the first one after {first_s:.1f} s"),
    ]  # fmt: skip


async def _removed(view: View, names: Sequence[str]) -> Figure:
    before = cost(view)
    began_s = time.perf_counter()
    async with api(view) as client:
        await _each(sorted(known(view)), lambda name: undeploy(client, name))
    await view.until("all are gone", lambda: not known(view))
    took_s = time.perf_counter() - began_s
    after = cost(view)
    left = f"{after.streams} streams and {after.consumers} consumers are left"
    _say(f"all are gone after {took_s:.1f} s; {left}; {_calls(before, after)}")
    return Figure(f"undeploy of {len(names)} apps", took_s, "s", note=left)


# --- the mesh


@asynccontextmanager
async def api(view: View, manager: str = "m1") -> AsyncIterator[httpx.AsyncClient]:
    """A client of a manager's API, as soon as it is ready."""

    def address() -> str:
        nodes = (seen.value for seen in view.view.snapshot().nodes)
        mine = view.cluster.pid(manager)
        return next((n.address for n in nodes if n.id == manager and n.pid == mine), "")

    where = await view.until(f"{manager} listens", address)
    async with httpx.AsyncClient(base_url=f"http://{where}", timeout=60.0) as client:

        async def is_ready() -> bool:
            return (await client.get("/health/ready")).status_code == 200

        await view.until(f"{manager} is ready", is_ready)
        yield client


async def deploy(client: httpx.AsyncClient, name: str) -> None:
    """Deploy one app; it runs a little later."""
    headers = {"Content-Type": "text/plain"}
    done = await client.post("/siddhi-apps", content=APP.format(name=name), headers=headers)
    assert done.status_code == 201, done.text


async def undeploy(client: httpx.AsyncClient, name: str) -> None:
    """Ask for the removal of one app."""
    while True:
        try:
            done = await client.delete(f"/siddhi-apps/{name}")
        except httpx.RemoteProtocolError:
            # The API has closed a connection that was quiet.
            continue
        assert done.is_success, done.text
        return


async def _each(names: Iterable[str], step: Callable[[str], Awaitable[None]]) -> None:
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(name: str) -> None:
        async with gate:
            await step(name)

    await asyncio.gather(*map(one, names))


def known(view: View) -> set[str]:
    """The apps that have a record."""
    return {seen.value.spec.name for seen in view.view.snapshot().apps}


def running(view: View, apps: Iterable[str], worker: str = "") -> int:
    """Number of instances of apps that run where they are placed, on one worker or on any."""
    wanted, now = set(apps), view.view.snapshot()
    placed = {
        (a.value.instance, a.value.epoch)
        for a in now.assignments
        if a.value.app in wanted and worker in ("", a.value.worker)
    }
    return sum(
        (s.value.instance, s.value.epoch) in placed and s.value.state is InstanceState.RUNNING
        for s in now.statuses
    )


def cost(view: View) -> Cost:
    """Needs of worker w1, of manager m1 and of NATS, as far as they run."""
    owners = {
        owner: harness.tree(view.processes.pid(name))
        for owner, name in (("worker", "w1"), ("manager", "m1"))
        if view.processes.is_alive(name)
    }
    owners["NATS"] = view.server_processes
    cpu_s, files, memory_mb, worker_mb = (defaultdict[str, float](float) for _ in range(4))
    for owner, processes in owners.items():
        for process in processes:
            try:
                size = process.memory_full_info().pss / 2**20
                files[owner] += process.num_fds()
                cpu_s[owner] += harness.cpu_s([process])
                kind = harness.kind_of(process)
            except psutil.Error:
                # It has ended meanwhile.
                continue
            memory_mb[owner] += size
            if owner == "worker":
                worker_mb[kind] += size
    told = [view.cluster.servers.monitored(name, "jsz") for name in view.cluster.servers.names]
    return Cost(
        cpu_s, memory_mb, worker_mb, files,
        sum(one["api"]["total"] for one in told),
        max(one["streams"] for one in told), max(one["consumers"] for one in told),
        max(one["reserved_storage"] for one in told),
    )  # fmt: skip


# --- texts


def _calls(before: Cost, after: Cost) -> str:
    return f"{after.calls - before.calls} calls of JetStream's API"


def _shown(values: Mapping[str, float], unit: str = "") -> str:
    parts = (f"{k} {v:.2f}" if v < 10 else f"{k} {v:.0f}" for k, v in sorted(values.items()))
    return ", ".join(f"{part}{unit and ' ' + unit}" for part in parts)


def _p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[-1]


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
