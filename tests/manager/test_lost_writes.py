"""NATS has lost the last writes of the cluster's buckets: processes that knew them continue."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from mesh.control.lifecycle import AppState
from mesh.errors import MeshError
from mesh.jetstream import channels, server
from mesh.manager.manager import Manager, running
from mesh.model import names
from mesh.settings import ManagerSettings, NatsSettings, Settings
from tests.support.agents import APP, Cluster, looking

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


async def until(manager: Manager, holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(40):
        while not holds():
            version = manager.view.version
            if not holds():
                await manager.view.changed(version, 0.2)


def restart(nats_server: server.NatsServer, restored: Path | None = None) -> None:
    """Stop the server and start it again, with its own storage or with an earlier copy of it."""
    nats_server.stop()
    if restored is not None:
        shutil.rmtree(nats_server.directory)
        shutil.copytree(restored, nats_server.directory)
    again = server.start(nats_server.directory, port=nats_server.port)
    nats_server.process = again.process


@pytest.mark.slow
@pytest.mark.nats
@pytest.mark.restarts
async def test_a_manager_leads_again_after_nats_lost_writes(
    nats_server: server.NatsServer, tmp_path: Path
) -> None:
    settings = Settings(nats=NatsSettings(url=nats_server.url), manager=ManagerSettings(id="m1"))
    copy = tmp_path / "copy"

    def revision(manager: Manager) -> int:
        return manager.view.revision(names.CONTROL_BUCKET, names.LEASE_KEY)

    async with running(settings) as (manager, service):
        await until(manager, lambda: manager.leads)
        await service.deploy(APP)
        nats_server.stop()
        shutil.copytree(nats_server.directory, copy)
        early = revision(manager)
        restart(nats_server)
        # Of these writes nothing will be left.
        await until(manager, lambda: revision(manager) > early + 10)
        async with asyncio.timeout(20):
            while service.record("Two") is not None:
                with contextlib.suppress(MeshError):
                    await service.undeploy("Two")
                await manager.view.changed(manager.view.version, 0.05)
        restart(nats_server, copy)
        await until(manager, lambda: service.record("Two") is not None)
        before = revision(manager)
        await until(manager, lambda: revision(manager) > before and manager.leads)
        assert await _answers(manager, lambda: service.scale("Two", "one", 1))
        async with asyncio.timeout(20):
            while not any("has lost writes" in e.text for e in await service.story("Two")):
                await manager.journal.stored()


async def _answers(manager: Manager, call: Callable[[], Any]) -> Any:
    """The answer of a call, which may fail while connections come back."""
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(MeshError):
                return await call()
            await manager.view.changed(manager.view.version, 0.1)


@pytest.mark.thorough
@pytest.mark.nats
@pytest.mark.restarts
async def test_everything_continues_after_the_control_bucket_was_made_again(
    cluster: Cluster,
) -> None:
    for name in ("m1", "m2"):
        cluster.manager(name)
    cluster.worker("w1")

    async with looking(cluster) as eye:
        await eye.deploy_on("w1")
        before = eye.epochs()
        js = eye.client.jetstream()
        await js.delete_stream(f"KV_{names.CONTROL_BUCKET}")
        await channels.ensure_buckets(js, Settings().channels)
        await eye.until("forgotten", lambda: eye.epochs() != before, 80)
        await eye.until("worker", lambda: {"w1"} <= eye.ready(), 80)

        def runs_later() -> bool:
            now = eye.epochs()
            return now.keys() == before.keys() and all(now[n] > before[n] for n in before)

        await eye.until("placed again", runs_later, 80)
        assert (await eye.service.wait_running("Two", 20)).state is AppState.RUNNING


@pytest.mark.slow
@pytest.mark.nats
async def test_an_instance_that_is_refused_by_a_later_epoch_is_placed_above_it(
    cluster: Cluster,
) -> None:
    cluster.manager("m1")
    cluster.worker("w1", FAKE_EPOCH="100000")

    async with looking(cluster) as eye:
        await eye.deploy_on("w1")
        assert (await eye.service.wait_running("Two", 20)).state is AppState.RUNNING
        assert all(epoch > 100_000 for epoch in eye.epochs().values())
        causes = {entry.cause for entry in await eye.service.story("Two")}
        assert any("NATS has lost writes" in cause for cause in causes)
