"""A manager: the shell of ``mesh.control.manager_state``, and its heartbeats.

Any number may run.  Each serves the API; one leads.  A manager that can't reach NATS leads nothing:
its lease lapses, and what it writes late is refused.

Presence of a manager under its id: the claim of the id, and the heartbeats.

Two processes with one id, by a copied configuration or one that was started twice, would be one
node for all others: the second is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from mesh.clock import SystemClock
from mesh.control import membership
from mesh.control.actions import target_of
from mesh.control.election import ManagerCandidate
from mesh.control.journal import JournalEntry, of_lost_writes
from mesh.control.manager_state import (
    ActionFailed,
    ActionPerformed,
    ActionRefused,
    Event,
    LapsedAction,
    LeaseRefused,
    LeaseUnanswered,
    LeaseWritten,
    ManagerState,
    Observed,
    Perform,
    StartRemoval,
    Wait,
    WriteLease,
)
from mesh.errors import MeshError
from mesh.jetstream import channels, kv, removal
from mesh.jetstream.blob_store import BlobStore, open_blob_store
from mesh.jetstream.connection import (
    UNREACHABLE,
    close,
    connect,
    connector_options,
    no_room,
    while_open,
)
from mesh.jetstream.copies import Advisories, Copies
from mesh.jetstream.evidence import Custody
from mesh.jetstream.history_store import MetricsHistoryStore
from mesh.jetstream.journal import Journal
from mesh.jetstream.watch import ClusterView
from mesh.manager.autoscaling import Autoscaling
from mesh.manager.folder import AppsFolder
from mesh.manager.service import ManagerService
from mesh.manager.supervision import Restarting, supervised
from mesh.manager.tracing import Tracer, open_tracer
from mesh.model import codec, names
from mesh.model.cluster import NodeRecord, NodeRole
from mesh.processes import machine, signals
from mesh.processes.signals import signalled
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

    from anyio.abc import TaskGroup
    from nats.aio.client import Client

    from mesh.clock import Clock
    from mesh.control.actions import RecordAction
    from mesh.settings import Settings, WorkerSettings

    Serve = Callable[[ManagerService, Callable[[str], None]], Coroutine[object, object, None]]


log = logging.getLogger(__name__)

#: Characters of an error in the journal.
_TEXT_MAX: Final = 1000

_BUCKET: Final = names.CONTROL_BUCKET


@dataclass
class Presence:
    """The record of one manager's process."""

    id: str
    client: Client
    view: ClusterView
    clock: Clock
    times: WorkerSettings
    #: ``host:port`` of the API, once it listens.
    address: str = ""
    incarnation: str = field(default_factory=lambda: secrets.token_hex(4))
    #: Of its record, which the next heartbeat replaces.
    _revision: int = 0

    @property
    def candidate(self) -> ManagerCandidate:
        """This process in the election."""
        return ManagerCandidate(self.id, self.incarnation)

    @property
    def _key(self) -> str:
        return names.node_key(NodeRole.MANAGER, self.id)

    async def claim(self) -> None:
        """Wait until the id is free.

        Raises:
            MeshError: MESH-C110 when another process of this id sends heartbeats.
        """
        claim = membership.NameClaim(self.incarnation)
        while True:
            version, now_s = self.view.version, self.clock.monotonic_s()
            node = self.view.snapshot().node(NodeRole.MANAGER, self.id)
            if node is None or machine.has_ended(node.value):
                break
            said = claim.judge(node, now_s, self.times.ttl_s, self.times.margin_s)
            if said is membership.Claim.TAKEN:
                raise membership.rejection(NodeRole.MANAGER, self.id, node.value.pid)
            if said is membership.Claim.FREE:
                break
            await self.view.changed(version, self._period_s)
        self._revision = self.view.revision(_BUCKET, self._key)

    async def beat(self) -> None:
        """Renew the record, without end.

        Raises:
            MeshError: MESH-C110 when another process has taken this id.
        """
        load = machine.Load()
        identity = NodeRecord(
            id=self.id,
            role=NodeRole.MANAGER,
            incarnation=self.incarnation,
            address="",
            beat=0,
            pid=os.getpid(),
            ready=True,
            machine=machine.name(),
            process_started=machine.started(os.getpid()),
        )
        number = 0
        while True:
            number += 1
            metrics = load.measure(self.clock.monotonic_s())
            record = replace(identity, beat=number, address=self.address, metrics=metrics)
            try:
                self._revision = await self._write(codec.encode(record))
            except kv.RevisionConflict:
                if await self._read_back():
                    continue
            except UNREACHABLE as error:
                log.debug("heartbeat not stored", extra=fields(error=error))
            await asyncio.sleep(self._period_s)

    async def leave(self) -> None:
        """Delete the record, if no other process has written it."""
        with contextlib.suppress(kv.RevisionConflict, *UNREACHABLE):
            await self._write(None)

    @property
    def _period_s(self) -> float:
        return self.times.ttl_s / membership.BEATS_PER_TERM

    async def _write(self, data: bytes | None) -> int:
        js = self.client.jetstream()
        return await kv.write(js, _BUCKET, self._key, data, revision=self._revision)

    async def _read_back(self) -> bool:
        """Learn the revision after a refused heartbeat; False if NATS did not answer.

        The leader has deleted the record, an earlier heartbeat was stored after all, or another
        process has written it.
        """
        try:
            revision, data = await kv.last(self.client.jetstream(), _BUCKET, self._key)
        except UNREACHABLE as error:
            log.debug("heartbeat not read", extra=fields(error=error))
            return False
        other = self._record_of(data)
        is_other = other is not None and other.incarnation != self.incarnation
        if other is not None and is_other and not machine.has_ended(other):
            raise membership.rejection(
                NodeRole.MANAGER, self.id, other.pid, was_member=self._revision > 0
            )
        self._revision = revision
        return True

    def _record_of(self, data: bytes) -> NodeRecord | None:
        """A stored record; None for one that can't be read, which the next heartbeat replaces."""
        if not data:
            return None
        try:
            return codec.decode(NodeRecord, data)
        except MeshError as error:
            log.warning("own record can't be read", extra=fields(key=self._key, error=error))
            return None


