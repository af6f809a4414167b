"""Processes of a cluster killed, paused, and cut off from NATS."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from typing import TYPE_CHECKING

import nats
import psutil
import pytest

from mesh.control.lifecycle import AppState
from mesh.errors import MeshError
from mesh.jetstream import kv, server
from mesh.model import names
from tests.support.agents import APP, Cluster, looking

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
@pytest.mark.nats
async def test_instances_of_a_killed_worker_move(cluster: Cluster) -> None:
    for name in ("w1", "w2"):
        cluster.worker(name)
    cluster.manager("m1")

    async with looking(cluster) as eye:
        await eye.deploy_on("w1", "w2")
        before, epochs = eye.placed(), eye.epochs()
        cluster.signal("w1", signal.SIGKILL)
        await eye.until("moved", lambda: set(eye.placed().values()) == {"w2"})
        assert (await eye.service.wait_running("Two", 60)).state is AppState.RUNNING
        for name, worker in before.items():
            assert (eye.epochs()[name] > epochs[name]) == (worker == "w1")


@pytest.mark.slow
@pytest.mark.nats
async def test_a_worker_started_again_within_its_term_has_its_own_instances_again(
    cluster: Cluster,
) -> None:
    # Others may run them until its session is warm.
    for name in ("w1", "w2"):
        cluster.worker(name)
    cluster.manager("m1")

    async with looking(cluster) as eye:
        await eye.deploy_on("w1", "w2")
        before, epochs = eye.placed(), eye.epochs()
        # A worker with one of three gets as many again when counts are evened out.
        workers = list(before.values())
        killed = min(workers, key=workers.count)
        assert workers.count(killed) == 1
        cluster.signal(killed, signal.SIGKILL)
        cluster.processes[killed].wait()
        cluster.worker(killed)

        def has_its_own() -> bool:
            began = all(eye.epochs()[i] > epochs[i] for i, w in before.items() if w == killed)
            return began and eye.placed() == before

        await eye.until("its own instances", has_its_own)
        assert (await eye.service.wait_running("Two", 60)).state is AppState.RUNNING


@pytest.mark.thorough
@pytest.mark.nats
async def test_a_worker_started_again_within_its_term_gets_its_instances_where_nobody_else_can(
    cluster: Cluster,
) -> None:
    # No other worker has room for them.
    for name, room in (("w1", "2"), ("w2", "1")):
        cluster.worker(name, MESH_WORKER_CAPACITY=room)
    cluster.manager("m1")

    async with looking(cluster) as eye:
        await eye.deploy_on("w1", "w2")
        before, epochs = eye.placed(), eye.epochs()
        cluster.signal("w1", signal.SIGKILL)
        cluster.processes["w1"].wait()
        cluster.worker("w1", MESH_WORKER_CAPACITY="2")

        def is_back() -> bool:
            return all(eye.epochs()[i] > epochs[i] for i, w in before.items() if w == "w1")

        await eye.until("placed anew", is_back)
        assert eye.placed() == before
        assert (await eye.service.wait_running("Two", 60)).state is AppState.RUNNING


@pytest.mark.slow
@pytest.mark.nats
async def test_a_killed_session_is_started_again_with_its_instances(cluster: Cluster) -> None:
    cluster.worker("w1")
    cluster.manager("m1")

    async with looking(cluster) as eye:
        await eye.until("worker", lambda: {"w1"} <= eye.ready())
        await eye.service.deploy(APP)
        await eye.service.wait_running("Two", 60)
        epochs = eye.epochs()
        agent = psutil.Process(cluster.processes["w1"].pid)
        (session,) = agent.children()
        session.kill()
        # The story has it also when the state has passed already.
        await eye.told(
            "Two", lambda story: any(entry.text.startswith("will start again") for entry in story)
        )
        assert (await eye.service.wait_running("Two", 60)).state is AppState.RUNNING
        assert eye.epochs() == epochs


@pytest.mark.slow
@pytest.mark.nats
async def test_another_manager_leads_when_the_leader_dies(cluster: Cluster) -> None:
    cluster.manager("m1")
    cluster.manager("m2")
    cluster.worker("w1")

    async with looking(cluster) as eye:
        await eye.until("leader", eye.leader)
        await eye.until("worker", lambda: {"w1"} <= eye.ready())
        first = eye.leader()
        assert first is not None
        cluster.signal(first, signal.SIGKILL)
        await eye.until("another leader", lambda: eye.leader() not in (None, first))
        await eye.service.deploy(APP)
        assert (await eye.service.wait_running("Two", 60)).state is AppState.RUNNING


@pytest.mark.slow
@pytest.mark.nats
async def test_a_paused_leader_that_wakes_up_is_refused(cluster: Cluster) -> None:
    cluster.manager("m1")

    async with looking(cluster) as eye:
        await eye.until("leader", lambda: eye.leader() == "m1")
        cluster.signal("m1", signal.SIGSTOP)
        old = eye.view.revision(names.CONTROL_BUCKET, names.LEASE_KEY)
        cluster.manager("m2")
        await eye.until("another leader", lambda: eye.leader() == "m2")
        with pytest.raises(kv.RevisionConflict):
            await kv.write(
                eye.client.jetstream(),
                names.CONTROL_BUCKET,
                "assignment.late",
                b"{}",
                revision=old,
                fenced_by=names.LEASE_KEY,
            )
        cluster.signal("m1", signal.SIGCONT)
        version = eye.view.version
        await eye.until("beats", lambda: eye.view.version > version + 8)
        assert eye.leader() == "m2"


@pytest.mark.thorough
@pytest.mark.nats
async def test_the_journal_tells_an_apps_story_from_start_to_end(cluster: Cluster) -> None:
    cluster.manager("m1")
    for name in ("w1", "w2"):
        cluster.worker(name)

    async with looking(cluster) as eye:
        await eye.deploy_on("w1", "w2")
        cluster.signal("w1", signal.SIGKILL)
        await eye.until("moved", lambda: set(eye.placed().values()) == {"w2"})
        await eye.service.wait_running("Two", 60)
        await eye.service.undeploy("Two")
        await eye.until("app gone", lambda: not eye.view.snapshot().apps)
        await eye.noted("Two", "removed app Two")
        told = [f"{e.by} {e.text}: {e.cause}" for e in await eye.service.story("Two")]

        def at(start: str, cause: str = "") -> int:
            return next(i for i, t in enumerate(told) if t.startswith(start) and cause in t)

        begun = at("manager m1 placed Two-one-1", "deployed")
        assert begun < at("worker w") < at("manager m1 placed", "worker w1 is gone")
        assert at("manager m1 placed", "worker w1 is gone") < at("manager m1 withdrew")
        assert at("manager m1 withdrew", "no longer wants it") < at("worker w2 has stopped")
        assert "removed app Two" in told[-1]
        with pytest.raises(MeshError) as caught:
            await eye.service.story("Other")
        assert caught.value.code == "MESH-A404"


@pytest.mark.slow
@pytest.mark.nats
@pytest.mark.restarts
async def test_the_view_goes_on_after_the_server_was_restarted(
    nats_server: server.NatsServer, tmp_path: Path
) -> None:
    cluster = Cluster(nats_server, tmp_path)

    async with looking(cluster) as eye:
        await kv.put(
            eye.client.jetstream(), names.CONTROL_BUCKET, "lease", b'{"holder":"a","term":1}'
        )
        await eye.until("first", lambda: eye.leader() == "a")
        nats_server.stop()
        again = server.start(nats_server.directory, port=nats_server.port)
        nats_server.process = again.process
        value = json.dumps({"holder": "b", "term": 2}).encode()
        stored = 0
        while not stored:
            # Until the connection is back, a write may be lost in the old one.
            with contextlib.suppress(TimeoutError, nats.errors.Error):
                stored = await kv.put(eye.client.jetstream(), names.CONTROL_BUCKET, "lease", value)
        await eye.until("second", lambda: eye.leader() == "b", 30)


@pytest.mark.thorough
@pytest.mark.nats
@pytest.mark.restarts
async def test_the_story_tells_that_nats_was_away(cluster: Cluster) -> None:
    cluster.manager("m1")
    cluster.worker("w1")

    async with looking(cluster) as eye:
        await eye.deploy_on("w1")
        cluster.nats.stop()
        again = server.start(cluster.nats.directory, port=cluster.nats.port)
        cluster.nats.process = again.process
        wanted = {
            f"{who} {text}"
            for who in ("manager m1", "worker w1")
            for text in ("lost its connection to NATS", "is connected to NATS again")
        }
        told: set[str] = set()
        async with asyncio.timeout(30):
            while not wanted <= told:
                # Until our own connection is back as well.
                with contextlib.suppress(MeshError):
                    told = {f"{e.by} {e.text}" for e in await eye.service.story("Two")}
