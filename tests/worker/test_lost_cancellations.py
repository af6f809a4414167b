"""Tasks that end although ``wait_for`` of Python 3.11 has lost their first cancellation.

It does so when the result comes in the same turn of the loop; nats-py waits with it.
"""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from mesh.clock import SystemClock
from mesh.jetstream.mirror import Mirror
from mesh.model.app import GroupKind, GroupSpec
from mesh.model.cluster import Assignment, Standby
from mesh.receiver.instance import ConnectorInstance
from mesh.settings import Settings
from mesh.worker.questions import Questions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

#: Nothing that ends here needs a server.
NONE: Any = None


class Connector(ConnectorInstance):
    async def _run(self) -> None:
        """Nothing is run."""


def mirror(directory: Path, task: asyncio.Task[None]) -> Callable[[], Awaitable[None]]:
    standby = Standby("A-g-1", "A", "g", 1, 1, "i1", "w2", "w2-1", 5)
    made = Mirror(NONE, NONE, standby, [], directory, print, SystemClock(), period_s=1.0)
    made.task = task
    return made.stop


def connector(_: Path, task: asyncio.Task[None]) -> Callable[[], Awaitable[None]]:
    group = GroupSpec("A", "g", 1, "", (), (), stateful=False, kind=GroupKind.SINK)
    environment: Any = SimpleNamespace(of_app=lambda *_: NONE)
    assignment = Assignment("A-g-1", "A", "g", 1, "i1", "w1", 1, lease_revision=1)
    made = Connector(environment, group, assignment)
    made._task = task
    return made.abandon


def questions(directory: Path, task: asyncio.Task[None]) -> Callable[[], Awaitable[None]]:
    made = Questions(NONE, "w1", Settings(), SystemClock(), lambda: directory, lambda _: "")
    made._tasks.add(task)
    return made.stop


@pytest.mark.parametrize("of", [mirror, connector, questions])
async def test_it_ends(
    of: Callable[[Path, asyncio.Task[None]], Callable[[], Awaitable[None]]], tmp_path: Path
) -> None:
    asked = asyncio.Event()

    async def forgetful() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait_for(asked.wait(), 60)
        await asyncio.Event().wait()

    task = asyncio.create_task(forgetful())
    # It has begun to wait.
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await of(tmp_path, task)()
    assert task.cancelled()
