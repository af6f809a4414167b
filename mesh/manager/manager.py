"""A manager: it beats, stands for election, and keeps the cluster as desired while it leads.

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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mesh import machine
from mesh.clock import SystemClock
from mesh.control import election, membership, reconcile
from mesh.control.journal import Entry, of_action, of_failure
from mesh.jetstream import apply, channels, kv
from mesh.jetstream.advisories import Advisories
from mesh.jetstream.connection import UNREACHABLE, close, connect, connector_options
from mesh.jetstream.journal import Journal
from mesh.jetstream.pieces import Pieces, open_pieces
from mesh.jetstream.watch import ClusterView
from mesh.logs import fields
from mesh.manager.folder import AppsFolder
from mesh.manager.service import ManagerService
from mesh.model import codec, names
from mesh.model.cluster import LeaseRecord, NodeRecord, Role
from mesh.signals import end, until_signal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from nats.aio.client import Client

    from mesh.clock import Clock
    from mesh.settings import Settings

    Serve = Callable[[ManagerService, Callable[[str], None]], Coroutine[Any, Any, None]]

log = logging.getLogger(__name__)


@dataclass
class Manager:
    """The loops of one manager."""

    id: str
    settings: Settings
    client: Client
    view: ClusterView
    clock: Clock
    journal: Journal
    pieces: Pieces
    #: ``host:port`` of the API, once it listens.
    address: str = ""
    incarnation: str = field(default_factory=lambda: secrets.token_hex(4))
    _leads: bool = False

    async def beat(self) -> None:
        """Renew this manager's record, for ever."""
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
        return self._leads

    async def lead(self) -> None:
        """Stand for election, and decide while elected, for ever."""
        while True:
            news = self.view.news
            wake_s = await self._elect()
            if self._leads:
                await self._reconcile()
                wake_s = min(wake_s, self._deadline_s())
            if self.view.news == news:
                wait_s = max(0.01, wake_s - self.clock.monotonic_s())
                await self.view.news_after(news, wait_s)

    async def resign(self) -> None:
        """Give the lease up, so that another manager leads at once, and leave."""
        js = self.client.jetstream()
        lease = self.view.snapshot().lease
        with contextlib.suppress(kv.RevisionConflict, *UNREACHABLE):
            if self._leads and lease is not None:
                await kv.write(
                    js,
                    names.CONTROL_BUCKET,
                    names.LEASE_KEY,
                    None,
                    revision=lease.revision,
                )
                self.journal.note(Entry("gave the lease up", "it ends"))
            await kv.put(js, names.CONTROL_BUCKET, names.node_key(Role.MANAGER, self.id), None)

    async def _elect(self) -> float:
        """Do what the election asks for; when to look again at the latest."""
        ttl_s = self.settings.manager.lease_ttl_s
        lease = self.view.snapshot().lease
        now_s = self.clock.monotonic_s()
        decision = election.decide(lease, self.id, now_s, ttl_s)
        wake_s = now_s + ttl_s / 3
        match decision:
            case election.StandBy(until_s):
                wake_s = until_s
            case election.Acquire(revision, term) | election.Renew(revision, term):
                record = LeaseRecord(self.id, term)
                try:
                    async with asyncio.timeout(ttl_s):
                        taken = await kv.write(
                            self.client.jetstream(),
                            names.CONTROL_BUCKET,
                            names.LEASE_KEY,
                            codec.encode(record),
                            revision=revision,
                        )
                    self.view.took_write(names.CONTROL_BUCKET, names.LEASE_KEY, record, taken)
                except kv.RevisionConflict:
                    # Somebody was quicker; the watch brings what they wrote.
                    wake_s = now_s + 0.1
                except UNREACHABLE as error:
                    log.debug("lease not written", extra=fields(error=error))
                    wake_s = now_s + 0.2
        leads = election.holds(self.view.snapshot(), self.id, ttl_s)
        if leads != self._leads:
            self._leads = leads
            revision = lease.revision if lease is not None else 0
            text = "leads" if leads else "no longer leads"
            self.journal.note(Entry(text, lease_revision=revision))
            log.info("leads" if leads else "no longer leads", extra=fields(manager=self.id))
        return wake_s

    async def _reconcile(self) -> None:
        snapshot = self.view.snapshot()
        lease = snapshot.lease
        assert lease is not None
        for action in reconcile.decide(snapshot, self.settings):
            # Decided before a pause, and nobody took the lease meanwhile, so that it still fences:
            # what was decided may be wrong by now.
            if not election.holds(self.view.snapshot(), self.id, self.settings.manager.lease_ttl_s):
                self.journal.note(of_failure(action, lease.revision, "its lease had lapsed"))
                return
            # What follows from it may be noted before its own answer is here.
            at_ms = self.clock.wall_ms()
            try:
                await apply.apply(action, self.client, self.view, lease.revision, self.pieces)
                self.journal.note(replace(of_action(action, lease.revision), at_ms=at_ms))
            except kv.RevisionConflict as conflict:
                self.journal.note(
                    of_failure(action, lease.revision, "another manager holds the lease")
                )
                log.info("decision is obsolete", extra=fields(conflict=conflict))
                return
            except UNREACHABLE as error:
                self.journal.note(of_failure(action, lease.revision, "NATS did not answer"))
                log.warning("action not performed", extra=fields(action=action, error=error))
                return

    def _deadline_s(self) -> float:
        """When the passing of time alone changes what the leader decides."""
        return reconcile.next_deadline_s(self.view.snapshot(), self.settings)


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
    pieces = open_pieces(client.jetstream(), settings.state.store, reading)
    manager = Manager(name, settings, client, view, clock, journal, pieces)
    service = ManagerService(client, view, settings, clock, name=name, notes=journal)
    advisories = Advisories(client, view, journal, lambda: manager.leads)
    await advisories.start()
    tasks = [asyncio.create_task(manager.beat()), asyncio.create_task(manager.lead())]
    if settings.manager.apps_dir:
        folder = AppsFolder(Path(settings.manager.apps_dir), service, journal.note, name)
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
