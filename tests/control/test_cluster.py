"""Apps in a cluster, and processes of it that start and end in order."""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from typing import TYPE_CHECKING

import pytest

from mesh.control.lifecycle import AppState
from mesh.errors import MeshError
from mesh.model import names
from mesh.model.cluster import NodeRole
from tests.support.agents import APP, MANAGER, looking

if TYPE_CHECKING:
    from tests.support.agents import Cluster, Eye


@pytest.mark.nats
async def test_an_app_is_placed_runs_and_is_taken_apart(cluster: Cluster) -> None:
    cluster.manager("m1")
    cluster.worker("w1")
    cluster.worker("w2")

    async with looking(cluster) as eye:
        await eye.until("workers", lambda: {"w1", "w2"} <= eye.ready())
        assert (await eye.service.deploy(APP)).is_new
        status = await eye.service.wait_running("Two", 60)
        assert status.state is AppState.RUNNING, cluster.logs()
        assert sorted(eye.placed().values()) in (["w1", "w1", "w2"], ["w1", "w2", "w2"])
        copies = {eye.placed()["Two-one-1"], eye.placed()["Two-one-2"]}
        assert copies == {"w1", "w2"}
        assert not (await eye.service.deploy(APP)).is_new
        commented = f"-- Twice.\n{APP}"
        assert not (await eye.service.deploy(commented)).is_new
        assert not (await eye.service.update(commented)).replaced
        with pytest.raises(MeshError) as caught:
            await eye.service.deploy(APP.replace("a > 1", "a > 2"))
        assert caught.value.code == "MESH-A409"

        await eye.service.undeploy("Two")
        await eye.until("app gone", lambda: not eye.view.snapshot().apps)
        js = eye.client.jetstream()
        left = [info.config.name for info in await js.streams_info()]
        assert not [name for name in left if name and name.startswith("mesh-Two")]
        assert not eye.placed()
        assert (await eye.service.deploy(APP)).is_new
        assert (await eye.service.wait_running("Two", 60)).state is AppState.RUNNING


@pytest.mark.slow
@pytest.mark.nats
async def test_a_worker_that_leaves_in_order_is_replaced_at_once_and_a_new_one_takes_its_share(
    cluster: Cluster,
) -> None:
    for name in ("w1", "w2"):
        cluster.worker(name)
    cluster.manager("m1")

    async with looking(cluster) as eye:
        await eye.deploy_on("w1", "w2")
        cluster.signal("w1", signal.SIGTERM)
        await eye.until("moved", lambda: set(eye.placed().values()) == {"w2"})
        cluster.worker("w3")
        await eye.until("shared", lambda: set(eye.placed().values()) == {"w2", "w3"})
        assert (await eye.service.wait_running("Two", 60)).state is AppState.RUNNING


@pytest.mark.slow
@pytest.mark.nats
async def test_a_moved_instance_is_placed_only_when_its_worker_has_stopped_it(
    cluster: Cluster,
) -> None:
    cluster.worker("w1", FAKE_STOP_S="5")
    cluster.manager("m1")

    async with looking(cluster) as eye:
        await eye.until("worker", lambda: {"w1"} <= eye.ready())
        await eye.service.deploy(APP)
        await eye.service.wait_running("Two", 60)
        cluster.worker("w2")
        withdrawn = await eye.until("withdrawn", lambda: [a for a in eye.assigned() if a.stop])
        moved = withdrawn[0].instance
        assert withdrawn[0].next_worker == "w2"
        status = await eye.service.status("Two")
        assert status.state is AppState.STARTING
        assert "w1 has to stop it" in (status.reason or "")
        await eye.until("moved", lambda: eye.placed()[moved] == "w2")
        assert (await eye.service.wait_running("Two", 60)).state is AppState.RUNNING
        stopped = f"has stopped {moved} in epoch {withdrawn[0].epoch}"
        placed = f"placed {moved} on w2"
        story = await eye.told(
            "Two",
            lambda story: (
                any(entry.text == stopped for entry in story)
                and any(entry.text.startswith(placed) for entry in story)
            ),
        )
        told = [entry.text for entry in story]
        at = next(i for i, text in enumerate(told) if text.startswith(placed))
        assert told.index(stopped) < at


