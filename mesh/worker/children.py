"""The agent's two children: the session with Spark, and the connector host.

For the agent they are one process.  Instances with connectors go to the host, all others to the
session.  The host starts with its first instance.  If it ends, another one gets the instances that
it should run, in the same epoch: the ended one can't write any more.  A worker without Spark has
the host alone.

The session takes one line per command and answers with one per reply.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from mesh.clock import SystemClock
from mesh.control.retries import Retries
from mesh.errors import MeshError
from mesh.files import scratch
from mesh.functions import script_switch
from mesh.model.cluster import InstanceState, InstanceStatus
from mesh.processes.bounded_process import die_with_parent
from mesh.processes.signals import end
from mesh.telemetry import traces
from mesh.telemetry.logs import fields
from mesh.worker import state_directory, store_secrets
from mesh.worker.protocol import (
    Ready,
    Reply,
    Report,
    SessionConfig,
    StartInstance,
    StopInstance,
    config_line,
    from_line,
    to_line,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from mesh.clock import Clock
    from mesh.worker.protocol import Command


log = logging.getLogger(__name__)

#: Module of the host, which is not imported here: it is above this package.
HOST: Final = "mesh.receiver"
_RETRY_S: Final = 0.5
_RETRY_MAX_S: Final = 10.0

#: Time for a session to stop its queries before it is killed.
STOP_S = 8.0


#: Beginnings of variables that give access: to NATS, to the REST API, to a store of states.
_LOGINS: Final = (
    "MESH_NATS_", "MESH_TOKEN", "MESH_PASSWORD", "MESH_NEW_PASSWORD",
)  # fmt: skip


def inherited() -> dict[str, str]:
    """This process's environment without logins: apps may run Python in the session."""
    return {name: v for name, v in os.environ.items() if not name.startswith(_LOGINS)}


class SessionProcess:
    """Starts and restarts the session; at most one runs at a time."""

    def __init__(self, config: SessionConfig, command: Sequence[str] = ()) -> None:
        self._config = config
        self._command = command or (sys.executable, "-m", "mesh.worker.session_process")
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The process id of the session, while it runs."""
        return self._process.pid if self._process is not None else None

    def instances(self) -> Path | None:
        """The directory of the instances' states; None while there is none."""
        if self.pid is None:
            return None
        return state_directory.instances_of(Path(self._config.directory), self.pid)

    async def start(self) -> None:
        """Start a session; remains of an earlier one are killed."""
        await self._end()
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**inherited(), **environment_of(self._config)},
            # Its own group, so that its JVM and Python workers can be killed with it.
            start_new_session=True,
            preexec_fn=die_with_parent(),
            limit=1 << 24,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(config_line(self._config))

    def send(self, command: Command) -> None:
        """Send a command; it is lost if the session has ended, as then its replies end too.

        It never waits: commands are few, and a session that doesn't read them is killed in the end.
        """
        if self._process is None:
            return
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(to_line(command))

    async def replies(self) -> AsyncIterator[Reply]:
        """The session's replies, until it ends; a line that can't be read is passed over."""
        assert self._process is not None
        stdout = self._process.stdout
        assert stdout is not None
        while True:
            try:
                line = await stdout.readline()
                if not line:
                    return
                reply = from_line(line)
            # The reader drops a line that is longer than its limit, and raises ValueError.
            except (MeshError, ValueError) as error:
                log.error("reply of a child process not read", extra=fields(error=error))
                continue
            if isinstance(reply, Reply):
                yield reply

    def memory_bytes(self) -> int:
        """Memory of the session and all its children; 0 if it has ended."""
        if self._process is None:
            return 0
        try:
            root = psutil.Process(self._process.pid)
            return sum(p.memory_info().rss for p in (root, *root.children(recursive=True)))
        except psutil.Error:
            return 0

    async def stop(self) -> None:
        """Stop the session's queries and end it; by force after a timeout."""
        if self._process is None or self._process.stdin is None:
            return
        self._process.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                while await self._drain():
                    continue
                await self._process.wait()
        await self._end()

    async def kill(self) -> None:
        """End the session at once, with all its processes."""
        await self._end()

    async def _drain(self) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        return await self._process.stdout.read(1 << 16)

    async def _end(self) -> None:
        """Kill the session's whole group: a stuck JVM would otherwise outlive the session."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        # One that was killed has left its scratch files.
        await asyncio.to_thread(state_directory.remove_ended, Path(self._config.directory))
        await asyncio.to_thread(scratch.sweep)
        self._process = None


def environment_of(config: SessionConfig) -> dict[str, str]:
    """The variables of a session, which its JVM and Python workers inherit."""
    settings = config.settings
    allowed = script_switch.switch(settings.functions.python)
    stores = store_secrets.variables(settings)
    spans = traces.variables(settings.traces, config.worker)
    return {**allowed, **stores, **spans}


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
