"""Faults inside of a manager: an action that fails, a task that ends, a clock that stood still."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from mesh.control import election
from mesh.control.actions import RemoveApp
from mesh.control.manager_state import FIRST_REST_S, LONGEST_REST_S, FailedActions
from mesh.control.snapshot import ClusterSnapshot, Revisioned
from mesh.errors import MeshError
from mesh.jetstream.watch import ClusterView
from mesh.manager.manager import Presence, running
from mesh.manager.nodes import node_views
from mesh.model import names
from mesh.model.cluster import AppRecord, LeaseRecord, NodeRecord, NodeRole
from mesh.plan.build import plan
from mesh.settings import Settings
from tests.support.agents import MANAGER, WORKER
from tests.support.faulty import settings_of, text, until

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.control.journal import JournalEntry
    from mesh.jetstream.server import NatsServer
    from tests.support.agents import Cluster


@pytest.mark.slow
@pytest.mark.nats
async def test_a_removal_that_fails_keeps_nothing_else_from_being_done(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    store = tmp_path / "store"

    async with running(settings_of(nats_server, store=str(store))) as (manager, service):
        await service.deploy(text("Broken"))
        await service.deploy(text("Other"))
        incarnation = service.record("Broken")
        assert incarnation is not None
        # A file where the directory of the app's snapshots would be.
        store.mkdir(exist_ok=True)
        (store / incarnation.incarnation).write_text("x")
        await service.undeploy("Broken")
        await service.undeploy("Other")
        await until(manager, lambda: service.record("Other") is None)
        assert service.record("Broken") is not None
        assert manager.leads
        told: list[JournalEntry] = []
        async with asyncio.timeout(20):
            while not told:
                await manager.journal.stored()
                story = await service.story("Broken")
                told = [entry for entry in story if "failed: it would" in entry.text]
        # Once, however often it is tried.
        assert ["MESH-S120" in one.cause for one in told] == [True]
        (store / incarnation.incarnation).unlink()
        await until(manager, lambda: service.record("Broken") is None)


@pytest.mark.nats
async def test_a_long_removal_holds_up_neither_the_lease_nor_other_apps(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(settings_of(nats_server)) as (manager, service):
        may_end, began, drop = asyncio.Event(), asyncio.Event(), manager.pieces.drop
        await service.deploy(text("Slow"))
        await service.deploy(text("Other"))
        slow = service.record("Slow")
        assert slow is not None

        async def wait(prefix: str) -> None:
            if prefix == f"{slow.incarnation}/":
                began.set()
                await may_end.wait()
            await drop(prefix)

        monkeypatch.setattr(manager.pieces, "drop", wait)
        await service.undeploy("Slow")
        await began.wait()
        before = manager.view.revision(names.CONTROL_BUCKET, names.LEASE_KEY)
        await service.undeploy("Other")
        await until(manager, lambda: service.record("Other") is None)

        def is_renewed() -> bool:
            return manager.view.revision(names.CONTROL_BUCKET, names.LEASE_KEY) > before

        await until(manager, is_renewed)
        assert manager.leads
        assert service.record("Slow") is not None
        may_end.set()
        await until(manager, lambda: service.record("Slow") is None)


@pytest.mark.nats
async def test_a_task_that_ends_ends_the_manager_with_an_error(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def beat(self: Presence) -> None:
        await asyncio.sleep(0)
        raise RuntimeError("no heart")

    monkeypatch.setattr(Presence, "beat", beat)

    with pytest.raises(MeshError, match='"heartbeats" has ended') as caught:
        async with running(settings_of(nats_server)):
            await asyncio.get_running_loop().create_future()
    assert caught.value.code == "MESH-C112"
    assert "no heart" in (caught.value.detail or "")


#: A view that fails at the first heartbeat, for a reason that nobody has foreseen.
BROKEN_VIEW = """
from mesh.jetstream import watch

take = watch.ClusterView._take

def fail(self, bucket, key, value, revision):
    if key.startswith("node."):
        raise ZeroDivisionError
    take(self, bucket, key, value, revision)

watch.ClusterView._take = fail
"""


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.nats
@pytest.mark.parametrize(
    ("program", "said"), [(MANAGER, "MESH-C112"), (WORKER, "ZeroDivisionError")]
)
def test_a_view_that_ends_ends_the_process_visibly(
    cluster: Cluster, tmp_path: Path, program: str, said: str
) -> None:
    cluster.start(
        "x", BROKEN_VIEW + program, MESH_WORKER_ID="x", MESH_WORKER_STATE_DIR=str(tmp_path / "s")
    )
    assert cluster.processes["x"].wait(40) == 1
    assert said in cluster.logs()


def test_a_failed_action_rests_longer_and_longer() -> None:
    failed, now_s, rests = FailedActions(), 0.0, []
    action = RemoveApp(AppRecord(plan(text("A")).spec, "i1", 0), 1, "undeployed")
    for _ in range(7):
        failed.record_failure(action, now_s, "x")
        begun_s = now_s
        while not failed.select_due([action], now_s):
            now_s += 0.5
        rests.append(now_s - begun_s)
    assert rests[:3] == [FIRST_REST_S, 2 * FIRST_REST_S, 4 * FIRST_REST_S]
    assert rests[-1] == LONGEST_REST_S
    failed.record_failure(action, now_s, "x")
    # Another decision forgets it.
    failed.select_due([], now_s)
    assert failed.select_due([action], now_s) == [action]


def test_nobody_leads_with_a_lease_that_was_not_renewed() -> None:
    settings = Settings()
    lease: Revisioned[LeaseRecord | None] = Revisioned(LeaseRecord("m1", 3), 8, 100.0)
    node = Revisioned(NodeRecord("m1", NodeRole.MANAGER, "i", "", 1), 9, 100.0)
    for now_s, leads in ((100.5, True), (100.0 + settings.manager.lease_ttl_s, False)):
        snapshot = ClusterSnapshot(now_s, lease, nodes=(node,))
        assert [one.leads for one in node_views(snapshot, settings)] == [leads]
        leader = election.leader_of(snapshot, settings.manager.lease_ttl_s)
        assert (leader == "m1") is leads


@pytest.mark.nats
async def test_a_view_that_can_not_be_read_ends_the_start(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(self: ClusterView, bucket: str, complete: asyncio.Event) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(ClusterView, "_read", read)

    with pytest.raises(ZeroDivisionError):
        async with running(settings_of(nats_server)):
            pass
