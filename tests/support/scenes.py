"""Scenes of end-to-end tests that share one cluster and its time: together, or one by one.

A scene waits for a batch of Spark most of its time.  So all scenes that kill nothing run at the
same time, and those that only need their sessions killed half-way share one kill.  Each remains a
test of its own, with its own failure: the first test of a kind runs the scenes of all of them.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

import pytest

from mesh.jetstream.connection import close, connect
from tests.support.secured import (
    ASKER,
    FEEDER,
    PUBLISHER,
    ClientsPublish,
    SecuredCluster,
)
from tools.cluster import MeshCluster, MeshClusterView, watching

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from nats.aio.client import Client

Scene = Callable[[MeshClusterView], Awaitable[None]]
#: A scene that is half-way at its first wait for the ``Kill``.
KilledScene = Callable[[MeshClusterView, "Kill"], Awaitable[None]]
Outcome = BaseException | None

#: Maximum time of the scenes of a kind together, seconds.
LIMIT_S: Final = 400.0
#: A scene waits longer here than alone: others have the processors too.
DEADLINE_S: Final = 240.0


@asynccontextmanager
async def viewing(cluster: MeshCluster, *workers: str) -> AsyncIterator[MeshClusterView]:
    """Connections of its own to a cluster with workers ready, w1 and w2 by default."""
    async with AsyncExitStack() as stack:

        async def connected(user: str) -> Client:
            client = await connect(cluster.settings(user), f"test {user}")
            stack.push_async_callback(close, client)
            return client

        nats = cluster.settings("manager")
        client, records = await stack.enter_async_context(watching(nats, cluster.channels))
        view = MeshClusterView(cluster, client, records)
        view.deadline_s = DEADLINE_S
        if isinstance(cluster, SecuredCluster):
            view.publisher = await connected(PUBLISHER)
            view.js = ClientsPublish(client, view.publisher, await connected(FEEDER))
            view.asker = await connected(ASKER)
        await view.until_ready(*(workers or ("w1", "w2")))
        yield view


class Kill:
    """One kill that several scenes wait for: of one worker, and of the other one's session."""

    def __init__(self, view: MeshClusterView, scenes: int) -> None:
        self._view = view
        self._scenes = scenes
        self._waiting = 0
        self._victim = "w1"
        self._changed = asyncio.Condition()
        self._done = asyncio.Event()
        self._error: BaseException | None = None

    async def leave(self) -> None:
        """Record that a scene has ended: the kill doesn't wait for it any longer."""
        async with self._changed:
            self._scenes -= 1
            self._changed.notify_all()

    async def others(self) -> None:
        """Wait until all other scenes wait for the kill."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._waiting >= self._scenes - 1)

    async def happens(self, *, victim: str | None = None) -> None:
        """Wait for the kill, which happens when all scenes wait for it.

        Args:
            victim: the worker to be killed itself, if that matters to the scene.
        """
        async with self._changed:
            self._victim = victim or self._victim
            self._waiting += 1
            self._changed.notify_all()
        await self._done.wait()
        if self._error is not None:
            raise self._error

    async def run(self) -> None:
        """Kill when all scenes wait; start the worker again when its instances have moved."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._waiting >= self._scenes)
        try:
            self._kill()
        except BaseException as error:
            self._error = error
            raise
        finally:
            self._done.set()
        await self._view.until("all instances moved", self._has_moved)
        self._view.cluster.start_worker(self._victim)

    def _kill(self) -> None:
        self._view.cluster.kill(self._victim)
        self._view.cluster.kill_session("w2" if self._victim == "w1" else "w1")

    def _has_moved(self) -> bool:
        placed = [a.value.worker for a in self._view.view.snapshot().assignments]
        return self._victim not in placed


async def play_together(cluster: MeshCluster, scenes: Sequence[Scene]) -> list[Outcome]:
    """Run scenes at the same time, each with a connection of its own; how each ended."""
    return await asyncio.gather(*(_outcome(_play(cluster, scene)) for scene in scenes))


async def play_killed(cluster: MeshCluster, scenes: Sequence[KilledScene]) -> list[Outcome]:
    """Run scenes at the same time that share one kill; how each ended."""
    async with viewing(cluster) as view:
        kill = Kill(view, len(scenes))

        async def play(scene: KilledScene) -> None:
            try:
                await _play(cluster, functools.partial(scene, kill=kill))  # type: ignore[call-arg]
            finally:
                await kill.leave()

        *outcomes, killed = await asyncio.gather(
            *(_outcome(play(scene)) for scene in scenes), _outcome(kill.run())
        )
        return [outcome or killed for outcome in outcomes]


async def _play(cluster: MeshCluster, scene: Scene) -> None:
    async with viewing(cluster) as view:
        await scene(view)


async def _outcome(running: Awaitable[None]) -> Outcome:
    try:
        async with asyncio.timeout(LIMIT_S):
            await running
    except (Exception, pytest.fail.Exception) as error:
        return error
    return None


class Scenes:
    """The scenes of the selected tests, by kind; a request for one runs those of its kind."""

    def __init__(self, cluster: MeshCluster, items: Sequence[pytest.Item]) -> None:
        self._cluster = cluster
        self._of: dict[str, dict[str, Scene | KilledScene]] = {}
        for item in items:
            for marker in item.iter_markers("scene"):
                self._of.setdefault(marker.args[0], {})[item.nodeid] = marker.args[1]
        self._outcomes: dict[str, Outcome] = {}

    def outcome(self, item: pytest.Item) -> Outcome:
        """The result of a test's scene."""
        if item.nodeid not in self._outcomes:
            (marker,) = item.iter_markers("scene")
            kind = marker.args[0]
            scenes = self._of[kind]
            began_s = time.monotonic()
            run = play_killed if kind == "killed" else play_together
            made = asyncio.run(run(self._cluster, list(scenes.values())))  # type: ignore[arg-type]
            self._outcomes |= dict(zip(scenes, made, strict=True))
            print(f"{len(scenes)} scenes of kind {kind}: {time.monotonic() - began_s:.1f} s")  # noqa: T201
        return self._outcomes[item.nodeid]


def calm(scene: Scene) -> Callable[..., None]:
    """Make a test of a scene that kills nothing: all of these run at the same time."""
    return _test("calm", scene, scene.__name__)


def killed(scene: KilledScene) -> Callable[..., None]:
    """Make a test of a scene that needs its sessions killed half-way; all share one kill."""
    return _test("killed", scene, scene.__name__)


def _test(kind: str, scene: Scene | KilledScene, name: str) -> Callable[..., None]:
    @pytest.mark.scene(kind, scene)
    def test(scene_outcome: Callable[[], None]) -> None:
        scene_outcome()

    test.__name__ = test.__qualname__ = name
    test.__doc__ = scene.__doc__
    return test
