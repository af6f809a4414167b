"""NATS has lost the last writes of the cluster's buckets: processes that knew them continue."""

from __future__ import annotations

import asyncio
import contextlib
import math
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from mesh.control.lifecycle import AppState
from mesh.control.records import Records
from mesh.errors import MeshError
from mesh.jetstream import channels, server
from mesh.manager.manager import Manager, running
from mesh.model import names
from mesh.model.cluster import LeaseRecord, NodeOrder
from mesh.settings import ManagerSettings, NatsSettings, Settings
from tests.support.agents import APP, Cluster, looking

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: A bucket and a key of it.
APPS, W1 = names.APPS_BUCKET, names.order_key("w1")


def order(by: str) -> Any:
    from mesh.model.cluster import Admission

    return NodeOrder("w1", Admission.OPEN, by)


def orders(records: Records) -> dict[str, int]:
    return {seen.value.by: seen.revision for seen in records.snapshot(9.0).orders}


@pytest.mark.parametrize(
    ("found", "upto", "left"),
    [
        pytest.param({W1: (order("ada"), 30)}, 30, {"ada": 30}, id="unchanged"),
        pytest.param({W1: (order("bob"), 31)}, 31, {"bob": 31}, id="later"),
        pytest.param({W1: (order("bob"), 7)}, 40, {"bob": 7}, id="an older one alone is left"),
        pytest.param({W1: (order("bob"), 30)}, 30, {"bob": 30}, id="another at the same place"),
        pytest.param({}, 40, {}, id="nothing is left"),
        pytest.param({}, 20, {"ada": 30}, id="written after the read"),
        pytest.param({W1: (order("bob"), 2)}, math.inf, {"bob": 2}, id="gone back below it"),
    ],
)
def test_what_is_known_after_a_bucket_was_read_again(
    found: dict[str, tuple[Any, int]], upto: float, left: dict[str, int]
) -> None:
    records = Records(0.0)
    records.take(APPS, W1, order("ada"), 30, 1.0)
    # Another bucket has its own revisions.
    records.take(names.CONTROL_BUCKET, names.LEASE_KEY, LeaseRecord("m1", 1), 25, 1.0)
    records.take_all(APPS, found, upto, 2.0)
    assert orders(records) == left
    assert records.revision(APPS, W1) == next(iter(left.values()), 0)
    assert records.revision(names.CONTROL_BUCKET, names.LEASE_KEY) == 25


def test_other_keys_that_begin_with_lease_are_no_lease() -> None:
    records = Records(0.0)
    records.take(names.CONTROL_BUCKET, "lease2", LeaseRecord("m9", 1), 3, 1.0)
    assert records.snapshot(2.0).lease is None


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
