"""Every fault, as a name, what the journal has to tell of it, and a few lines that bring it about.

In a story's patterns ``<holder>`` stands for the worker that has the first instance of the group
by key, ``<other>`` for the one that has not, ``<leader>`` and ``<follower>`` for the managers, and
``<app>`` for the app: as they were when the load began.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import httpx

from bench.chaos.scene import ScenarioError
from bench.chaos.stage import WORKERS, Topology
from mesh.testing.links import When

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.chaos.scene import Scene

#: Past a worker's term and its margin (2.0 and 0.5 s), and past a leader's lease (2.0 s).
PAST_TERMS_S: Final = 6.0
#: What the app's sink writes last of each commit to the stream that is counted.
COMMIT: Final = "mesh._marker.mesh-{app}-Counts."

GONE: Final = (r"placed <app>-sums-1 on <other> .*worker <holder> is gone", r"runs <app>-sums-1")


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fault under load."""

    name: str
    #: For people.
    fault: str
    play: Callable[[Scene], Awaitable[None]]
    #: Regular expressions that lines of the app's story match, in this order.
    story: tuple[str, ...] = ()
    topology: Topology = Topology.ONE
    #: Whether it deploys the app itself.
    deploys: bool = False
    #: Whether w1 is the only one to run the first group, and w2 to run those behind it.
    in_sides: bool = False
    #: Why it can't be played yet; empty when it can.
    missing: str = ""

    @property
    def app_name(self) -> str:
        """Of the app that it plays with."""
        return "".join(word.title() for word in self.name.split("-"))


# --- workers


def killed_at(when: When) -> Callable[[Scene], Awaitable[None]]:
    """The worker dies at one moment of a sink's commit."""

    async def play(scene: Scene) -> None:
        await scene.kill_when(scene.holder, COMMIT.format(app=scene.name), when)
        await scene.moved(scene.holder)
        await scene.flow(100)

    return play


async def session_killed(scene: Scene) -> None:
    """Spark dies, the agent lives and starts another."""
    scene.hit()
    scene.stage.processes.kill_session(scene.holder)
    await scene.flow(100)


async def worker_restarted(scene: Scene) -> None:
    """A worker is killed and comes back before it is gone."""
    await scene.kill(scene.holder)
    scene.stage.start(scene.holder)
    await scene.outside.until_running(scene.name)
    await scene.flow(100)


async def worker_replaced(scene: Scene) -> None:
    """Only a new worker can take what the killed one had."""
    await scene.order(scene.other, "cordoned")
    await scene.kill(scene.holder)
    scene.stage.start("w3")
    await scene.outside.until_running(scene.name)
    if scene.worker_of("sums-1") != "w3":
        raise ScenarioError("w3 did not take what was lost")
    await scene.flow(100)


async def worker_paused(scene: Scene) -> None:
    """A whole machine stands still for longer than its term, and wakes up."""
    scene.pause(scene.holder)
    await scene.moved(scene.holder)
    await scene.passing(PAST_TERMS_S)
    scene.wake(scene.holder)
    await scene.flow(200)


async def agent_paused(scene: Scene) -> None:
    """New parts run before the old ones have stopped: the session knows nothing of its agent."""
    scene.pause(scene.holder, alone=True)
    await scene.moved(scene.holder)
    await scene.flow(200)
    scene.wake(scene.holder)
    await scene.flow(100)


def worker_cut(*, up: bool, down: bool) -> Callable[[Scene], Awaitable[None]]:
    """The worker lives and can't reach NATS, one way or both."""

    async def play(scene: Scene) -> None:
        scene.cut(scene.holder, up=up, down=down)
        await scene.moved(scene.holder)
        await scene.passing(PAST_TERMS_S)
        scene.heal(scene.holder)
        await scene.flow(200)

    return play


