"""Starts of instances that may fail: a failure is reported, and the start repeated after a rest."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mesh.logs import fields
from mesh.model.cluster import InstanceState, InstanceStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mesh.clock import Clock
    from mesh.control.retries import Retries
    from mesh.model.cluster import Assignment

log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class FailedStarts:
    """Repeats the starts of one session; its other instances continue meanwhile."""

    _worker: str
    _retries: Callable[[], Retries]
    _report: Callable[[InstanceStatus], None]
    _clock: Clock
    #: By name of an instance that is being started: set to try no more.
    _stops: dict[str, asyncio.Event] = field(default_factory=dict)

    def give_up(self, name: str) -> None:
        """Start an instance no more if its start has failed."""
        if name in self._stops:
            self._stops[name].set()

    async def repeat(self, assignment: Assignment, start: Callable[[], Awaitable[None]]) -> None:
        """Start an instance, until it succeeds or is given up; ``STOPPED`` is reported then."""
        name, retries = assignment.instance, self._retries()
        stop = self._stops[name] = asyncio.Event()
        try:
            while not stop.is_set():
                try:
                    return await start()
                except Exception as error:
                    log.exception("instance not started", extra=fields(instance=name))
                    retries = retries.failed(self._clock.monotonic_s())
                    reason = f"{error}" or type(error).__name__
                    self._say(assignment, InstanceState.RETRYING, retries, reason)
                with suppress(TimeoutError):
                    async with asyncio.timeout(retries.rest_s):
                        await stop.wait()
            self._say(assignment, InstanceState.STOPPED, retries)
        finally:
            del self._stops[name]

    def _say(
        self,
        assignment: Assignment,
        state: InstanceState,
        retries: Retries,
        error: str | None = None,
    ) -> None:
        at_ms = self._clock.wall_ms()
        is_resting = state is InstanceState.RETRYING
        self._report(
            InstanceStatus(
                assignment.instance,
                assignment.app,
                self._worker,
                assignment.epoch,
                state,
                at_ms,
                error,
                restarts=retries.failures,
                retry_at_ms=at_ms + round(retries.rest_s * 1000) if is_resting else None,
            )
        )
