"""Managers and agents as real processes on a real server, with sessions that run nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nats
import psutil
import pytest

from mesh.clock import SystemClock
from mesh.control.lifecycle import AppState
from mesh.errors import MeshError
from mesh.jetstream import kv, server
from mesh.jetstream.channels import ensure_buckets
from mesh.jetstream.connection import close, connect
from mesh.jetstream.watch import ClusterView
from mesh.manager.service import ManagerService
from mesh.model import names
from mesh.settings import NatsSettings, Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

    from nats.aio.client import Client

    from mesh.model.cluster import Assignment

APP = """
@App:name('Two')
define stream Events (a int);
@dist(execGroup='one', parallel='2') from Events[a > 1] select a insert into Big;
@dist(execGroup='two') from Events[a < 1] select a insert into Small;
"""
FAKE_SESSION = Path(__file__).parent / "fake_session.py"

MANAGER = """
import asyncio, sys
from mesh import settings
from mesh.manager import run

async def serve(service, announce):
    announce("127.0.0.1:0")
    await asyncio.get_running_loop().create_future()

asyncio.run(run(settings.load(), serve))
"""
WORKER = """
import asyncio, sys
from mesh import settings
from mesh.worker import agent, child

start = child.SessionProcess.__init__
command = (sys.executable, sys.argv[1])
child.SessionProcess.__init__ = lambda self, config: start(self, config, command)
asyncio.run(agent.run(settings.load()))
"""


class Cluster:
    def __init__(self, nats: server.NatsServer, directory: Path) -> None:
        self.nats = nats
        self.directory = directory
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, program: str, **environment: str) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-c", program, str(FAKE_SESSION)],
                env={
                    **os.environ,
                    "MESH_NATS_URL": self.nats.url,
                    "PYTHONPATH": os.pathsep.join(sys.path),
                    **environment,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=server.die_with_parent(),
            )

    def manager(self, name: str) -> None:
        self.start(name, MANAGER, MESH_MANAGER_ID=name)

    def worker(self, name: str, **environment: str) -> None:
        state = str(self.directory / f"state-{name}")
        self.start(name, WORKER, MESH_WORKER_ID=name, MESH_WORKER_STATE_DIR=state, **environment)

    def signal(self, name: str, number: int) -> None:
        self.processes[name].send_signal(number)

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    def logs(self) -> str:
        return "\n".join(f"--- {p}\n{p.read_text()[-2000:]}" for p in self.directory.glob("*.log"))


@pytest.fixture
def cluster(nats_server: server.NatsServer, tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(nats_server, tmp_path)
    yield found
    found.end()


class Eye:
    """A service on a view of its own: what any manager would answer."""

    def __init__(
        self, cluster: Cluster, client: Client, view: ClusterView, service: ManagerService
    ) -> None:
        self.cluster = cluster
        self.client = client
        self.view = view
        self.service = service

    async def until(self, what: str, condition: Callable[[], Any], limit_s: float = 20) -> Any:
        deadline_s = time.monotonic() + limit_s
        while time.monotonic() < deadline_s:
            version = self.view.version
            found = condition()
            if found:
                return found
            # Presence changes by time alone, hence the short limit of one look.
            await self.view.changed(version, 0.05)
        raise AssertionError(f"{what}: not within {limit_s} s\n{self.cluster.logs()}")

    async def deploy_on(self, *workers: str) -> None:
        """Deploy the app when the workers are ready, and wait until it runs."""
        await self.until("workers", lambda: set(workers) <= self.ready())
        await self.service.deploy(APP)
        await self.service.wait_running("Two", 10)

    async def noted(self, app: str, text: str) -> None:
        """Wait for an entry about ``app`` in the journal."""
        js = self.client.jetstream()
        entries = await js.subscribe(names.journal_subject(app), ordered_consumer=True)
        while text not in (await entries.next_msg(20)).data.decode():
            pass
        await entries.unsubscribe()

    def placed(self) -> dict[str, str]:
        return {a.value.instance: a.value.worker for a in self.view.snapshot().assignments}

    def has_some(self, worker: str) -> bool:
        return worker in self.placed().values()

    def assigned(self) -> list[Assignment]:
        return [a.value for a in self.view.snapshot().assignments]

    def epochs(self) -> dict[str, int]:
        return {a.value.instance: a.value.epoch for a in self.view.snapshot().assignments}

    def leader(self) -> str | None:
        lease = self.view.snapshot().lease
        return lease.value.holder if lease is not None and lease.value is not None else None

    def states(self) -> dict[str, tuple[str, int]]:
        return {
            s.value.instance: (s.value.state.value, s.value.epoch)
            for s in self.view.snapshot().statuses
        }

    def ready(self) -> set[str]:
        return {n.value.id for n in self.view.snapshot().nodes if n.value.ready}


@contextlib.asynccontextmanager
async def looking(cluster: Cluster) -> AsyncIterator[Eye]:
    """A connection of its own."""
    settings = Settings(nats=NatsSettings(url=cluster.nats.url))
    client = await connect(settings.nats, "test")
    await ensure_buckets(client.jetstream(), settings.channels)
    clock = SystemClock()
    view = ClusterView(client, clock)
    await view.start()
    try:
        yield Eye(cluster, client, view, ManagerService(client, view, settings, clock))
    finally:
        await view.stop()
        await close(client)


def look(cluster: Cluster, scene: Callable[[Eye], Coroutine[Any, Any, None]]) -> None:
    """Run a scene with a connection of its own."""

    async def run() -> None:
        async with looking(cluster) as eye:
            await scene(eye)

    asyncio.run(run())


@pytest.mark.nats
def test_an_app_is_placed_runs_and_is_taken_apart(cluster: Cluster) -> None:
    cluster.manager("m1")
    cluster.worker("w1")
    cluster.worker("w2")

    async def scene(eye: Eye) -> None:
        await eye.until("workers", lambda: {"w1", "w2"} <= eye.ready())
        assert (await eye.service.deploy(APP)).is_new
        status = await eye.service.wait_running("Two", 10)
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
        js = eye.service._js
        left = [info.config.name for info in await js.streams_info()]
        assert not [name for name in left if name and name.startswith("mesh-Two")]
        assert not eye.placed()
        assert (await eye.service.deploy(APP)).is_new
        assert (await eye.service.wait_running("Two", 10)).state is AppState.RUNNING

    look(cluster, scene)


@pytest.mark.nats
def test_instances_of_a_killed_worker_move_within_three_seconds(cluster: Cluster) -> None:
    for name in ("w1", "w2"):
        cluster.worker(name)
    cluster.manager("m1")

    async def scene(eye: Eye) -> None:
        await eye.deploy_on("w1", "w2")
        before, epochs = eye.placed(), eye.epochs()
        cluster.signal("w1", signal.SIGKILL)
        killed_s = time.monotonic()
        await eye.until("moved", lambda: set(eye.placed().values()) == {"w2"})
        took_s = time.monotonic() - killed_s
        assert (await eye.service.wait_running("Two", 10)).state is AppState.RUNNING
        for name, worker in before.items():
            assert (eye.epochs()[name] > epochs[name]) == (worker == "w1")
        # The bound is the settings' own: term and margin, with a beat's age on top of neither.
        assert took_s < 3.0

    look(cluster, scene)


@pytest.mark.nats
def test_a_worker_that_leaves_in_order_is_replaced_at_once_and_a_new_one_takes_its_share(
    cluster: Cluster,
) -> None:
    for name in ("w1", "w2"):
        cluster.worker(name)
    cluster.manager("m1")

    async def scene(eye: Eye) -> None:
        await eye.deploy_on("w1", "w2")
        cluster.signal("w1", signal.SIGTERM)
        await eye.until("moved", lambda: set(eye.placed().values()) == {"w2"})
        cluster.worker("w3")
        await eye.until("shared", lambda: set(eye.placed().values()) == {"w2", "w3"})
        assert (await eye.service.wait_running("Two", 10)).state is AppState.RUNNING

    look(cluster, scene)


@pytest.mark.nats
def test_a_moved_instance_is_placed_only_when_its_worker_has_stopped_it(cluster: Cluster) -> None:
    cluster.worker("w1", FAKE_STOP_S="1.5")
    cluster.manager("m1")

    async def scene(eye: Eye) -> None:
        await eye.until("worker", lambda: {"w1"} <= eye.ready())
        await eye.service.deploy(APP)
        await eye.service.wait_running("Two", 10)
        cluster.worker("w2")
        withdrawn = await eye.until("withdrawn", lambda: [a for a in eye.assigned() if a.stop])
        moved = withdrawn[0].instance
        assert withdrawn[0].next_worker == "w2"
        status = await eye.service.status("Two")
        assert status.state is AppState.STARTING
        assert "w1 is told to stop it" in (status.reason or "")
        await eye.until("moved", lambda: eye.placed()[moved] == "w2")
        assert (await eye.service.wait_running("Two", 10)).state is AppState.RUNNING
        told = [entry.text for entry in await eye.service.story("Two")]
        asked = f"{moved} in epoch {withdrawn[0].epoch}"
        placed = next(i for i, text in enumerate(told) if text.startswith(f"placed {moved} on w2"))
        assert told.index(f"has stopped {asked}") < placed

    look(cluster, scene)


@pytest.mark.nats
def test_a_session_that_does_not_stop_an_instance_is_killed_for_it(cluster: Cluster) -> None:
    cluster.worker("w1", FAKE_STOP_S="300", MESH_WORKER_STOP_S="1")
    cluster.manager("m1")

    async def scene(eye: Eye) -> None:
        await eye.until("worker", lambda: {"w1"} <= eye.ready())
        await eye.service.deploy(APP)
        await eye.service.wait_running("Two", 10)
        cluster.worker("w2")
        await eye.until("moved", lambda: "w2" in eye.placed().values())
        assert (await eye.service.wait_running("Two", 15)).state is AppState.RUNNING
        told = [f"{entry.text}: {entry.cause}" for entry in await eye.service.story("Two")]
        assert any("kills its session: Two-" in text for text in told)

    look(cluster, scene)


@pytest.mark.nats
def test_labels_and_capacity_decide_and_what_waits_says_what_would_help(cluster: Cluster) -> None:
    cluster.worker("w1", MESH_WORKER_CAPACITY="2")
    cluster.manager("m1")
    wanting = APP.replace("execGroup='two'", "execGroup='two', node='gpu=true'")

    async def scene(eye: Eye) -> None:
        await eye.until("worker", lambda: {"w1"} <= eye.ready())
        await eye.service.deploy(wanting)
        await eye.until("placed", lambda: len(eye.placed()) == 2)
        status = await eye.service.wait_running("Two", 0.5)
        assert status.state is AppState.WAITING
        assert status.reason == "Two-two-1: no worker has gpu=true"
        assert "worker.labels 'gpu=true'" in (status.cure or "")
        cluster.worker("w2", MESH_WORKER_LABELS="gpu=true")
        assert (await eye.service.wait_running("Two", 15)).state is AppState.RUNNING
        assert eye.placed()["Two-two-1"] == "w2"

    look(cluster, scene)


@pytest.mark.nats
def test_a_drained_worker_is_emptied_and_takes_its_share_again_later(cluster: Cluster) -> None:
    for name in ("w1", "w2"):
        cluster.worker(name)
    cluster.manager("m1")

    async def scene(eye: Eye) -> None:
        await eye.deploy_on("w1", "w2")
        told = await eye.service.order_node("w1", "draining", by="ada")
        assert told.why == "is drained by ada"
        await eye.until("empty", lambda: set(eye.placed().values()) == {"w2"})
        assert (await eye.service.wait_running("Two", 10)).state is AppState.RUNNING
        await eye.service.order_node("w2", "cordoned")
        await eye.service.order_node("w1", "open")
        # A cordoned worker keeps what it has.
        await eye.view.changed(eye.view.version + 8, 2)
        assert set(eye.placed().values()) == {"w2"}
        await eye.service.order_node("w2", "open")
        await eye.until("shared", lambda: set(eye.placed().values()) == {"w1", "w2"})
        with pytest.raises(MeshError) as caught:
            await eye.service.order_node("w3", "open")
        assert caught.value.code == "MESH-A404"

    look(cluster, scene)


@pytest.mark.nats
def test_a_worker_started_again_within_its_term_gets_its_own_instances_back(
    cluster: Cluster,
) -> None:
    # Nobody else has room for them.
    for name, room in (("w1", "2"), ("w2", "1")):
        cluster.worker(name, MESH_WORKER_CAPACITY=room)
    cluster.manager("m1")

    async def scene(eye: Eye) -> None:
        await eye.deploy_on("w1", "w2")
        before, epochs = eye.placed(), eye.epochs()
        cluster.signal("w1", signal.SIGKILL)
        cluster.processes["w1"].wait()
        cluster.worker("w1", MESH_WORKER_CAPACITY="2")

        def is_back() -> bool:
            return all(eye.epochs()[i] > epochs[i] for i, w in before.items() if w == "w1")

        await eye.until("placed anew", is_back)
        assert eye.placed() == before
        assert (await eye.service.wait_running("Two", 10)).state is AppState.RUNNING

    look(cluster, scene)


@pytest.mark.nats
def test_workers_restarted_one_after_the_other_keep_the_app_placed(cluster: Cluster) -> None:
    for name in ("w1", "w2"):
        cluster.worker(name)
    cluster.manager("m1")

    async def scene(eye: Eye) -> None:
        await eye.deploy_on("w1", "w2")
        for name in ("w1", "w2"):
            cluster.signal(name, signal.SIGTERM)
            await asyncio.to_thread(cluster.processes[name].wait, 15)
            # It has handed everything over before it ended, without waiting for its term.
            assert name not in eye.placed().values()
            story = await eye.service.story("Two")
            told = [(e.by, e.text.split(" Two")[0], e.cause) for e in story]
            assert (f"worker {name}", "hands over and ends", "it was told to end") in told
            moves = [text for _, text, cause in told if cause == f"worker {name} is ending"]
            assert moves, told
            assert set(moves) == {"withdrew"}
            cluster.worker(name)
            await eye.until("back", partial(eye.has_some, name))
        assert (await eye.service.wait_running("Two", 10)).state is AppState.RUNNING

    look(cluster, scene)


@pytest.mark.nats
def test_a_killed_session_is_started_again_with_its_instances(cluster: Cluster) -> None:
    cluster.worker("w1")
    cluster.manager("m1")

    async def scene(eye: Eye) -> None:
        await eye.until("worker", lambda: {"w1"} <= eye.ready())
        await eye.service.deploy(APP)
        await eye.service.wait_running("Two", 10)
        epochs = eye.epochs()
        agent = psutil.Process(cluster.processes["w1"].pid)
        (session,) = agent.children()
        session.kill()
        await eye.until(
            "interrupted", lambda: any(state == "retrying" for state, _ in eye.states().values())
        )
        assert (await eye.service.wait_running("Two", 10)).state is AppState.RUNNING
        assert eye.epochs() == epochs

    look(cluster, scene)


@pytest.mark.nats
def test_another_manager_leads_when_the_leader_dies(cluster: Cluster) -> None:
    cluster.manager("m1")
    cluster.manager("m2")
    cluster.worker("w1")

    async def scene(eye: Eye) -> None:
        await eye.until("leader", eye.leader)
        await eye.until("worker", lambda: {"w1"} <= eye.ready())
        first = eye.leader()
        assert first is not None
        cluster.signal(first, signal.SIGKILL)
        await eye.until("another leader", lambda: eye.leader() not in (None, first))
        await eye.service.deploy(APP)
        assert (await eye.service.wait_running("Two", 10)).state is AppState.RUNNING

    look(cluster, scene)


@pytest.mark.nats
def test_a_paused_leader_that_wakes_up_is_refused(cluster: Cluster) -> None:
    cluster.manager("m1")

    async def scene(eye: Eye) -> None:
        await eye.until("leader", lambda: eye.leader() == "m1")
        cluster.signal("m1", signal.SIGSTOP)
        old = eye.view.revision(names.CONTROL_BUCKET, names.LEASE_KEY)
        cluster.manager("m2")
        await eye.until("another leader", lambda: eye.leader() == "m2")
        with pytest.raises(kv.RevisionConflict):
            await kv.write_as_leader(eye.service._js, "assignment.late", b"{}", old)
        cluster.signal("m1", signal.SIGCONT)
        version = eye.view.version
        await eye.until("beats", lambda: eye.view.version > version + 8)
        assert eye.leader() == "m2"

    look(cluster, scene)


@pytest.mark.nats
def test_the_journal_tells_an_apps_story_from_start_to_end(cluster: Cluster) -> None:
    cluster.manager("m1")
    for name in ("w1", "w2"):
        cluster.worker(name)

    async def scene(eye: Eye) -> None:
        await eye.deploy_on("w1", "w2")
        cluster.signal("w1", signal.SIGKILL)
        await eye.until("moved", lambda: set(eye.placed().values()) == {"w2"})
        await eye.service.wait_running("Two", 10)
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

    look(cluster, scene)


@pytest.mark.nats
def test_a_second_worker_of_the_same_name_is_turned_away(cluster: Cluster) -> None:
    cluster.manager("m1")
    cluster.worker("w1")

    async def scene(eye: Eye) -> None:
        await eye.deploy_on("w1")
        first = cluster.processes["w1"]
        cluster.worker("w1")
        second = cluster.processes["w1"]
        assert await asyncio.to_thread(second.wait, 20) != 0
        assert "MESH-C110" in (cluster.directory / "w1.log").read_text()
        told = [(e.by, e.text, e.cause) for e in await eye.service.story("Two")]
        assert told[-1] == (
            f"process {second.pid}",
            "was turned away from the name w1",
            f"process {first.pid} beats under it",
        )
        assert first.poll() is None
        first.kill()
        first.wait()

    look(cluster, scene)


@pytest.mark.nats
def test_the_view_goes_on_after_the_server_was_restarted(
    nats_server: server.NatsServer, tmp_path: Path
) -> None:
    cluster = Cluster(nats_server, tmp_path)

    async def scene(eye: Eye) -> None:
        await kv.put(eye.service._js, names.CONTROL_BUCKET, "lease", b'{"holder":"a","term":1}')
        await eye.until("first", lambda: eye.leader() == "a")
        nats_server.stop()
        again = server.start(nats_server.directory, port=nats_server.port)
        nats_server.process = again.process
        value = json.dumps({"holder": "b", "term": 2}).encode()
        stored = 0
        while not stored:
            # Until the connection is back, a write may be lost in the old one.
            with contextlib.suppress(TimeoutError, nats.errors.Error):
                stored = await kv.put(eye.service._js, names.CONTROL_BUCKET, "lease", value)
        await eye.until("second", lambda: eye.leader() == "b", 30)

    look(cluster, scene)


@pytest.mark.nats
def test_the_story_tells_that_nats_was_away(cluster: Cluster) -> None:
    cluster.manager("m1")
    cluster.worker("w1")

    async def scene(eye: Eye) -> None:
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

    look(cluster, scene)


@pytest.mark.nats
def test_of_two_deploys_of_one_name_at_once_one_is_taken(cluster: Cluster) -> None:
    async def scene(one: Eye) -> None:
        async with looking(cluster) as other:
            for number in range(4):
                text = APP.replace("'Two'", f"'Race{number}'")
                done = await asyncio.gather(
                    one.service.deploy(text),
                    other.service.deploy(text.replace("a > 1", "a > 2")),
                    return_exceptions=True,
                )
                refused = [found for found in done if isinstance(found, MeshError)]
                assert [error.code for error in refused] == ["MESH-A409"]

    look(cluster, scene)