async def turned_away(scene: Scene) -> None:
    """A second process with a worker's name ends by itself, and nothing else happens."""
    before = scene.pids()
    scene.hit()
    await _refused(scene, "w1-second", await _second(scene))
    if scene.pids() != before:
        raise ScenarioError("a process was started again")
    await scene.flow(100)


async def name_taken(scene: Scene) -> None:
    """A second process takes the name of one that is paused; the first one ends when it wakes."""
    scene.pause(scene.holder)
    await scene.moved(scene.holder)
    first = scene.holder
    scene.stage.processes.rename(first, "sleeper")
    scene.stage.start(first)
    await scene.outside.until_ready(first)
    scene.wake("sleeper")
    status = await asyncio.to_thread(scene.stage.processes.wait, "sleeper")
    if not status or "MESH-C110" not in scene.stage.processes.logs():
        raise ScenarioError(f"the first {first} ended with {status}")
    await scene.flow(100)


async def rolling_restart(scene: Scene) -> None:
    """Each worker in turn ends in order and starts again."""
    scene.hit()
    for worker in WORKERS:
        await asyncio.to_thread(scene.stage.processes.end, worker)
        scene.stage.start(worker)
        await scene.outside.until_ready(worker)
    await scene.flow(100)


async def storm(scene: Scene) -> None:
    """Workers come and go, in order and not, while others are emptied and filled."""
    scene.hit()
    scene.stage.start("w3")
    await scene.order("w1", "draining")
    await scene.outside.until_ready("w3")
    await scene.order("w1", "open")
    await scene.order("w2", "draining")
    await scene.kill("w3")
    await scene.order("w2", "open")
    scene.stage.start("w3")
    await asyncio.to_thread(scene.stage.processes.end, "w2")
    scene.stage.start("w2")
    await scene.outside.until_ready("w2", "w3")
    await asyncio.to_thread(scene.stage.processes.end, "w3")
    await scene.flow(100)


async def moved_about(scene: Scene) -> None:
    """Everything goes from worker to worker, twice each way; the order of a key is its stream's."""
    scene.hit()
    for worker in (scene.holder, scene.other) * 2:
        await scene.order(worker, "draining")
        await scene.moved(worker)
        await scene.order(worker, "open")
    await scene.flow(100)


def front_lost(*starts: str) -> Callable[[Scene], Awaitable[None]]:
    """The workers of both sides are killed, and started in this order."""

    async def play(scene: Scene) -> None:
        await scene.kill(*starts)
        await scene.passing(PAST_TERMS_S)
        for worker in starts:
            scene.stage.start(worker)
            await scene.outside.until_ready(worker)
        await scene.outside.until_running(scene.name)
        await scene.flow(100)

    return play


# --- managers


async def leader_paused(scene: Scene) -> None:
    """The leader stands still for longer than its lease, and wakes up as nobody."""
    scene.pause(scene.leader)
    await scene.led_by(scene.follower)
    await scene.order(scene.holder, "draining")
    await scene.moved(scene.holder)
    scene.wake(scene.leader)
    await scene.order(scene.holder, "open")
    await scene.flow(200)


def leader_cut(*, up: bool, down: bool) -> Callable[[Scene], Awaitable[None]]:
    """The leader can't reach NATS, one way or both, while it has something to decide."""

    async def play(scene: Scene) -> None:
        scene.cut(scene.leader, up=up, down=down)
        await scene.order(scene.holder, "draining")
        await scene.led_by(scene.follower)
        await scene.moved(scene.holder)
        scene.heal(scene.leader)
        await scene.order(scene.holder, "open")
        await scene.flow(200)

    return play


async def managers_killed(scene: Scene) -> None:
    """Nobody leads for a while: instances run on."""
    await scene.kill(scene.leader, scene.follower)
    await scene.counted(300)
    scene.stage.start(scene.follower)
    await scene.led_by(scene.follower)
    await scene.flow(100)