@pytest.mark.thorough
@pytest.mark.nats
async def test_a_session_that_does_not_stop_an_instance_is_killed_for_it(cluster: Cluster) -> None:
    cluster.worker("w1", FAKE_STOP_S="300", MESH_WORKER_STOP_S="1")
    cluster.manager("m1")

    async with looking(cluster) as eye:
        await eye.until("worker", lambda: {"w1"} <= eye.ready())
        await eye.service.deploy(APP)
        await eye.service.wait_running("Two", 60)
        cluster.worker("w2")
        await eye.until("moved", lambda: "w2" in eye.placed().values())
        assert (await eye.service.wait_running("Two", 60)).state is AppState.RUNNING
        await eye.told(
            "Two",
            lambda story: any("kills its session: Two-" in f"{e.text}: {e.cause}" for e in story),
        )


@pytest.mark.thorough
@pytest.mark.nats
async def test_labels_and_capacity_decide_and_what_waits_says_what_would_help(
    cluster: Cluster,
) -> None:
    cluster.worker("w1", MESH_WORKER_CAPACITY="2")
    cluster.manager("m1")
    wanting = APP.replace("execGroup='two'", "execGroup='two', node='gpu=true'")

    async with looking(cluster) as eye:
        await eye.until("worker", lambda: {"w1"} <= eye.ready())
        await eye.service.deploy(wanting)
        await eye.until("placed", lambda: len(eye.placed()) == 2)
        status = await eye.service.wait_running("Two", 0.5)
        assert status.state is AppState.WAITING
        assert status.reason == "Two-two-1: no worker has gpu=true"
        assert "worker.labels 'gpu=true'" in (status.cure or "")
        cluster.worker("w2", MESH_WORKER_LABELS="gpu=true")
        assert (await eye.service.wait_running("Two", 60)).state is AppState.RUNNING
        assert eye.placed()["Two-two-1"] == "w2"


@pytest.mark.slow
@pytest.mark.nats
async def test_a_drained_worker_is_emptied_and_takes_its_share_again_later(
    cluster: Cluster,
) -> None:
    for name in ("w1", "w2"):
        cluster.worker(name)
    cluster.manager("m1")

    async with looking(cluster) as eye:
        await eye.deploy_on("w1", "w2")
        told = await eye.service.order_node("w1", "draining", by="ada")
        assert told.why == "is drained by ada"
        await eye.until("empty", lambda: set(eye.placed().values()) == {"w2"})
        assert (await eye.service.wait_running("Two", 60)).state is AppState.RUNNING
        await eye.service.order_node("w2", "cordoned")
        await eye.service.order_node("w1", "open")
        # A cordoned worker keeps its instances.
        await eye.view.changed(eye.view.version + 8, 2)
        assert set(eye.placed().values()) == {"w2"}
        await eye.service.order_node("w2", "open")
        await eye.until("shared", lambda: set(eye.placed().values()) == {"w1", "w2"})
        with pytest.raises(MeshError) as caught:
            await eye.service.order_node("w3", "open")
        assert caught.value.code == "MESH-A404"


@pytest.mark.thorough
@pytest.mark.nats
async def test_workers_restarted_one_after_the_other_keep_the_app_placed(cluster: Cluster) -> None:
    for name in ("w1", "w2"):
        cluster.worker(name)
    cluster.manager("m1")

    async with looking(cluster) as eye:
        await eye.deploy_on("w1", "w2")
        for name in ("w1", "w2"):
            cluster.signal(name, signal.SIGTERM)
            await asyncio.to_thread(cluster.processes[name].wait, 60)
            # It has handed everything over before it ended, without waiting for its term.
            assert name not in eye.placed().values()
            ending = (f"worker {name}", "hands over and ends", "it received a signal to end")
            cause = f"worker {name} is ending"
            story = await eye.told(
                "Two",
                lambda story, ending=ending, cause=cause: (  # type: ignore[misc]  # bound here
                    any((e.by, e.text, e.cause) == ending for e in story)
                    and any(e.cause == cause for e in story)
                ),
            )
            assert {e.text.split(" Two")[0] for e in story if e.cause == cause} == {"withdrew"}
            cluster.worker(name)
            await eye.until("back", partial(eye.has_some, name))
        assert (await eye.service.wait_running("Two", 60)).state is AppState.RUNNING


