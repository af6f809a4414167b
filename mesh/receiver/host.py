"""Connector host: ``python -m mesh.receiver``, a child of the agent beside the session.

It reads commands from standard input and writes reports to standard output, as the session does
(``mesh.worker.protocol``).  Its instances are tasks of one event loop; it has no Spark.  Arrow and
what instances need otherwise is imported for the first of them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mesh.clock import SystemClock
from mesh.connect.access import access_of
from mesh.connect.references import references_of
from mesh.control.retries import Retries
from mesh.jetstream.connection import close, connect, while_open
from mesh.jetstream.secret_store import SecretStore
from mesh.model.nats_roles import NatsRole, inbox
from mesh.processes.imports import import_arrow
from mesh.receiver.environment import HostEnvironment
from mesh.telemetry import logs, traces
from mesh.telemetry.logs import fields
from mesh.worker.protocol import (
    Ready,
    Replies,
    Report,
    SessionConfig,
    StartInstance,
    StopInstance,
    from_line,
    read_config,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.client import Client

    from mesh.model.app import GroupSpec
    from mesh.model.cluster import Assignment, InstanceStatus
    from mesh.receiver.instance import ConnectorInstance
    from mesh.settings import NatsSettings, Settings

log = logging.getLogger(__name__)

#: The first delay of a failed instance or sink, seconds.
_RETRY_S: Final = 0.5


def nats_of(settings: Settings) -> NatsSettings:
    """The connection of connectors to the mesh's servers: with a login of their own, if any."""
    seed_file, worker = settings.receiver.nkey_seed_file, settings.nats
    if not seed_file:
        return worker
    return replace(
        worker, user="", password="", creds="", nkey_seed_file=seed_file,
        inbox_prefix=inbox(NatsRole.CONNECTOR),
    )  # fmt: skip


def environment_of(
    config: SessionConfig, client: Client, report: Callable[[InstanceStatus], None]
) -> HostEnvironment:
    """The environment of a host's instances, by the settings."""
    settings = config.settings.receiver
    return HostEnvironment(
        client,
        SystemClock(),
        config.worker,
        access_of(config.settings),
        lambda: references_of(settings.refs_file),
        lambda: Retries(_RETRY_S, settings.retry_max_s),
        report,
        SecretStore(client.jetstream(), config.settings.secrets.key_file).values,
    )


def instance_of(
    environment: HostEnvironment, group: GroupSpec, assignment: Assignment
) -> ConnectorInstance:
    """The instance of a group with one source or sink."""
    from mesh.connect import registry
    from mesh.connect.spec import Role as ConnectorRole
    from mesh.receiver.sinks import SinkInstance
    from mesh.receiver.sources import PullInstance, ServerInstance

    if group.inputs:
        return SinkInstance(environment, group, assignment)
    role, _, name = group.connectors[0].partition(" ")
    spec = registry.find(ConnectorRole(role), name)
    is_pull = spec is not None and hasattr(spec.load(), "read")
    return (PullInstance if is_pull else ServerInstance)(environment, group, assignment)


class Host:
    """The instances of one worker's host; an instance's commands are carried out in order."""

    def __init__(self, environment: HostEnvironment) -> None:
        self._environment = environment
        self._running: dict[str, ConnectorInstance] = {}
        self._last: dict[str, asyncio.Task[None]] = {}

    def handle(self, line: bytes) -> None:
        """Begin to carry out one command."""
        match from_line(line):
            case StartInstance(assignment, group):
                self._then(assignment.instance, self._start, group, assignment)
            case StopInstance(instance, epoch, _, is_removed):
                self._then(instance, self._stop, instance, epoch, is_removed)
            case other:
                log.error("host was sent something else", extra=fields(command=other))

    def _then(self, name: str, act: Callable[..., object], *arguments: object) -> None:
        before = self._last.get(name)

        async def run() -> None:
            if before is not None:
                await asyncio.wait([before])
            try:
                result = act(*arguments)
                if asyncio.iscoroutine(result):
                    await result
            except Exception as error:
                log.exception("a command failed", extra=fields(instance=name, error=error))

        self._last[name] = asyncio.create_task(run())

    async def _start(self, group: GroupSpec, assignment: Assignment) -> None:
        await self._stop(assignment.instance, assignment.epoch - 1)
        if assignment.instance not in self._running:
            import_arrow()
            from mesh.receiver.instance import UnloadedInstance

            try:
                instance = instance_of(self._environment, group, assignment)
            # An import of code of others.
            except Exception as error:
                log.exception("connector not loaded", extra=fields(group=group.name))
                instance = UnloadedInstance(self._environment, group, assignment, error)
            self._running[assignment.instance] = instance
            instance.start()

    async def _stop(self, name: str, epoch: int, is_removed: bool = False) -> None:
        running = self._running.get(name)
        if running is not None and running.assignment.epoch <= epoch:
            await running.stop(is_removed=is_removed)
            del self._running[name]

    async def stop_all(self) -> None:
        """Stop every instance and wait for it."""
        for task in self._last.values():
            await asyncio.wait([task])
        await asyncio.gather(*(instance.stop() for instance in self._running.values()))
        self._running.clear()


async def run(config: SessionConfig, replies: Replies) -> None:
    """Connect, report that the host is ready, and carry out commands until the input ends."""
    clock = SystemClock()
    started_s = clock.monotonic_s()
    client = await connect(nats_of(config.settings), name=f"mesh connectors {config.worker}")
    environment = environment_of(config, client, lambda status: replies.send(Report(status)))
    host = Host(environment)
    replies.send(Ready("", round(clock.monotonic_s() - started_s, 1)))
    reader = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while line := await while_open(client, reader.readline()):
        host.handle(line)
    await host.stop_all()
    await close(client)


def main() -> None:
    """Entry point of the process."""
    # Its files hold events.
    os.umask(0o077)
    config = read_config()
    logs.configure(config.settings.log.level, config.settings.log.style)
    # Lines of a request each are of no use to an operator.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    asyncio.run(run(config, Replies()))
    traces.flush()
