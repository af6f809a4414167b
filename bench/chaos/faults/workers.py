"""Faults of workers: killed, paused, cut off, doubled, restarted, moved about."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from bench.chaos.scene import ScenarioError
from bench.chaos.stage import PAST_TERMS_S, WORKERS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.chaos.scene import Scene
    from tools.links import When

#: The last message of the app's sink for each commit to the counted stream.
COMMIT: Final = "mesh._marker.mesh-{app}-Counts."


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
    """A worker is killed and restarted before it is gone."""
    await scene.kill(scene.holder)
    scene.stage.start(scene.holder)
    await scene.outside.until_running(scene.name)
    await scene.flow(100)


async def worker_replaced(scene: Scene) -> None:
    """Only a new worker can take over the instances of the killed one."""
    await scene.order(scene.other, "cordoned")
    await scene.kill(scene.holder)
    scene.stage.start("w3")
    await scene.moved(scene.holder)
    if scene.worker_of("sums-1") != "w3":
        raise ScenarioError("w3 did not take what was lost")
    await scene.flow(100)


async def worker_paused(scene: Scene) -> None:
    """A whole machine is frozen for longer than its term, and wakes up."""
    scene.pause(scene.holder)
    await scene.moved(scene.holder)
    await scene.passing(PAST_TERMS_S)
    scene.wake(scene.holder)
    await scene.flow(200)


async def agent_paused(scene: Scene) -> None:
    """The agent is paused: new parts run before its session has stopped the old ones."""
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
    """A second process with a worker's name ends on its own, and nothing else happens."""
    before = scene.pids()
    scene.hit()
    await _refused(scene, "w1-second", await _second(scene))
    if scene.pids() != before:
        raise ScenarioError("a process was started again")
    await scene.flow(100)


async def name_taken(scene: Scene) -> None:
    """A second process claims the name of a paused one; the first one ends when it wakes."""
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
    """Each worker in turn ends in order and is restarted."""
    scene.hit()
    for worker in WORKERS:
        await asyncio.to_thread(scene.stage.processes.end, worker)
        scene.stage.start(worker)
        await scene.outside.until_ready(worker)
    await scene.flow(100)


async def storm(scene: Scene) -> None:
    """Workers start and end, in order and not, while others are drained and refilled."""
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
    """All instances move from worker to worker, twice each way; a key's order is its stream's."""
    scene.hit()
    for worker in (scene.holder, scene.other) * 2:
        await scene.order(worker, "draining")
        await scene.moved(worker)
        await scene.order(worker, "open")
    await scene.flow(100)


def lost_and_started(*starts: str) -> Callable[[Scene], Awaitable[None]]:
    """Workers are killed at once, and started one after the other when all are gone."""

    async def play(scene: Scene) -> None:
        await scene.kill(*starts)
        await scene.passing(PAST_TERMS_S)
        for worker in starts:
            scene.stage.start(worker)
            await scene.outside.until_ready(worker)
        await scene.outside.until_running(scene.name)
        await scene.flow(100)

    return play


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
