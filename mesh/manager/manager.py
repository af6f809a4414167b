"""A manager: the shell of ``mesh.control.manager_state``, and its heartbeats.

Any number may run.  Each serves the API; one leads.  A manager that can't reach NATS leads nothing:
its lease lapses, and what it writes late is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mesh import machine
from mesh.clock import SystemClock
from mesh.control import membership
from mesh.control.journal import JournalEntry
from mesh.control.manager_state import (
    ActionFailed,
    ActionPerformed,
    Event,
    Failure,
    LeaseRefused,
    LeaseUnanswered,
    LeaseWritten,
    Looked,
    ManagerState,
    Perform,
    Wait,
    WriteLease,
)
from mesh.jetstream import apply, channels, kv
from mesh.jetstream.advisories import Advisories
from mesh.jetstream.blob_store import BlobStore, open_blob_store
from mesh.jetstream.connection import UNREACHABLE, close, connect, connector_options
from mesh.jetstream.journal import Journal
from mesh.jetstream.watch import ClusterView
from mesh.logs import fields
from mesh.manager.folder import AppsFolder
from mesh.manager.service import ManagerService
from mesh.model import codec, names
from mesh.model.cluster import NodeRecord, Role
from mesh.signals import end, until_signal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from nats.aio.client import Client

    from mesh.clock import Clock
    from mesh.control.actions import Action
    from mesh.settings import Settings

    Serve = Callable[[ManagerService, Callable[[str], None]], Coroutine[Any, Any, None]]

log = logging.getLogger(__name__)


@dataclass
class Manager:
    """The shell of one manager's state machine."""

    id: str
    settings: Settings
    client: Client
    view: ClusterView
    clock: Clock
    journal: Journal
    pieces: BlobStore
    #: ``host:port`` of the API, once it listens.
    address: str = ""
    incarnation: str = field(default_factory=lambda: secrets.token_hex(4))
    state: ManagerState = field(init=False)

    def __post_init__(self) -> None:
        self.state = ManagerState(self.id, self.settings)

    async def beat(self) -> None:
        """Renew this manager's record, without end."""
        js = self.client.jetstream()
        load = machine.Load()
        number = 0
        while True:
            number += 1
            record = NodeRecord(
                id=self.id,
                role=Role.MANAGER,
                incarnation=self.incarnation,
                address=self.address,
                beat=number,
                pid=os.getpid(),
                ready=True,
                metrics=load.measure(self.clock.monotonic_s()),
            )
            key = names.node_key(Role.MANAGER, self.id)
            try:
                await kv.put(js, names.CONTROL_BUCKET, key, codec.encode(record))
            except UNREACHABLE as error:
                log.debug("heartbeat not stored", extra=fields(error=error))
            await asyncio.sleep(self.settings.worker.ttl_s / membership.BEATS_PER_TERM)

    @property
    def leads(self) -> bool:
        """Whether it held the lease when it last looked."""
        return self.state.leads

    async def lead(self) -> None:
        """Compete for the lease, and act while holding it, without end."""
        news = self.view.news
        event: Event = Looked()
        while True:
            did_lead = self.leads
            instructions = self.state.handle(event, self.view.snapshot(), self.clock.wall_ms())
            if self.leads != did_lead:
                log.info(
                    "leads" if self.leads else "no longer leads", extra=fields(manager=self.id)
                )
            for instruction in instructions:
                match instruction:
                    case JournalEntry():
                        self.journal.note(instruction)
                    case WriteLease():
                        event = await self._write_lease(instruction)
                    case Perform(action, lease_revision):
                        event = await self._perform(action, lease_revision)
                    case Wait(until_s):
                        wait_s = until_s - self.clock.monotonic_s()
                        await self.view.news_after(news, max(0.0, wait_s))
                        news, event = self.view.news, Looked()

    async def resign(self) -> None:
        """Give the lease up, so that another manager leads at once, and leave."""
        js = self.client.jetstream()
        lease = self.view.snapshot().lease
        with contextlib.suppress(kv.RevisionConflict, *UNREACHABLE):
            if self.leads and lease is not None:
                await kv.write(
                    js,
                    names.CONTROL_BUCKET,
                    names.LEASE_KEY,
                    None,
                    revision=lease.revision,
                )
                self.journal.note(JournalEntry("gave the lease up", "it ends"))
            await kv.put(js, names.CONTROL_BUCKET, names.node_key(Role.MANAGER, self.id), None)

    async def _write_lease(self, asked: WriteLease) -> Event:
        js, bucket, key = self.client.jetstream(), names.CONTROL_BUCKET, names.LEASE_KEY
        try:
            async with asyncio.timeout(asked.limit_s):
                data = codec.encode(asked.record)
                taken = await kv.write(js, bucket, key, data, revision=asked.revision)
        except kv.RevisionConflict:
            return LeaseRefused()
        except UNREACHABLE as error:
            log.debug("lease not written", extra=fields(error=error))
            return LeaseUnanswered()
        self.view.took_write(bucket, key, asked.record, taken)
        return LeaseWritten()

    async def _perform(self, action: Action, lease_revision: int) -> Event:
        if not self.state.may_write(self.view.snapshot()):
            return ActionFailed(Failure.LAPSED)
        try:
            await apply.apply(action, self.client, self.view, lease_revision, self.pieces)
        except kv.RevisionConflict as conflict:
            log.info("decision is obsolete", extra=fields(conflict=conflict))
            return ActionFailed(Failure.REFUSED)
        except UNREACHABLE as error:
            log.warning("action not performed", extra=fields(action=action, error=error))
            return ActionFailed(Failure.UNANSWERED)
        return ActionPerformed()


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[tuple[Manager, ManagerService]]:
    """A manager at work, with the service that an API offers."""
    clock = SystemClock()
    name = settings.manager.id or f"{socket.gethostname()}-{os.getpid()}"
    client = await connect(settings.nats, f"mesh manager {name}")
    await channels.ensure_buckets(client.jetstream(), settings.channels)
    view = ClusterView(client, clock, quiet_s=settings.worker.ttl_s / 2)
    await view.start()
    journal = Journal(client, f"manager {name}", clock)
    journal.start()
    reading = connector_options(settings.nats)
    pieces = open_blob_store(client.jetstream(), settings.state.store, reading)
    manager = Manager(name, settings, client, view, clock, journal, pieces)
    service = ManagerService(client, view, settings, clock, name=name, notes=journal)
    advisories = Advisories(client, view, journal, lambda: manager.leads)
    await advisories.start()
    tasks = [asyncio.create_task(manager.beat()), asyncio.create_task(manager.lead())]
    if settings.manager.apps_dir:
        path, variables = Path(settings.manager.apps_dir), settings.manager.apps_variables
        folder = AppsFolder(path, service, journal.note, name, variables)
        tasks.append(asyncio.create_task(folder.watch()))
    try:
        yield manager, service
    finally:
        await end(tasks)
        await advisories.stop()
        await manager.resign()
        await journal.stop()
        await view.stop()
        await close(client)


async def run(settings: Settings, serve: Serve) -> None:
    """Be a manager until SIGTERM or SIGINT.

    Args:
        settings: all of them.
        serve: serves the API; given the service and what to call with the address once it listens.
    """
    async with running(settings) as (manager, service):

        def announce(address: str) -> None:
            manager.address = address

        await until_signal(serve(service, announce))
