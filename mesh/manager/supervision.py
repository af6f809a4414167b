"""Supervision of long-running tasks: one that ends unasked ends the process, with an error.

A task without which the process still does its job is a ``Restarting`` one: a failure is logged,
and it starts again.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import anyio

from mesh.clock import Clock, SystemClock
from mesh.control.retries import Retries
from mesh.errors import MeshError
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

log = logging.getLogger(__name__)

#: The first rest of a task that failed, and the longest, seconds.
_REST_S: Final = 1.0
_REST_MAX_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Restarting:
    """A task that starts again after it failed or returned, with longer and longer rests."""

    name: str
    work: Callable[[], Awaitable[object]]
    clock: Clock = field(default_factory=SystemClock)
    rest_s: float = _REST_S

    async def __call__(self) -> None:
        """Run the task without end."""
        retries = Retries(self.rest_s, _REST_MAX_S)
        while True:
            retries = retries.running(self.clock.monotonic_s())
            failure: Exception | None = None
            try:
                await self.work()
            except Exception as error:
                failure = error
            retries = retries.failed(self.clock.monotonic_s())
            extra = fields(task=self.name, again_in_s=retries.rest_s)
            log.error("task failed and starts again", extra=extra, exc_info=failure)
            await asyncio.sleep(retries.rest_s)


@asynccontextmanager
async def supervised(
    works: Mapping[str, Callable[[], Awaitable[object]]],
    tasks: Mapping[str, asyncio.Task[Any]] | None = None,
) -> AsyncIterator[None]:
    """Run tasks beside the body; when one of them ends, the body is cancelled.

    Args:
        works: functions to run, by name; they are cancelled when the body ends.
        tasks: tasks that run already, by name; they are not cancelled.

    Raises:
        MeshError: what a task raised, or MESH-C112 if it ended otherwise; what the body raised.
    """
    try:
        async with anyio.create_task_group() as group:
            for name, work in works.items():
                group.start_soon(_run, name, work)
            for name, task in (tasks or {}).items():
                group.start_soon(_watch, name, task)
            yield
            group.cancel_scope.cancel()
    except BaseExceptionGroup as failures:
        raise _first(failures) from failures


async def _run(name: str, work: Callable[[], Awaitable[object]]) -> None:
    try:
        await work()
    except Exception as failure:
        raise _error(name, _first(failure)) from failure
    raise _error(name, None)


async def _watch(name: str, task: asyncio.Task[Any]) -> None:
    await asyncio.wait([task])
    raise _error(name, None if task.cancelled() else task.exception())


def _error(name: str, failure: BaseException | None) -> MeshError:
    """The error that ends the process; the log has the whole of ``failure``."""
    log.error("task ended", extra=fields(task=name), exc_info=failure)
    if isinstance(failure, MeshError):
        return failure
    reason = "It returned." if failure is None else f"{type(failure).__name__}: {failure}."
    return MeshError(
        "MESH-C112",
        f'the manager\'s task "{name}" has ended',
        detail=reason,
        hint="The process ends, so that its service manager starts it again; the log has more.",
    )


def _first(failure: BaseException) -> BaseException:
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure
