"""Faults of storage: tails lost with the power, old backups, stores that are away, full disks."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from bench.chaos.scene import ScenarioError
from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from bench.chaos.scene import Scene

#: An app without events, whose removal needs the store.
_OTHER = (
    "@App:name('{name}') define stream T (a int); from T#window.length(2) select a insert into U;"
)


async def power_lost(scene: Scene) -> None:
    """The only server loses what it stored since a while."""
    await _restarted_after(scene, ["n1"], scene.stage.servers.save)
    await scene.flow(200)
    scene.hit()
    await _restarted_after(scene, ["n1"], scene.stage.servers.lose)
    await scene.outside.until_running(scene.name)
    await scene.flow(100)


async def power_lost_by_two(scene: Scene) -> None:
    """Two servers of three lose what they stored since a while; the third one returns later."""
    servers = scene.stage.servers
    await _restarted_after(scene, servers.names, servers.save)
    await scene.flow(200)
    scene.hit()
    await _restarted_after(scene, servers.names, _without_last(servers.lose), later="n3")
    await scene.flow(100)


def _without_last(step: Callable[[str], None]) -> Callable[[str], None]:
    return lambda name: None if name == "n3" else step(name)


def bucket_restored(bucket: str) -> Callable[[Scene], Awaitable[None]]:
    """A bucket of the mesh is set back to what it held before the app was deployed."""

    async def play(scene: Scene) -> None:
        servers = scene.stage.servers
        await _restarted_after(scene, ["n1"], servers.save)
        await scene.stage.mended(scene.outside)
        await scene.know_managers()
        await scene.outside.service.deploy(scene.text, by="chaos")
        await scene.under_load()
        scene.hit()
        await _restarted_after(scene, ["n1"], lambda name: servers.lose(name, f"KV_{bucket}"))
        await scene.flow(200)

    return play


async def _restarted_after(
    scene: Scene, names: Sequence[str], step: Callable[[str], None], later: str = ""
) -> None:
    """Kill servers, take a step for each, and start them; one of them after some more events."""
    servers = scene.stage.servers
    for name in names:
        await asyncio.to_thread(servers.kill, name)
    for name in names:
        await asyncio.to_thread(step, name)
    if later:
        for name in names:
            if name != later:
                servers.start(name)
        await scene.flow(50)
    await scene.stage.mend_servers()


async def store_away(scene: Scene) -> None:
    """The directory of ``state.store`` can't be reached; an app is removed, a session killed."""
    store = scene.stage.store
    name = f"{scene.name}Other"
    await scene.outside.service.deploy(_OTHER.format(name=name), by="chaos")
    await scene.outside.until_running(name)
    scene.hit()
    away = store.with_name("away")
    store.rename(away)
    store.write_text("no directory")
    try:
        await scene.outside.service.undeploy(name)
        await scene.flow(200)
        scene.stage.processes.kill_session(scene.holder)
        await scene.passing(10.0)
        await scene.led_by(scene.leader)
    finally:
        store.unlink()
        away.rename(store)
    gone = lambda: scene.outside.view.snapshot().app(name) is None  # noqa: E731
    await scene.outside.until(f"{name} is gone", gone)
    await scene.outside.until_running(scene.name)
    await scene.flow(100)


async def server_disk_full(scene: Scene) -> None:
    """NATS can't store anything for a while."""
    servers, disks = scene.stage.servers, scene.stage.disks
    scene.hit()
    disks.fill(servers.store("n1"))
    try:
        await scene.passing(15.0)
    finally:
        disks.free()
    if await _is_stuck(scene):
        # A server that has met a full disk stores nothing until it is started again.
        await asyncio.to_thread(servers.kill, "n1")
        await scene.stage.mend_servers()
    await scene.flow(200)


async def _is_stuck(scene: Scene) -> bool:
    before = scene.published
    await scene.passing(5.0)
    return scene.published <= before + 1


async def worker_disk_full(scene: Scene) -> None:
    """Workers can't store their local state for a while."""
    disks = scene.stage.disks
    scene.hit()
    disks.fill(scene.stage.directory / "state")
    try:
        await scene.flow(500)
    finally:
        disks.free()
    with contextlib.suppress(MeshError):
        await scene.outside.until_running(scene.name)
    await scene.flow(100)
    if scene.published < 500:
        raise ScenarioError("the load has ended")