async def killed_placing(scene: Scene) -> None:
    """The leader of a deploy dies half-way through the placements."""
    await scene.know_managers()
    pattern = f"assignment.{scene.name}-sums-2"
    deploy = asyncio.create_task(scene.outside.service.deploy(scene.text))
    await scene.kill_when(scene.leader, pattern, When.BEFORE)
    await deploy
    await scene.under_load()


async def killed_answering(scene: Scene) -> None:
    """The manager that was asked to deploy dies before it has written the app down."""
    await scene.know_managers()
    asked = asyncio.create_task(_ask(scene, scene.leader, scene.text))
    await scene.kill_when(scene.leader, f"STREAM.CREATE.mesh-{scene.name}-Means", When.AFTER)
    if await asked is not None:
        raise ScenarioError("a manager that was killed has answered")
    if await _ask(scene, scene.follower, scene.text) != 201:
        raise ScenarioError(f"{scene.follower} did not take the app")
    await scene.under_load()


async def two_deploys(scene: Scene) -> None:
    """Two texts of one app come to two managers at once: one is taken."""
    await scene.know_managers()
    scene.hit()
    other = scene.text.replace("a % 3 != 0", "a % 3 != 1")
    statuses = await asyncio.gather(
        _ask(scene, scene.leader, scene.text), _ask(scene, scene.follower, other)
    )
    if sorted(status or 0 for status in statuses) != [201, 409]:
        raise ScenarioError(f"the managers said {statuses}")
    if statuses[0] != 201:
        scene.text = other
    await scene.under_load()


# --- servers


async def server_restarted(scene: Scene) -> None:
    """The server ends in order and is started again at once."""
    scene.hit()
    await asyncio.to_thread(scene.stage.servers.end, "n1")
    await asyncio.to_thread(scene.stage.servers.repair)
    await scene.flow(100)


async def server_killed(scene: Scene) -> None:
    """The server is killed and started again at once."""
    scene.hit()
    await asyncio.to_thread(scene.stage.servers.kill, "n1")
    await asyncio.to_thread(scene.stage.servers.repair)
    await scene.flow(100)


async def nats_away(scene: Scene) -> None:
    """No server for 30 s: no process of ours ends for it."""
    before = scene.pids()
    scene.hit()
    await asyncio.to_thread(scene.stage.servers.kill, "n1")
    await scene.passing(30.0)
    await asyncio.to_thread(scene.stage.servers.repair)
    await scene.outside.until_running(scene.name)
    await scene.flow(100)
    if scene.pids() != before:
        raise ScenarioError(f"a process was started again: {before} before, {scene.pids()} now")


async def stepped_down(scene: Scene) -> None:
    """The leaders of all streams, and of the cluster's own log, hand over."""
    scene.hit()
    js = scene.outside.js
    for info in await js.streams_info():
        await _api(scene, f"STREAM.LEADER.STEPDOWN.{info.config.name}")
    await _api(scene, "META.LEADER.STEPDOWN")
    await scene.flow(200)


async def node_killed(scene: Scene) -> None:
    """The server of three that a worker is connected to is killed, and comes back."""
    node = await _node_of(scene, scene.holder)
    scene.hit()
    await asyncio.to_thread(scene.stage.servers.kill, node)
    await scene.flow(200)
    await asyncio.to_thread(scene.stage.servers.repair)
    await scene.flow(100)


async def nodes_killed(scene: Scene) -> None:
    """All three servers are killed, and come back."""
    scene.hit()
    for name in scene.stage.servers.names:
        await asyncio.to_thread(scene.stage.servers.kill, name)
    await scene.passing(5.0)
    await asyncio.to_thread(scene.stage.servers.repair)
    await scene.flow(200)


async def node_cut(scene: Scene) -> None:
    """The server of three that a worker is connected to loses its network, and gets it back."""
    node = await _node_of(scene, scene.holder)
    scene.hit()
    scene.stage.servers.cut(node)
    await scene.flow(200)
    await asyncio.to_thread(scene.stage.servers.repair)
    await scene.flow(100)


