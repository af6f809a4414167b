"""Faults of managers: paused, cut off, killed, also half-way through a deploy."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bench.chaos.faults.requests import ask
from bench.chaos.scene import ScenarioError
from tools.links import When

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.chaos.scene import Scene


async def leader_paused(scene: Scene) -> None:
    """The leader is paused for longer than its lease, and wakes up deposed."""
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
    """There is no leader for a while: instances continue to run."""
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
    """The manager that got the deployment dies before it has stored the app."""
    await scene.know_managers()
    asked = asyncio.create_task(ask(scene, scene.leader, scene.text))
    await scene.kill_when(scene.leader, f"STREAM.CREATE.mesh-{scene.name}-Means", When.AFTER)
    if await asked is not None:
        raise ScenarioError("a manager that was killed has answered")
    if await ask(scene, scene.follower, scene.text) != 201:
        raise ScenarioError(f"{scene.follower} did not take the app")
    await scene.under_load()


async def two_deploys(scene: Scene) -> None:
    """Two texts of one app arrive at two managers at once: one is accepted."""
    await scene.know_managers()
    scene.hit()
    other = scene.text.replace("a % 3 != 0", "a % 3 != 1")
    statuses = await asyncio.gather(
        ask(scene, scene.leader, scene.text), ask(scene, scene.follower, other)
    )
    if sorted(status or 0 for status in statuses) != [201, 409]:
        raise ScenarioError(f"the managers said {statuses}")
    if statuses[0] != 201:
        scene.text = other
    await scene.under_load()
