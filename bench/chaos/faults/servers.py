"""Faults of the NATS servers: restarted, killed, cut off, without their leaders."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import TYPE_CHECKING, Final

import orjson

from bench.chaos import app
from bench.chaos.outages import CLUSTER, LeaderProbe, lead
from bench.chaos.scene import ScenarioError
from bench.chaos.servers import SYSTEM_USER
from mesh.jetstream.connection import UNREACHABLE, close, connect
from mesh.model import names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nats.aio.client import Client

    from bench.chaos.scene import Scene


#: Outputs have continued after so many seconds, whatever a killed server led.
PAST_S: Final = 15.0


async def calm(scene: Scene) -> None:
    """No fault: events whose latency counts, after some that warm everything up."""
    await scene.flow(5 * scene.rate)
    scene.calm_from = scene.published
    await scene.flow(15 * scene.rate)


async def server_restarted(scene: Scene) -> None:
    """The server ends in order and is started again at once."""
    await _started_again(scene, scene.stage.servers.end)


async def server_killed(scene: Scene) -> None:
    """The server is killed and started again at once."""
    await _started_again(scene, scene.stage.servers.kill)


async def _started_again(scene: Scene, stop: Callable[[str], None]) -> None:
    scene.hit()
    await asyncio.to_thread(stop, "n1")
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
    client = scene.outside.client
    names = [str(info.config.name) for info in await scene.outside.js.streams_info()]
    system = await connect(scene.stage.servers.settings(SYSTEM_USER), "chaos system")
    scene.hit()
    try:
        refused = [n for n in names if not await _step_down(client, f"STREAM.LEADER.STEPDOWN.{n}")]
        if not await _step_down(system, "META.LEADER.STEPDOWN"):
            refused.append("the cluster's own log")
    finally:
        await close(system)
    await scene.flow(200)
    if refused:
        raise ScenarioError(f"these leaders did not step down: {', '.join(refused)}")


async def node_killed(scene: Scene) -> None:
    """The server of three that a worker is connected to is killed, and restarted."""
    node = await _node_of(scene, scene.holder)
    scene.hit()
    await asyncio.to_thread(scene.stage.servers.kill, node)
    await scene.flow(200)
    await scene.stage.mend_servers()
    await scene.flow(100)


def leader_killed(role: str) -> Callable[[Scene], Awaitable[None]]:
    """Kill the server of three with one role, and measure the interruption.

    Args:
        role: ``input``, ``outputs``, ``records`` or ``cluster``: what n1 leads, and nothing else;
            ``no`` for nothing at all.
    """

    async def play(scene: Scene) -> None:
        await scene.flow(4 * scene.rate)
        streams = [str(info.config.name) for info in await scene.outside.js.streams_info()]
        mine = names.js_stream(scene.name, app.INPUT)
        outputs = {names.js_stream(scene.name, one) for one in app.OUTPUTS}
        roles = {
            "input": {one for one in streams if one.startswith(mine)},
            "outputs": outputs,
            "records": {one for one in streams if one.startswith(("KV_", "OBJ_"))},
            "cluster": {CLUSTER},
        }
        chosen = roles.get(role, set())
        others = itertools.cycle(("n2", "n3"))
        wanted = {one: "n1" if one in chosen else next(others) for one in (*streams, CLUSTER)}
        await lead(scene.stage.servers, scene.outside.client, wanted)
        await scene.flow(2 * scene.rate)
        asked = {*roles["input"], *outputs, *roles["records"]}
        scene.probe = LeaderProbe(scene.stage.servers, "n2", asked)
        await scene.probe.begin()
        await scene.flow(scene.rate)
        scene.hit()
        await asyncio.to_thread(scene.stage.servers.kill, "n1")
        await scene.flow(4 * scene.rate)
        await scene.passing(PAST_S)
        await scene.stage.mend_servers()
        await scene.flow(scene.rate)

    return play


async def host_killed(scene: Scene) -> None:
    """A machine of two dies with its worker, its manager and its NATS server, and comes back.

    The third server, the witness, is on another machine.
    """
    # They are one machine's for this scenario: the leader, the holder, and the holder's server.
    node = await _node_of(scene, scene.holder)
    scene.hit()
    await asyncio.gather(
        asyncio.to_thread(scene.stage.servers.kill, node), scene.kill(scene.holder, scene.leader)
    )
    await scene.flow(300)
    await scene.moved(scene.holder)
    await scene.stage.mend_servers()
    scene.stage.start(scene.holder, scene.leader)
    await scene.outside.until_ready(scene.holder)
    await scene.flow(100)


async def nodes_killed(scene: Scene) -> None:
    """All three servers are killed, and restarted."""
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


async def _step_down(client: Client, subject: str) -> bool:
    """Make a leader step down; False if that fails."""
    for _ in range(3):
        # The leader may be gone before the previous one has answered.
        with contextlib.suppress(*UNREACHABLE):
            answer = await client.request(f"$JS.API.{subject}", b"", timeout=5)
            if orjson.loads(answer.data).get("success"):
                return True
    return False
