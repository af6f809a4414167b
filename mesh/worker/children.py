"""The agent's two children: the session with Spark, and the connector host.

For the agent they are one process.  Instances with connectors go to the host, all others to the
session.  The host starts with its first instance.  If it ends, another one gets the instances that
it should run, in the same epoch: the ended one can't write any more.  A worker without Spark has
the host alone.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from mesh.clock import SystemClock
from mesh.control.retries import Retries
from mesh.model.cluster import InstanceState, InstanceStatus
from mesh.processes.signals import end
from mesh.telemetry.logs import fields
from mesh.worker.child import SessionProcess
from mesh.worker.protocol import Ready, Report, StartInstance, StopInstance

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mesh.clock import Clock
    from mesh.worker.protocol import Command, Reply, SessionConfig

log = logging.getLogger(__name__)

#: Module of the host, which is not imported here: it is above this package.
HOST: Final = "mesh.receiver"
_RETRY_S: Final = 0.5
_RETRY_MAX_S: Final = 10.0


class Children(SessionProcess):
    """A session that has a connector host beside it; or that host alone."""

    def __init__(self, config: SessionConfig, host: SessionProcess) -> None:
        super().__init__(config)
        self._host = host
        self._has_spark = config.settings.worker.spark
        #: The commands that started the instances of the host, by name.
        self._connectors: dict[str, StartInstance] = {}
        #: Stops that the host has not reported.
        self._ending: dict[str, StopInstance] = {}
        self._replies: asyncio.Queue[Reply | None] = asyncio.Queue()
        self._running: asyncio.Task[None] | None = None
        self._is_up = False
        #: Whether the agent knows that the host of a worker without Spark is ready.
        self._is_announced = True

    @property
    def pid(self) -> int | None:
        """The process id of the session, or of the host of a worker without Spark."""
        return super().pid if self._has_spark else self._host.pid

    async def start(self) -> None:
        """Start the session, or the host of a worker without Spark."""
        if self._has_spark:
            await super().start()
        else:
            await self._end_host(is_calm=False)
            self._is_announced = False
            self._running = asyncio.create_task(self._run_host())

    def send(self, command: Command) -> None:
        """Send a command to the child that it is for."""
        match command:
            case StartInstance(assignment, group) if group.connectors:
                self._connectors[assignment.instance] = command
                self._ending.pop(assignment.instance, None)
                if self._running is None:
                    self._running = asyncio.create_task(self._run_host())
                elif self._is_up:
                    self._host.send(command)
            case StopInstance(instance) if instance in self._connectors:
                self._ending[instance] = command
                if self._is_up:
                    self._host.send(command)
                else:
                    self._stopped(instance)
            case _:
                super().send(command)

    async def replies(self) -> AsyncIterator[Reply]:
        """The replies of both, until the session ends."""

        async def forward() -> None:
            try:
                async for reply in super(Children, self).replies():
                    self._replies.put_nowait(reply)
                await self._end_host(is_calm=False)
            except Exception:
                log.exception("replies of the session not read")
            # The agent takes all instances for ended.
            self._replies.put_nowait(None)

        forwarding = [asyncio.create_task(forward())] if self._has_spark else []
        try:
            while (reply := await self._replies.get()) is not None:
                yield reply
        finally:
            await end(forwarding)

    def memory_bytes(self) -> int:
        """Memory of both with all their children."""
        return super().memory_bytes() + self._host.memory_bytes()

    async def stop(self) -> None:
        """Stop the instances of both, and end them."""
        await self._end_host(is_calm=True)
        await super().stop()

    async def kill(self) -> None:
        """End both at once."""
        await self._end_host(is_calm=False)
        await super().kill()
        if not self._has_spark:
            self._replies.put_nowait(None)

    async def _end_host(self, *, is_calm: bool) -> None:
        """End the host; its instances end with those of the session, and are started again."""
        running, self._running, self._is_up = self._running, None, False
        self._connectors.clear()
        self._ending.clear()
        if running is not None:
            await end([running])
        await (self._host.stop() if is_calm else self._host.kill())

    async def _run_host(self) -> None:
        """Run the host, one after the other, until cancelled."""
        clock = SystemClock()
        retries = Retries(_RETRY_S, _RETRY_MAX_S)
        while True:
            try:
                retries = await self._run_host_once(retries, clock)
            # Its start may fail for lack of memory or processes.
            except Exception:
                log.exception("connector host failed")
            self._is_up = False
            for instance in list(self._ending):
                self._stopped(instance)
            retries = retries.failed(clock.monotonic_s())
            log.warning("connector host ended, starting another", extra=fields(rest=retries.rest_s))
            await asyncio.sleep(retries.rest_s)

    async def _run_host_once(self, retries: Retries, clock: Clock) -> Retries:
        """Run a host until it ends; the retries then."""
        await self._host.start()
        async for reply in self._host.replies():
            match reply:
                case Ready(_, started_in_s):
                    log.info("connectors ready", extra=fields(started_in_s=started_in_s))
                    self._is_up = True
                    if not self._is_announced:
                        self._is_announced = True
                        self._replies.put_nowait(reply)
                    retries = retries.running(clock.monotonic_s())
                    commands: list[Command] = [*self._connectors.values(), *self._ending.values()]
                    for command in commands:
                        self._host.send(command)
                case Report(status):
                    if status.state is InstanceState.STOPPED:
                        self._forget(status.instance, status.epoch)
                    self._replies.put_nowait(reply)
                case _:
                    log.error("the host has sent something else", extra=fields(reply=reply))
        return retries

    def _forget(self, instance: str, epoch: int) -> None:
        started = self._connectors.get(instance)
        if started is not None and started.assignment.epoch <= epoch and instance in self._ending:
            del self._connectors[instance]
            del self._ending[instance]

    def _stopped(self, instance: str) -> None:
        """Report an instance that no host runs as stopped."""
        started = self._connectors.pop(instance)
        self._ending.pop(instance, None)
        self._replies.put_nowait(Report(stopped_status(started, self._config.worker)))


def stopped_status(started: StartInstance, worker: str) -> InstanceStatus:
    """The report of an instance that has stopped with its host; its position is a marker."""
    assignment = started.assignment
    return InstanceStatus(
        instance=assignment.instance,
        app=assignment.app,
        worker=worker,
        epoch=assignment.epoch,
        state=InstanceState.STOPPED,
        at_ms=SystemClock().wall_ms(),
        settled=True,
    )
