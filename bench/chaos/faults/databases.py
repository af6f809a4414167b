"""Faults of a database that an aggregation is kept in, and of the worker that writes it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bench.chaos.scene import Scene

#: The group of the aggregation.
STORED: Final = "stored-1"
#: How long the database is away, seconds: longer than a statement may take.
_AWAY_S: Final = 25.0


async def restarted(scene: Scene) -> None:
    """The database is killed and started again at once."""
    scene.hit()
    await asyncio.to_thread(scene.database.kill)
    await asyncio.to_thread(scene.database.start)
    await scene.flow(300)


async def away(scene: Scene) -> None:
    """There is no database for a while; its writer waits, and all others continue."""
    scene.hit()
    await asyncio.to_thread(scene.database.kill)
    await scene.counted(50)
    await scene.passing(_AWAY_S)
    await asyncio.to_thread(scene.database.start)
    await scene.flow(300)


async def writer_killed(scene: Scene) -> None:
    """The worker that writes the database is killed, and another one takes over."""
    # Some seconds of the events' time, so that rows are on their way.
    await scene.flow(200)
    worker = scene.worker_of(STORED)
    await scene.kill(worker)
    await scene.moved(worker)
    await scene.flow(300)


async def both_killed(scene: Scene) -> None:
    """Database and writer are killed at once; the database is back first."""
    await scene.flow(200)
    worker = scene.worker_of(STORED)
    await scene.kill(worker)
    await asyncio.to_thread(scene.database.kill)
    await asyncio.to_thread(scene.database.start)
    await scene.moved(worker)
    await scene.flow(300)
