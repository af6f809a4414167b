"""Faults of connector hosts, of their destinations, and of the broker between them."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from bench.chaos.endpoints import Manner
from bench.chaos.stage import PAST_TERMS_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.chaos.connector_scene import ConnectorScene


async def host_killed(scene: ConnectorScene) -> None:
    """The hosts die, their agents live and start others; twice."""
    for _ in range(2):
        scene.signal_hosts(signal.SIGKILL)
        await scene.flow(100)
        await scene.arrived(100)


async def host_paused(scene: ConnectorScene) -> None:
    """The hosts are frozen for a while, and wake up."""
    scene.signal_hosts(signal.SIGSTOP)
    await scene.passing(PAST_TERMS_S)
    scene.signal_hosts(signal.SIGCONT)
    await scene.arrived(100)


async def worker_paused(scene: ConnectorScene) -> None:
    """The worker with the sink is frozen past its term; it wakes up when another has the sink."""
    await _away(scene, scene.pause, scene.wake)


async def worker_cut(scene: ConnectorScene) -> None:
    """The worker with the sink is cut off from NATS, and not from the destinations."""
    await _away(scene, scene.cut, scene.heal)


async def _away(
    scene: ConnectorScene, leave: Callable[[str], None], come_back: Callable[[str], None]
) -> None:
    leave(scene.holder)
    await scene.outside.until("another sink", lambda: scene.worker_of("sink-S-1") == scene.other)
    await scene.arrived(50)
    come_back(scene.holder)
    await scene.arrived(100)


def destination_is(manner: Manner) -> Callable[[ConnectorScene], Awaitable[None]]:
    """One of two destinations fails for a while; the other one gets its events all the same."""

    async def play(scene: ConnectorScene) -> None:
        scene.hit()
        await scene.far.become(manner)
        await scene.arrived(300, scene.near)
        await scene.far.become(Manner.WELL)
        await scene.arrived(100)

    return play


async def broker_full(scene: ConnectorScene) -> None:
    """The channel accepts no more bytes for some seconds: neither events nor positions."""
    scene.hit()
    held = await scene.stored_bytes()
    await scene.with_config(max_bytes=max(held, 1), discard="new")
    await scene.passing(PAST_TERMS_S)
    await scene.with_config(max_bytes=-1, discard="old")
    await scene.arrived(100)
