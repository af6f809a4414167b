"""A whole mesh for measurements: real processes, looked at through one connection."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from mesh.clock import SystemClock
from mesh.jetstream.channels import ensure_buckets
from mesh.jetstream.connection import close, connect
from mesh.jetstream.watch import ClusterView
from mesh.operators import ahead
from mesh.settings import ChannelSettings, NatsSettings
from mesh.testing.cluster import MeshCluster, View

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from mesh.model.app import AppSpec

#: A group with state and one without, each with its own input.
APP = """
@App:name('{name}')
define stream Input (k int, v double);
@dist(execGroup='windows')
from Input#window.length(10) select k, avg(v) as mean insert into Means;
@dist(execGroup='filters')
from Input[v > 0] select k, v * 2 as twice insert into Twice;
"""


@asynccontextmanager
async def mesh(workers: int, **environment: str) -> AsyncIterator[View]:
    """A mesh with ready workers, w1 and so on, and a manager; gone afterwards.

    Args:
        workers: how many.
        environment: settings of all processes, as ``MESH_SECTION_NAME``.
    """
    os.environ.update(environment)
    ahead.compile_once()
    directory = Path(tempfile.mkdtemp(prefix="mesh-bench-"))
    cluster = MeshCluster(directory, workers)
    try:
        client = await connect(NatsSettings(url=cluster.nats.url), "bench")
        await ensure_buckets(client.jetstream(), ChannelSettings())
        records = ClusterView(client, SystemClock())
        await records.start()
        try:
            view = View(cluster, client, records)
            await view.until_ready(*(f"w{number}" for number in range(1, workers + 1)))
            yield view
        finally:
            await records.stop()
            await close(client)
    finally:
        await asyncio.to_thread(cluster.stop)
        shutil.rmtree(directory, ignore_errors=True)


async def deploy(view: View, names: Iterable[str], text: str = APP, at_once: int = 8) -> float:
    """Deploy ``text`` under each of ``names``; seconds until all instances of all run."""
    started_s = time.perf_counter()
    gate = asyncio.Semaphore(at_once)
    wanted = list(names)

    async def one(name: str) -> None:
        async with gate:
            await view.service.deploy(text.format(name=name))

    await asyncio.gather(*(one(name) for name in wanted))
    for name in wanted:
        await view.until_running(name)
    return time.perf_counter() - started_s


def channel(spec: AppSpec, stream: str) -> tuple[str, str]:
    """JetStream stream and subject of a stream of an app that is not keyed."""
    (found,) = {(c.js_stream(), c.subject()) for c in spec.channels if c.stream.name == stream}
    return found


def tree(root: int) -> list[psutil.Process]:
    """A process and all below it."""
    process = psutil.Process(root)
    return [process, *process.children(recursive=True)]


def kind_of(process: psutil.Process) -> str:
    """What a process of a mesh is: ``jvm``, ``session``, ``agent``, ``planner``, ``task`` ..."""
    try:
        if process.name() == "java":
            return "jvm"
        line = " ".join(process.cmdline())
    except psutil.Error:
        return "gone"
    for kind, words in _WORDS.items():
        if any(word in line for word in words):
            return kind
    return "python"


_WORDS = {
    "session": ("mesh.worker.session",),
    "agent": ("mesh.cli worker",),
    "manager": ("mesh.cli manager",),
    "planner": ("source_runner", "sink_runner"),
    "task": ("mesh.spark.daemon",),
}


async def until_all(view: View, subjects: list[str], event: tuple[str, bytes]) -> float:
    """Publish ``event`` (subject, payload); seconds until each of ``subjects`` has a message."""
    came = {subject: asyncio.Event() for subject in subjects}
    subscriptions = []
    for subject, event_ in came.items():

        async def take(_: object, came: asyncio.Event = event_) -> None:
            came.set()

        subscriptions.append(await view.client.subscribe(subject, cb=take))
    await view.client.flush()
    started_s = time.perf_counter()
    await view.js.publish(*event)
    async with asyncio.timeout(60):
        for one in came.values():
            await one.wait()
    took_s = time.perf_counter() - started_s
    for subscription in subscriptions:
        await subscription.unsubscribe()
    return took_s