# --- what they share


async def _second(scene: Scene) -> int:
    """Start a second w1, wait until it has ended; its exit status."""
    second = scene.stage.processes.spawn(
        "w1-second",
        "worker",
        **scene.stage.environment("w1")
        | {"MESH_WORKER_STATE_DIR": str(scene.stage.directory / "state" / "second")},
    )
    return await asyncio.to_thread(second.wait, 60)


async def _refused(scene: Scene, log: str, status: int) -> None:
    said = (scene.stage.directory / f"{log}.log").read_text()
    if not status or "MESH-C110" not in said:
        raise ScenarioError(f"the second worker of a name ended with {status}: {said[-300:]}")


async def _ask(scene: Scene, manager: str, text: str) -> int | None:
    """POST an app to a manager; the status, None when it died over it."""
    nodes = {n.value.id: n.value.address for n in scene.outside.view.snapshot().nodes}
    try:
        async with httpx.AsyncClient(timeout=30.0) as client:
            headers = {"Content-Type": "text/plain; charset=utf-8"}
            url = f"http://{nodes[manager]}/siddhi-apps"
            return (await client.post(url, content=text.encode(), headers=headers)).status_code
    except httpx.HTTPError:
        return None


async def _node_of(scene: Scene, worker: str) -> str:
    """The server that a worker's agent is connected to."""
    return await asyncio.to_thread(scene.stage.servers.node_of, f"mesh worker {worker}")


async def _api(scene: Scene, subject: str) -> Any:
    return await scene.outside.client.request(f"$JS.API.{subject}", b"", timeout=10)


_AWAY: Final = (r"lost its connection to NATS", r"is connected to NATS again")
_HOLDER_AWAY: Final = tuple(f"worker <holder> {told}" for told in _AWAY)
_TOOK_OVER: Final = (r"manager <follower> leads",)
_DRAINED: Final = (
    *_TOOK_OVER,
    r"manager <follower> withdrew <app>-sums-1 from <holder> .*drained",
    r"worker <holder> has stopped <app>-sums-1",
    r"manager <follower> placed <app>-sums-1 on <other>",
)