def _pid(eye: Eye) -> int:
    """Of the manager m1."""
    record = eye.view.snapshot().node(NodeRole.MANAGER, "m1")
    return record.value.pid if record is not None else 0


@pytest.mark.slow
@pytest.mark.nats
async def test_a_second_manager_of_the_same_id_is_turned_away(cluster: Cluster) -> None:
    cluster.manager("m1")

    async with looking(cluster) as eye:
        await eye.until("leader", lambda: eye.leader() == "m1")
        first = cluster.processes["m1"]
        cluster.start("twin", MANAGER, MESH_MANAGER_ID="m1")
        twin = cluster.processes["twin"]
        assert await asyncio.to_thread(twin.wait, 60) == 1
        assert "MESH-C110" in (cluster.directory / "twin.log").read_text()
        # Its end leaves the record and the lease of the first one as they are.
        assert (_pid(eye), eye.leader()) == (first.pid, "m1")
        assert first.poll() is None

        # A killed one is replaced at once: its process has ended.
        first.kill()
        first.wait()
        cluster.manager("m1")
        again = cluster.processes["m1"]
        await eye.until("successor", lambda: _pid(eye) == again.pid)
        assert again.poll() is None


@pytest.mark.thorough
@pytest.mark.nats
async def test_a_second_worker_of_the_same_name_is_turned_away(cluster: Cluster) -> None:
    cluster.manager("m1")
    cluster.worker("w1")

    async with looking(cluster) as eye:
        await eye.deploy_on("w1")
        first = cluster.processes["w1"]
        cluster.worker("w1")
        second = cluster.processes["w1"]
        assert await asyncio.to_thread(second.wait, 60) != 0
        assert "MESH-C110" in (cluster.directory / "w1.log").read_text()
        refused = (
            f"process {second.pid}",
            "was refused the name w1",
            f"process {first.pid} is alive under it",
        )
        await eye.told("Two", lambda story: any((e.by, e.text, e.cause) == refused for e in story))
        assert first.poll() is None
        first.kill()
        first.wait()


@pytest.mark.nats
async def test_of_two_deploys_of_one_name_at_once_one_is_taken(cluster: Cluster) -> None:
    async with looking(cluster) as one, looking(cluster) as other:
        for number in range(4):
            text = APP.replace("'Two'", f"'Race{number}'")
            done = await asyncio.gather(
                one.service.deploy(text),
                other.service.deploy(text.replace("a > 1", "a > 2")),
                return_exceptions=True,
            )
            refused = [found for found in done if isinstance(found, MeshError)]
            assert [error.code for error in refused] == ["MESH-A409"]


@pytest.mark.slow
@pytest.mark.nats
async def test_a_heartbeat_that_can_not_be_read_is_replaced_and_ends_no_process(
    cluster: Cluster,
) -> None:
    cluster.worker("w1")
    cluster.manager("m1")
    async with looking(cluster) as eye:
        await eye.until("worker", lambda: "w1" in eye.ready())
        await eye.until("leader", lambda: eye.leader() == "m1")
        js = eye.client.jetstream()
        keys = names.node_key(NodeRole.MANAGER, "m1"), names.node_key(NodeRole.WORKER, "w1")
        for key in keys:
            subject = f"$KV.{names.CONTROL_BUCKET}.{key}"
            # A person has written it, or a disk has cut it.
            for data in (b"{", b"null", b"{}"):
                written = (await js.publish(subject, data)).seq

                def is_replaced(key: str = key, written: int = written) -> bool:
                    return eye.view.revision(names.CONTROL_BUCKET, key) > written

                await eye.until(f"another heartbeat of {key}", is_replaced)
        await eye.until("worker", lambda: "w1" in eye.ready())
        assert eye.leader() == "m1"
