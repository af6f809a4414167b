"""The kill that end-to-end scenes share: it comes when all wait for it, and once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from tests.support.scenes import Kill

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.cluster import MeshClusterView


class FakeView:
    """A view of a cluster without instances, and what was done to the cluster."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []
        self.cluster = SimpleNamespace(
            kill=lambda name: self.done.append(("kill", name)),
            kill_session=lambda name: self.done.append(("kill session", name)),
            start_worker=lambda name: self.done.append(("start", name)),
        )
        self.view = SimpleNamespace(snapshot=lambda: SimpleNamespace(assignments=[]))

    async def until(self, what: str, condition: Callable[[], Any]) -> None:
        assert condition(), what


def played(*scenes: Any) -> tuple[list[tuple[str, str]], list[Any]]:
    """What was done to the cluster, and how each scene ended."""
    view = FakeView()

    async def run() -> list[Any]:
        kill = Kill(cast("MeshClusterView", view), len(scenes))

        async def play(scene: Any) -> None:
            try:
                await scene(kill)
            finally:
                await kill.leave()

        running = [play(scene) for scene in scenes]
        async with asyncio.timeout(10):
            *ended, _ = await asyncio.gather(*running, kill.run(), return_exceptions=True)
        return ended

    return view.done, asyncio.run(run())


def test_it_comes_once_when_all_scenes_wait() -> None:
    noted: list[str] = []

    async def follower(kill: Kill) -> None:
        noted.append("follower waits")
        await kill.happens()
        noted.append("follower goes on")

    async def leader(kill: Kill) -> None:
        await kill.others()
        noted.append("leader begins")
        await kill.happens(victim="w2")

    done, ended = played(leader, follower, follower)
    assert done == [("kill", "w2"), ("kill session", "w1"), ("start", "w2")]
    assert ended == [None, None, None]
    assert noted[:3] == ["follower waits", "follower waits", "leader begins"]


def test_a_scene_that_fails_is_not_waited_for() -> None:
    async def failing(kill: Kill) -> None:
        raise ValueError("before the kill")

    async def good(kill: Kill) -> None:
        await kill.happens()

    done, (first, second) = played(failing, good)
    assert done == [("kill", "w1"), ("kill session", "w2"), ("start", "w1")]
    assert isinstance(first, ValueError)
    assert second is None
