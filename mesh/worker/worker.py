"""A worker: the agent with its connections, its children and its probes."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from mesh.clock import SystemClock
from mesh.control.readiness import worker_reasons
from mesh.errors import MeshError
from mesh.jetstream import channels
from mesh.jetstream.connection import close, connect, while_open
from mesh.jetstream.journal import Journal
from mesh.jetstream.watch import ClusterView
from mesh.processes import java, machine, signals
from mesh.processes.signals import end, signalled
from mesh.worker import metrics, state_directory
from mesh.worker.agent import Agent
from mesh.worker.children import HOST, Children, SessionProcess
from mesh.worker.connector_checks import ConnectorChecks
from mesh.worker.protocol import SessionConfig
from mesh.worker.questions import Questions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mesh.settings import Settings


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[asyncio.Task[None]]:
    """A running worker; before the end of the body its task ends only by an error.

    Raises:
        MeshError: MESH-C111 for an invalid name; MESH-S130 for an unusable ``worker.state_dir``;
            MESH-S150 or MESH-S151 for a Spark cluster that can't be used; MESH-S154 for a user
            without a name;
            MESH-C110 when another process of this name sends heartbeats; MESH-C113 when the probes
            can't listen.
    """
    async with (
        metrics.serving(settings.worker) as served,
        signals.reporting(lambda: worker_reasons(served.state)) as notifier,
        _running(settings, served) as task,
    ):
        try:
            yield task
        finally:
            notifier.stopping()


@asynccontextmanager
async def _running(settings: Settings, served: metrics.Probes) -> AsyncIterator[asyncio.Task[None]]:
    clock = SystemClock()
    if settings.worker.spark:
        java.check_user()
    if settings.worker.spark and not settings.spark.master.startswith("local"):
        # Only here: it brings Spark's Python along, which agents should not wait for.
        from mesh.spark import cluster

        cluster.check(settings.spark, settings.nats)
    name = machine.node_name(settings.worker.id)
    settings = replace(settings, worker=replace(settings.worker, id=name))
    directory = state_directory.for_worker(settings.worker.state_dir, name)
    config = SessionConfig(name, str(directory), settings)
    host = SessionProcess(config, (sys.executable, "-m", HOST))
    session = Children(config, host)
    # Spark needs the longest to start, so it starts first.
    await session.start()
    client = await connect(settings.nats, f"mesh worker {name}")
    await channels.ensure_buckets(client.jetstream(), settings.channels)
    view = ClusterView(client, clock, quiet_s=settings.worker.ttl_s / 2)
    await view.start()
    journal = Journal(client, f"worker {name}", clock, worker=name)
    journal.start()

    def app_text(app: str) -> str | None:
        entry = view.snapshot().app(app)
        return entry.value.spec.text if entry is not None else None

    questions = Questions(client, name, settings, clock, session.instances, app_text)
    checks = ConnectorChecks(client, config)
    agent = Agent(name, settings, client, view, clock, session, journal, questions)
    served.state, served.metrics, served.client = agent.state, agent.metrics, client
    try:
        await agent.claim()
    except MeshError:
        await journal.stop()
        raise

    await questions.start()
    await checks.start()
    task = asyncio.create_task(while_open(client, agent.run()))
    try:
        yield task
        if not task.done():
            agent.hand_over()
            await asyncio.wait([task])
    finally:
        await end([task])
        await questions.stop()
        await checks.stop()
        await agent.leave()
        await journal.stop()
        await view.stop()
        await close(client)


async def run(settings: Settings) -> None:
    """Run a worker until SIGTERM or SIGINT; its instances are handed over then."""
    async with running(settings) as task:
        # The task continues: it sends heartbeats, and stops the instances that are moved away.
        await signalled(task)