@dataclass
class Manager:
    """The shell of one manager's state machine."""

    id: str
    settings: Settings
    client: Client
    #: The connection for removals; see ``mesh.jetstream.removal``.
    deleting: Client
    view: ClusterView
    clock: Clock
    journal: Journal
    pieces: BlobStore
    presence: Presence
    #: Spans of the leader's actions.
    tracer: Tracer = field(default_factory=Tracer)
    state: ManagerState = field(init=False)
    #: Why JetStream refused the lease, so that no manager can lead; empty once it was written.
    refusal: str = ""

    def __post_init__(self) -> None:
        self.state = ManagerState(self.presence.candidate, self.settings)

    async def sweep(self) -> None:
        """Delete pieces without a snapshot now and then, while this manager leads, without end."""
        while True:
            await asyncio.sleep(removal.INTERVAL_S)
            if not self.leads:
                continue
            try:
                js = self.client.jetstream()
                now_ms = await removal.present_ms(self.client, self.clock.wall_ms())
                await removal.sweep(js, self.pieces, now_ms)
            # They cost space only; the next sweep finds them again.
            except Exception as error:
                log.warning("pieces not swept", extra=fields(error=_text(error)))

    @property
    def leads(self) -> bool:
        """Whether it held the lease when it last looked."""
        return self.state.leads

    async def lead(self) -> None:
        """Compete for the lease, and act while holding it, without end."""
        async with anyio.create_task_group() as removals:
            await self._lead(removals)

    async def _lead(self, removals: TaskGroup) -> None:
        news = self.view.news
        event: Event = Observed()
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
                    case StartRemoval():
                        removals.start_soon(self._remove, instruction)
                    case Wait(until_s):
                        wait_s = until_s - self.clock.monotonic_s()
                        await self.view.news_after(news, max(0.0, wait_s))
                        news, event = self.view.news, Observed()

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
        await self.presence.leave()

    async def _write_lease(self, request: WriteLease) -> Event:
        js, bucket, key = self.client.jetstream(), names.CONTROL_BUCKET, names.LEASE_KEY
        try:
            async with asyncio.timeout(request.limit_s):
                data = codec.encode(request.record)
                taken = await kv.write(js, bucket, key, data, revision=request.revision)
        except kv.RevisionConflict:
            await self.view.check(bucket, key)
            return LeaseRefused()
        except UNREACHABLE as error:
            refusal = no_room(error)
            is_new = refusal and not self.refusal
            self.refusal = refusal
            extra = fields(error=refusal or error)
            log.log(logging.ERROR if is_new else logging.DEBUG, "lease not written", extra=extra)
            return LeaseUnanswered()
        self.refusal = ""
        self.view.took_write(bucket, key, request.record, taken)
        return LeaseWritten()

    async def _perform(self, action: RecordAction, lease_revision: int) -> Event:
        if not self.state.may_write(self.view.snapshot()):
            return ActionRefused(LapsedAction.LAPSED)
        try:
            with self.tracer.span(type(action).__name__, mesh_target=target_of(action)):
                await removal.apply(action, self.client, self.view, lease_revision)
        except kv.RevisionConflict as conflict:
            log.info("decision is obsolete", extra=fields(conflict=conflict))
            await self.view.check(names.CONTROL_BUCKET, names.LEASE_KEY)
            return ActionRefused(LapsedAction.REFUSED)
        except UNREACHABLE as error:
            extra = fields(action=target_of(action), error=error)
            log.warning("action not performed", extra=extra)
            return ActionRefused(LapsedAction.UNANSWERED)
        # A fault that concerns this action alone must not stop the others.
        except Exception as error:
            log.exception("action failed", extra=fields(action=target_of(action)))
            return ActionFailed(_text(error))
        return ActionPerformed()

    async def _remove(self, request: StartRemoval) -> None:
        """Perform a removal to its end, whichever that is."""
        why: LapsedAction | str | None = None
        extra = fields(action=target_of(request.action))

        def may_remove() -> bool:
            return self.state.may_remove(request, self.view.snapshot())

        try:
            js = self.deleting.jetstream()
            await removal.remove(request.action, js, self.view, self.pieces, may_remove)
        except (kv.RevisionConflict, removal.DeposedError) as error:
            log.info("removal is obsolete", extra={**extra, **fields(error=error)})
            key = names.app_key(request.action.app.spec.name)
            await self.view.check(names.APPS_BUCKET, key)
            why = LapsedAction.REFUSED
        except UNREACHABLE as error:
            log.warning("removal not completed", extra={**extra, **fields(error=error)})
            why = LapsedAction.UNANSWERED
        except Exception as error:
            log.exception("removal failed", extra=extra)
            why = _text(error)
        for entry in self.state.removal_ended(request, why, self.clock.monotonic_s()):
            self.journal.note(entry)


