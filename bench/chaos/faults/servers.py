"""Faults of the NATS servers: restarted, killed, cut off, without their leaders."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from bench.chaos.scene import ScenarioError
from mesh.jetstream.connection import UNREACHABLE

if TYPE_CHECKING:
    from bench.chaos.scene import Scene


async def server_restarted(scene: Scene) -> None:
    """The server ends in order and is started again at once."""
    scene.hit()
    await asyncio.to_thread(scene.stage.servers.end, "n1")
    await scene.stage.mend_servers()
    await scene.flow(100)


async def server_killed(scene: Scene) -> None:
    """The server is killed and started again at once."""
    scene.hit()
    await asyncio.to_thread(scene.stage.servers.kill, "n1")
    await scene.stage.mend_servers()
    await scene.flow(100)


async def nats_away(scene: Scene) -> None:
    """No server for 30 s: no process of ours ends for it."""
    before = scene.pids()
    scene.hit()
    await asyncio.to_thread(scene.stage.servers.kill, "n1")
    await scene.passing(30.0)
    await scene.stage.mend_servers()
    await scene.outside.until_running(scene.name)
    await scene.flow(100)
    if scene.pids() != before:
        raise ScenarioError(f"a process was started again: {before} before, {scene.pids()} now")


async def stepped_down(scene: Scene) -> None:
    """The leaders of all streams, and of the cluster's own log, hand over."""
    scene.hit()
    js = scene.outside.js
    for info in await js.streams_info():
        await _step_down(scene, f"STREAM.LEADER.STEPDOWN.{info.config.name}")
    await _step_down(scene, "META.LEADER.STEPDOWN")
    await scene.flow(200)


async def node_killed(scene: Scene) -> None:
    """The server of three that a worker is connected to is killed, and comes back."""
    node = await _node_of(scene, scene.holder)
    scene.hit()
    await asyncio.to_thread(scene.stage.servers.kill, node)
    await scene.flow(200)
    await scene.stage.mend_servers()
    await scene.flow(100)


async def nodes_killed(scene: Scene) -> None:
    """All three servers are killed, and come back."""
    scene.hit()
    for name in scene.stage.servers.names:
        await asyncio.to_thread(scene.stage.servers.kill, name)
    await scene.passing(5.0)
    await scene.stage.mend_servers()
    await scene.flow(200)


async def node_cut(scene: Scene) -> None:
    """The server of three that a worker is connected to loses its network, and gets it back."""
    node = await _node_of(scene, scene.holder)
    scene.hit()
    scene.stage.servers.cut(node)
    await scene.flow(200)
    await scene.stage.mend_servers()
    await scene.flow(100)


async def _node_of(scene: Scene, worker: str) -> str:
    """The server that a worker's agent is connected to."""
    return await asyncio.to_thread(scene.stage.servers.node_of, f"mesh worker {worker}")


async def _step_down(scene: Scene, subject: str) -> None:
    # Who hands over may be gone as the leader before it has answered.
    with contextlib.suppress(*UNREACHABLE):
        await scene.outside.client.request(f"$JS.API.{subject}", b"", timeout=5)
