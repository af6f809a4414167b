"""Other forms of the app under load: groups scaled, queries added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.chaos.faults.requests import call
from bench.chaos.scene import ScenarioError

if TYPE_CHECKING:
    from bench.chaos.scene import Scene

#: One query more for the group with a window and a pattern.
QUERY: Final = "@dist(execGroup='whole') from S[a % 7 == 0] select k, a insert into Sevens;\n"


async def rescaled(scene: Scene) -> None:
    """Groups by key and without state go from 2 instances to 4, and to 1."""
    await _rescale(scene, 4)
    await _rescale(scene, 1)


async def rescaled_killed(scene: Scene) -> None:
    """A worker dies while its instances are rescaled."""
    await _rescale(scene, 4, scene.holder)


async def rescaled_led(scene: Scene) -> None:
    """The leader dies while instances are rescaled: the next one continues in the middle."""
    await _rescale(scene, 1, scene.leader)


async def edited(scene: Scene) -> None:
    """A further query in a group with a window and a pattern: both continue with their state."""
    await _edit(scene)


async def edited_killed(scene: Scene) -> None:
    """The worker of a group dies while the group is edited."""
    await _edit(scene, scene.worker_of("whole-1"))


async def _edit(scene: Scene, *victims: str) -> None:
    scene.hit()
    await _put(scene, scene.text + QUERY)
    await scene.kill(*victims)
    await scene.outside.until_running(scene.name)
    await scene.counted_in("Sevens", 20)


async def _rescale(scene: Scene, parallel: int, *victims: str) -> None:
    scene.hit()
    for group in ("sums", "flat"):
        await _scale(scene, group, parallel)
    await scene.kill(*victims)
    await scene.instances("sums", parallel)
    await scene.instances("flat", parallel)
    await scene.flow(150)


async def _scale(scene: Scene, group: str, parallel: int) -> None:
    """Request another number of instances of a group."""
    wanted = {"group": group, "parallel": parallel}
    path = f"/siddhi-apps/{scene.name}/scale"
    status = await call(scene, scene.follower, "POST", path, params=wanted)
    if status not in (200, 202):
        raise ScenarioError(f"{scene.follower} answered {status} to a scale of {group}")


async def _put(scene: Scene, text: str) -> None:
    """Deploy another text of the running app."""
    status = await call(scene, scene.follower, "PUT", "/siddhi-apps", content=text.encode())
    if status != 200:
        raise ScenarioError(f"{scene.follower} answered {status} to a changed app")