SCENARIOS: Final = (
    *(
        Scenario(
            f"worker-killed-{when}-commit",
            f"worker killed {when} a sink's commit",
            killed_at(when),
            GONE,
        )
        for when in When
    ),
    Scenario(
        "session-killed",
        "a worker's Spark session killed",
        session_killed,
        (r"worker <holder> starts another session", r"runs <app>-sums-1"),
    ),
    Scenario(
        "worker-restarted",
        "worker killed and started again at once",
        worker_restarted,
        (r"worker <holder> began", r"placed <app>-sums-1 on", r"runs <app>-sums-1"),
    ),
    Scenario(
        "worker-replaced",
        "worker killed, a new one in its place",
        worker_replaced,
        (r"placed <app>-sums-1 on w3 .*worker <holder> is gone", r"worker w3 runs <app>-sums-1"),
    ),
    Scenario("worker-paused", "worker paused past its term", worker_paused, GONE),
    Scenario(
        "agent-paused",
        "new parts run before old ones have stopped (agent paused)",
        agent_paused,
        GONE,
    ),
    Scenario(
        "worker-cut-up", "nothing from a worker arrives", worker_cut(up=True, down=False), GONE
    ),
    Scenario("worker-cut-down", "nothing reaches a worker", worker_cut(up=False, down=True), GONE),
    Scenario("worker-cut", "worker cut off both ways", worker_cut(up=True, down=True), GONE),
    Scenario("duplicate-turned-away", "second worker of one name", turned_away),
    Scenario("duplicate-takes-over", "second worker takes a paused one's name", name_taken, GONE),
    Scenario(
        "rolling-restart",
        "workers restarted one after the other",
        rolling_restart,
        (
            r"worker w1 hands over and ends",
            r"withdrew <app>-\S+ from w1 ",
            r"worker w1 began",
            r"worker w2 hands over and ends",
            r"worker w2 began",
        ),
    ),
    Scenario(
        "storm",
        "workers join and leave",
        storm,
        (r"withdrew <app>-\S+ from w1 .*drained", r"worker w3 is gone", r"w2 hands over"),
    ),
    Scenario(
        "moved-about",
        "everything moved twice each way",
        moved_about,
        (
            r"withdrew <app>-sums-1 from <holder> ",
            r"placed <app>-sums-1 on <other> ",
            r"withdrew <app>-sums-1 from <other> ",
            r"placed <app>-sums-1 on <holder> ",
        ),
    ),
    Scenario(
        "front-lost-front-first",
        "front and back lost, front started first",
        front_lost("w1", "w2"),
        (r"worker w1 began", r"worker w2 began", r"runs <app>-sums-1"),
        in_sides=True,
    ),
    Scenario(
        "front-lost-back-first",
        "front and back lost, back started first",
        front_lost("w2", "w1"),
        (r"worker w2 began", r"worker w1 began", r"runs <app>-flat-1"),
        in_sides=True,
    ),
    Scenario(
        "front-lost",
        "front lost alone",
        front_lost("w1"),
        (r"worker w1 began", r"runs <app>-flat-1"),
        in_sides=True,
    ),
    Scenario("leader-paused", "leader paused past its lease", leader_paused, _DRAINED),
    Scenario(
        "leader-cut-up",
        "nothing from the leader arrives",
        leader_cut(up=True, down=False),
        _DRAINED,
    ),
    Scenario(
        "leader-cut-down", "nothing reaches the leader", leader_cut(up=False, down=True), _DRAINED
    ),
    Scenario("leader-cut", "leader cut off both ways", leader_cut(up=True, down=True), _DRAINED),
    Scenario("managers-killed", "all managers killed", managers_killed, _TOOK_OVER),
    Scenario(
        "leader-killed-placing",
        "leader killed half-way through a deploy's placements",
        killed_placing,
        (
            r"manager <leader> placed <app>-sums-1",
            r"manager <follower> leads",
            r"manager <follower> placed <app>-sums-2",
            r"runs <app>-sums-2",
        ),
        deploys=True,
    ),
    Scenario(
        "leader-killed-answering",
        "manager killed before it has written a deploy down",
        killed_answering,
        (r"deployed app <app>", r"manager <follower> placed <app>-sums-1"),
        deploys=True,
    ),
    Scenario(
        "two-deploys",
        "two deploys of one app at once",
        two_deploys,
        (r"deployed app <app>", r"placed <app>-sums-1", r"runs <app>-sums-1"),
        deploys=True,
    ),
    Scenario("server-restarted", "NATS server restarted", server_restarted, _AWAY),
    Scenario("server-killed", "NATS server killed", server_killed, _AWAY),
    Scenario(
        "nats-away",
        "no NATS server for 30 s",
        nats_away,
        (
            r"lost its connection to NATS",
            r"worker <holder> stops .*no heartbeat was taken",
            r"worker <holder> is connected to NATS again",
            r"runs <app>-sums-1",
        ),
    ),
    Scenario(
        "leaders-stepped-down",
        "leaders of all streams step down",
        stepped_down,
        topology=Topology.THREE,
    ),
    Scenario(
        "node-killed",
        "one NATS server of three killed",
        node_killed,
        _HOLDER_AWAY,
        topology=Topology.THREE,
    ),
    Scenario(
        "nodes-killed",
        "all three NATS servers killed",
        nodes_killed,
        _AWAY,
        topology=Topology.THREE,
    ),
    Scenario(
        "node-cut",
        "one NATS server of three cut off",
        node_cut,
        _HOLDER_AWAY,
        topology=Topology.APART,
    ),
)
