"""``python -m bench.dashboard``: time and processor that the dashboard's pages cost.

Records of nodes, apps and instances are written as managers and agents write them; no worker runs.
With ``--check`` a missed target fails: the overview of 1,000 apps and 200 workers is rendered in
less than 200 ms, a page loads at most 400 kB, 50 open pages cost a manager 5 % of a core at most,
and counters of events 1 % of a worker's processor time, with DETAIL 5 %.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
import psutil

from bench import counters
from mesh.api.auth import Access
from mesh.api.page_access import PageAccess
from mesh.clock import SystemClock
from mesh.dashboard.server import make_pages
from mesh.jetstream import kv, server
from mesh.jetstream.channels import ensure_buckets
from mesh.jetstream.connection import close, connect
from mesh.manager.service import observing
from mesh.model import codec, names
from mesh.model.cluster import (
    AppRecord,
    Assignment,
    InstanceState,
    InstanceStatus,
    LeaseRecord,
    NodeMetrics,
    NodeRecord,
    NodeRole,
)
from mesh.plan.build import plan
from mesh.settings import NatsSettings, Settings, WorkerSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from nats.aio.client import Client

APPS: Final = 1000
WORKERS: Final = 200
RENDER_MAX_S: Final = 0.2
#: Bytes of a page with the files that it loads, as a browser gets them.
WEIGHT_MAX: Final = 400_000
PAGES: Final = 50
SHARE_MAX: Final = 0.05
_RUNS: Final = 15
#: Time over which the processor is measured, seconds.
_TIME_S: Final = 20.0
_AT_ONCE: Final = 100
_TEXT: Final = """@App:name('{name}')
define stream Input (k int, v double);
@dist(execGroup='one', parallel='2') from Input[v > 0] select k, v insert into Positive;
"""
#: Pages whose weight is measured: the first one, and the one with the editor.  A test measures all
#: of a small cluster.
_WEIGHED: Final = ("/", "/deploy")
#: Paths of the open pages, in turn.
_OPEN: Final = ("/", "/apps/App0", "/apps/App1?tab=instances", "/nodes", "/apps/App2/s/Input")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.dashboard", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    given = parser.parse_args(arguments)
    rendered, weights = asyncio.run(_rendered())
    rendered_s, spent_s = (statistics.median(times) for times in zip(*rendered, strict=True))
    worst_s, _ = max(rendered)
    print(
        f"overview of {APPS} apps, {WORKERS} workers: {rendered_s * 1000:.0f} ms, slowest "
        f"{worst_s * 1000:.0f} ms; {spent_s * 1000:.0f} ms of a core"
    )
    for path, (page, files) in weights.items():
        print(f"{path}: {page / 1000:.0f} kB, and {files / 1000:.0f} kB of files, packed")
    calm, watched = asyncio.run(_watched())
    share = watched - calm
    print(f"manager without pages: {calm:.1%} of a core; with {PAGES} open ones: {watched:.1%}")
    print(f"{PAGES} open pages: {share:.1%} of a core, {share / PAGES * 1000:.2f} ms/s each")
    basic, detail = counters.measure()
    print(f"counters of W1's events: {basic:.2%} of a worker's time, with DETAIL {detail:.2%}")
    missed = []
    if basic > counters.BASIC_MAX or detail > counters.DETAIL_MAX:
        missed.append(f"counters cost {basic:.2%}, with DETAIL {detail:.2%}")
    if rendered_s > RENDER_MAX_S:
        missed.append(f"the overview takes {rendered_s * 1000:.0f} ms")
    missed += [
        f"{path} loads {sum(weight) / 1000:.0f} kB"
        for path, weight in weights.items()
        if sum(weight) > WEIGHT_MAX
    ]
    if share > SHARE_MAX:
        missed.append(f"{PAGES} pages cost {share:.1%} of a core")
    for one in missed:
        print(f"missed: {one}", file=sys.stderr)
    return int(given.check and bool(missed))


@asynccontextmanager
async def _records(apps: int, workers: int, url: str) -> AsyncIterator[Client]:
    """A connection; the records of a cluster are stored."""
    settings = Settings(nats=NatsSettings(url=url))
    client = await connect(settings.nats, "bench")
    try:
        await ensure_buckets(client.jetstream(), settings.channels)
        await _put_all(client, list(_cluster(apps, workers)))
        yield client
    finally:
        await close(client)


def _cluster(apps: int, workers: int) -> list[tuple[str, str, Any]]:
    """Bucket, key and record of everything."""
    made: list[tuple[str, str, Any]] = [_node(f"w{number}", 1) for number in range(workers)]
    spec = plan(_TEXT.format(name="App")).spec
    for number in range(apps):
        name = f"App{number}"
        group = replace(spec.groups[0], app=name)
        channels = tuple(replace(channel, app=name) for channel in spec.channels)
        own = replace(spec, name=name, groups=(group,), channels=channels)
        made.append((names.APPS_BUCKET, names.app_key(name), AppRecord(own, f"i{number}", 1)))
        for index, instance in enumerate(group.instances):
            worker = f"w{(2 * number + index) % workers}"
            made += _instance(instance, name, worker, f"i{number}", number)
    return made


def _instance(
    instance: str, app: str, worker: str, incarnation: str, number: int
) -> list[tuple[str, str, Any]]:
    placed = Assignment(
        instance=instance, app=app, group="one", worker=worker, worker_incarnation=f"i-{worker}",
        epoch=1, app_incarnation=incarnation, index=int(instance[-1]), lease_revision=1,
    )  # fmt: skip
    state = InstanceState.RETRYING if number % 100 == 7 else InstanceState.RUNNING
    error = "ValueError: the bench" if state is InstanceState.RETRYING else None
    status = InstanceStatus(
        instance, app, worker, 1, state, SystemClock().wall_ms(), error=error,
        events_in=number * 1000, events_out=number * 10, behind=number % 50, batch_ms_p50=4.0,
    )  # fmt: skip
    return [
        (names.CONTROL_BUCKET, names.assignment_key(instance), placed),
        (names.STATUS_BUCKET, names.status_key(instance), status),
    ]


def _node(name: str, beat: int) -> tuple[str, str, Any]:
    metrics = NodeMetrics(20.0 + beat % 7, 30.0, 800_000_000, 40.0, load_1m=0.5)
    record = NodeRecord(
        name, NodeRole.WORKER, f"i-{name}", "", beat, 42, ready=True, metrics=metrics
    )
    return names.CONTROL_BUCKET, names.node_key(NodeRole.WORKER, name), record


async def _put_all(client: Client, records: Sequence[tuple[str, str, Any]]) -> None:
    js = client.jetstream()
    for start in range(0, len(records), _AT_ONCE):
        some = records[start : start + _AT_ONCE]
        await asyncio.gather(*(kv.put(js, b, k, codec.encode(record)) for b, k, record in some))


async def _rendered() -> tuple[list[tuple[float, float]], dict[str, tuple[int, int]]]:
    """Times in which the overview was rendered, each from a view read again; weights of pages."""
    with tempfile.TemporaryDirectory() as directory:
        nats = server.start(Path(directory))
        try:
            async with _records(APPS, WORKERS, nats.url) as client:
                lease = codec.encode(LeaseRecord("m1", 1))
                await kv.put(client.jetstream(), names.CONTROL_BUCKET, names.LEASE_KEY, lease)
                # Heartbeats are not sent again.
                settings = Settings(
                    nats=NatsSettings(url=nats.url), worker=WorkerSettings(ttl_s=600.0)
                )
                async with observing(settings) as service:
                    pages = make_pages(service, PageAccess(Access(None)), SystemClock())
                    transport = httpx.ASGITransport(pages)
                    url = "http://localhost"
                    async with httpx.AsyncClient(transport=transport, base_url=url) as browser:
                        times = [await _once(browser) for _ in range(_RUNS)]
                        return times, {path: await _weight(browser, path) for path in _WEIGHED}
        finally:
            nats.stop()


async def _once(browser: httpx.AsyncClient) -> tuple[float, float]:
    """Seconds by the clock, and of the processor."""
    # The board keeps a view for less than a second.
    await asyncio.sleep(1.0)
    began_s, before_s = time.perf_counter(), time.process_time()
    page = await browser.get("/")
    took_s = time.perf_counter() - began_s, time.process_time() - before_s
    assert page.status_code == 200, page.text
    assert "App7" in page.text
    return took_s


async def _weight(browser: httpx.AsyncClient, path: str) -> tuple[int, int]:
    """Bytes of a page, and of the scripts and styles that it loads, as they are sent."""
    headers = {"Accept": "text/html", "Accept-Encoding": "gzip"}

    async def sent(one: str) -> tuple[int, str]:
        async with browser.stream("GET", one, headers=headers) as answer:
            assert answer.status_code == 200, one
            raw = b"".join([part async for part in answer.aiter_raw()])
            packed = answer.headers.get("content-encoding") == "gzip"
            return len(raw), "" if packed else raw.decode()

    size, text = await sent(path)
    links = re.findall(r'<(?:script src|link rel="(?:stylesheet|icon)" href)="([^"]+)"', text)
    assert all(link.startswith("/static/") for link in links), links
    return size, sum([(await sent(link))[0] for link in links])


async def _watched() -> tuple[float, float]:
    """Shares of a core that a manager takes: without pages, and with the open ones."""
    with tempfile.TemporaryDirectory() as directory:
        nats = server.start(Path(directory))
        port = server.free_port()
        manager = _manager(nats.url, port)
        try:
            async with _records(0, 3, nats.url) as client:
                beats = asyncio.create_task(_beat(client))
                url = f"http://localhost:{port}"
                limits = httpx.Limits(max_connections=None)
                async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60) as browser:
                    await _deploy(browser)
                    calm = await _share(manager.pid)
                    readers = [
                        asyncio.create_task(_read(browser, _OPEN[n % len(_OPEN)]))
                        for n in range(PAGES)
                    ]
                    await asyncio.sleep(3.0)
                    watched = await _share(manager.pid)
                    ended = [task for task in (*readers, beats) if task.done()]
                    assert not ended, ended
                    for task in (*readers, beats):
                        task.cancel()
                    await asyncio.gather(*readers, beats, return_exceptions=True)
            return calm, watched
        finally:
            manager.kill()
            manager.wait()
            nats.stop()


def _manager(url: str, port: int) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "MESH_NATS_URL": url,
        "MESH_MANAGER_ID": "m1",
        "MESH_MANAGER_PORT": str(port),
        "MESH_MANAGER_ANONYMOUS": "true",
    }
    command = [sys.executable, "-m", "mesh.cli", "manager"]
    return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)


async def _deploy(browser: httpx.AsyncClient) -> None:
    deadline_s = time.monotonic() + 30
    while time.monotonic() < deadline_s:
        with contextlib.suppress(httpx.TransportError):
            if (await browser.get("/health/ready")).status_code == 200:
                break
        await asyncio.sleep(0.2)
    headers = {"Content-Type": "text/plain"}
    for number in range(5):
        text = _TEXT.format(name=f"App{number}")
        done = await browser.post("/siddhi-apps", content=text, headers=headers)
        assert done.status_code == 201, done.text
        waited = await browser.get(f"/siddhi-apps/App{number}/status?wait=running&timeout=20")
        assert waited.json()["state"] == "running", waited.text


async def _beat(client: Client) -> None:
    """Heartbeats and reports of three workers, without end."""
    js = client.jetstream()
    control = await js.key_value(names.CONTROL_BUCKET)
    beat = 1
    while True:
        beat += 1
        records = [_node(f"w{number}", beat) for number in range(3)]
        if beat % 3 == 0:
            for key in [k for k in await control.keys() if k.startswith("assignment.")]:
                placed = codec.decode(Assignment, (await control.get(key)).value or b"")
                status = InstanceStatus(
                    placed.instance, placed.app, placed.worker, placed.epoch,
                    InstanceState.RUNNING, SystemClock().wall_ms(), events_in=beat * 100,
                    events_out=beat * 50, batch_ms_p50=4.0,
                )  # fmt: skip
                records.append((names.STATUS_BUCKET, names.status_key(placed.instance), status))
        await _put_all(client, records)
        await asyncio.sleep(0.35)


async def _read(browser: httpx.AsyncClient, path: str) -> None:
    headers = {"Accept": "text/event-stream"}
    async with browser.stream("GET", path, headers=headers) as stream:
        assert stream.status_code == 200
        async for _ in stream.aiter_raw():
            pass


async def _share(pid: int) -> float:
    process = psutil.Process(pid)

    def spent_s() -> float:
        times = process.cpu_times()
        return times.user + times.system

    before_s, began_s = spent_s(), time.monotonic()
    await asyncio.sleep(_TIME_S)
    return (spent_s() - before_s) / (time.monotonic() - began_s)


if __name__ == "__main__":
    sys.exit(main())