def _text(error: Exception) -> str:
    """An error in one line, for the journal."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, MeshError):
        text = f"{error} {error.detail}" if error.detail else str(error)
    return text[:_TEXT_MAX]


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[tuple[Manager, ManagerService]]:
    """A manager at work, with the service that an API offers."""
    clock = SystemClock()
    name = machine.node_name(settings.manager.id)
    async with contextlib.AsyncExitStack() as ends:

        async def connected(label: str, *, keeps_requests: bool = True) -> Client:
            client = await connect(settings.nats, label, keeps_requests=keeps_requests)
            ends.push_async_callback(close, client)
            return client

        client = await connected(f"mesh manager {name}")
        # A deletion must not be sent when another manager may have led since it was asked for.
        deleting = await connected(f"mesh manager {name} removals", keeps_requests=False)
        await channels.ensure_buckets(client.jetstream(), settings.channels)
        view = ClusterView(client, clock, quiet_s=settings.worker.ttl_s / 2)
        ends.push_async_callback(view.stop)
        await view.start()
        presence = Presence(name, client, view, clock, settings.worker)
        await presence.claim()
        await channels.update_streams(client, (app.value.spec for app in view.snapshot().apps))
        journal = Journal(client, f"manager {name}", clock)
        journal.start()
        custody = Custody(
            client.jetstream(), settings.channels, journal.note, lambda: manager.leads
        )
        view.on_emptied = custody.put_back
        view.on_loss = lambda bucket: journal.note(of_lost_writes(bucket))
        ends.push_async_callback(journal.stop)
        reading = connector_options(settings.nats)
        pieces = open_blob_store(client.jetstream(), settings.state.store, reading)
        tracer = open_tracer(settings.traces, name)
        # A collector that does not answer costs a few seconds, in another thread.
        ends.push_async_callback(asyncio.to_thread, tracer.close)
        manager = Manager(name, settings, client, deleting, view, clock, journal, pieces, presence)
        manager.tracer = tracer
        ends.push_async_callback(manager.resign)
        service = ManagerService(client, view, settings, clock, name=name, notes=journal)
        service.tracer, service.custody = tracer, custody
        service.refusal_of_lease = lambda: manager.refusal
        ends.push_async_callback(service.queries.stop)
        await service.queries.start()
        copies = Copies(client, journal, lambda: manager.leads)
        advisories = Advisories(client, view, journal, lambda: manager.leads, copies, clock)
        ends.push_async_callback(advisories.stop)
        await advisories.start()
        async with supervised(
            _works(manager, service, copies, custody), {**view.tasks, **journal.tasks}
        ):
            yield manager, service


def _works(
    manager: Manager, service: ManagerService, copies: Copies, custody: Custody
) -> dict[str, Callable[[], Awaitable[object]]]:
    """The tasks of a manager by name; a fault of those that lead nothing ends no leadership."""

    def leads() -> bool:
        return manager.leads

    settings, note = manager.settings.manager, manager.journal.note
    stored = MetricsHistoryStore(
        manager.client, manager.settings.channels.replicas, settings.history_stored_bytes_max
    )
    scaling = Autoscaling(service, note, manager.clock, acts=settings.autoscale)
    observers: dict[str, Callable[[], Awaitable[object]]] = {
        "sweeps": manager.sweep,
        "buckets": custody.run,
        "history": service.telemetry.run,
        "stored history": partial(service.telemetry.keep, stored, leads),
        "survey": partial(service.telemetry.survey, manager.client, leads),
        "autoscaler": partial(scaling.run, leads),
        "verification": partial(service.verification.run, note, leads),
        "copies": copies.watch,
        "simulations": partial(service.feeds.run, leads),
    }
    if settings.apps_dir:
        path, variables = Path(settings.apps_dir), settings.apps_variables
        observers["folder of apps"] = AppsFolder(path, service, note, manager.id, variables).watch
    return {
        "heartbeats": manager.presence.beat,
        "leadership": lambda: while_open(manager.client, manager.lead()),
        "removals": lambda: while_open(manager.deleting, asyncio.Event().wait()),
        **{name: Restarting(name, work) for name, work in observers.items()},
    }


async def run(settings: Settings, serve: Serve) -> None:
    """Be a manager until SIGTERM or SIGINT.

    Args:
        settings: all of them.
        serve: serves the API; given the service and what to call with the address once it listens.

    Raises:
        MeshError: of the API's start; MESH-C112 when one of the manager's tasks ended unasked.
    """
    async with running(settings) as (manager, service):

        def announce(address: str) -> None:
            manager.presence.address = address

        def reasons() -> tuple[str, ...]:
            if not manager.presence.address:
                return ("the REST API does not listen yet",)
            return service.unready_reasons()

        async with (
            signals.reporting(reasons) as notifier,
            supervised({"API": partial(serve, service, announce)}),
        ):
            await signalled()
            notifier.stopping()
