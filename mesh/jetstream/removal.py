"""Removal of apps, and of channels and groups that only an earlier text of an app had.

JetStream has no condition for the deletion of a stream, and an app that is deployed again has
streams of the same names.  So before each deletion the record of the app is read from the server,
and it must be the one that the leader decided about.  After the answer, and right before the
request, the manager must still hold the lease without a gap since then: only a leader completes a
removal, so no other app can have the name.

Sweep of pieces that no manifest names: their worker was killed while it stored a snapshot.

Performs the leader's writes; the server refuses them once another manager holds the lease.

Removals of streams and states, which the server can't refuse, are in ``mesh.jetstream.removal``.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import orjson
from nats.js.errors import KeyNotFoundError, NotFoundError

from mesh.control.actions import (
    AssignStandby,
    Discard,
    DropForm,
    ForgetNode,
    PlaceInstance,
    RemoveApp,
    RemoveStandby,
    Retire,
    Withdraw,
    WriteGroupForm,
)
from mesh.jetstream import channels, history_checkpoints, kv, snapshots
from mesh.jetstream.connection import api_call
from mesh.model import codec, names
from mesh.telemetry.logs import fields
from pyspark_nats.protocol.jetstream import time_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.client import Client
    from nats.js import JetStreamContext

    from mesh.control.actions import RecordAction, Removal
    from mesh.jetstream.blob_store import BlobStore
    from mesh.jetstream.watch import ClusterView
    from mesh.model.cluster import AppRecord, Assignment, GroupForm, Standby


async def apply(
    action: RecordAction, client: Client, view: ClusterView, lease_revision: int
) -> None:
    """Perform one action.

    Raises:
        RevisionConflict: the lease, or what the action is about, has changed.
    """
    js = client.jetstream()
    writer = LeaderWriter(js, view, lease_revision)
    match action:
        case PlaceInstance(assignment, cause):
            await writer.write(names.assignment_key(assignment.instance), assignment)
            what = fields(
                instance=assignment.instance,
                worker=assignment.worker,
                epoch=assignment.epoch,
                cause=cause,
            )
            log.info("instance placed", extra=what)
        case Withdraw(assignment, cause):
            await writer.write(names.assignment_key(assignment.instance), assignment)
            what = fields(instance=assignment.instance, worker=assignment.worker, cause=cause)
            log.info("instance withdrawn", extra=what)
        case WriteGroupForm(form, cause):
            await writer.write(names.form_key(form.app, form.group), form)
            what = fields(app=form.app, group=form.group, number=form.number, cause=cause)
            log.info("group revision written", extra=what)
        case DropForm(app_name, group, cause):
            await writer.write(names.form_key(app_name, group), None)
            log.info("group revision deleted", extra=fields(app=app_name, group=group, cause=cause))
        case Discard(instance, cause, _):
            await writer.write(names.assignment_key(instance), None)
            log.info("assignment deleted", extra=fields(instance=instance, cause=cause))
        case AssignStandby(standby, cause):
            await writer.write(names.standby_key(standby.instance), standby)
            what = fields(instance=standby.instance, worker=standby.worker, cause=cause)
            log.info("standby chosen", extra=what)
        case RemoveStandby(instance, cause, _):
            await writer.write(names.standby_key(instance), None)
            await delete_status(js, view, names.standby_key(instance))
            log.info("standby removed", extra=fields(instance=instance, cause=cause))
        case ForgetNode(role, node, cause):
            await writer.write(names.node_key(role, node), None)
            log.info("node record deleted", extra=fields(role=role, node=node, cause=cause))


@dataclass(frozen=True, slots=True)
class LeaderWriter:
    """Writes keys of the control bucket; the server refuses them once the lease has moved."""

    js: JetStreamContext
    view: ClusterView
    lease_revision: int

    async def write(self, key: str, record: Assignment | GroupForm | Standby | None) -> None:
        """Write the record of a key, or delete it with None."""
        data = None if record is None else codec.encode(record)
        bucket, lease = names.CONTROL_BUCKET, names.LEASE_KEY
        revision = await kv.write(
            self.js, bucket, key, data, revision=self.lease_revision, fenced_by=lease
        )
        self.view.took_write(bucket, key, record, revision)


async def delete_status(js: JetStreamContext, view: ClusterView, key: str) -> None:
    """Delete a report that its worker no longer writes."""
    revision = await kv.put(js, names.STATUS_BUCKET, key, None)
    view.took_write(names.STATUS_BUCKET, key, None, revision)


log = logging.getLogger(__name__)

#: Younger pieces are left: the manifest that names them may be about to be stored.
AGE_MS: Final = 86_400_000
#: Interval of the leader's sweeps, seconds.
INTERVAL_S: Final = 6 * 3600.0


class DeposedError(Exception):
    """This manager no longer leads, or did not for a while: nothing more may be deleted."""


async def remove(
    action: Removal,
    js: JetStreamContext,
    view: ClusterView,
    pieces: BlobStore,
    may_remove: Callable[[], bool],
) -> None:
    """Perform a removal.

    Args:
        action: the removal.
        js: the connection; it must not keep requests while it is not connected.
        view: receives the records that are written.
        pieces: the store of snapshots.
        may_remove: whether the manager still leads, by its own clock.

    Raises:
        RevisionConflict: the app's record has changed.
        DeposedError: ``may_remove`` was false.
        Exception: of the store.
    """
    name = action.app.spec.name
    work = _Work(js, view, pieces, may_remove, names.app_key(name), action.revision)
    match action:
        case RemoveApp(app, _, cause):
            await work.remove(app)
            log.info("app removed", extra=fields(app=name, cause=cause))
        case Retire(app, _, _):
            await work.retire(app)
            log.info("rest of earlier texts removed", extra=fields(app=name))


@dataclass(slots=True)
class _Work:
    """One removal."""

    js: JetStreamContext
    view: ClusterView
    pieces: BlobStore
    may_remove: Callable[[], bool]
    #: Of the app's record, and the revision that it must have.
    key: str
    revision: int

    async def remove(self, app: AppRecord) -> None:
        """Delete channels, snapshots and reports of an app, and last its record."""
        await channels.delete_channels(self.js, app.spec, self.check)
        if app.retired is not None:
            await channels.delete_retired(self.js, app.spec, app.retired, self.check)
        await snapshots.purge(self.js, self.pieces, app.incarnation)
        # Reports of instances that the app had once are among them.
        for status in self.view.snapshot().statuses:
            if status.value.app == app.spec.name:
                await self.delete_status(status.value.instance)
        await self.write(None)

    async def retire(self, app: AppRecord) -> None:
        """Remove what earlier texts had.

        The record says so first, so that no edit reuses it meanwhile, and again at the end.
        """
        retired = app.retired
        assert retired is not None, "there is something to remove"
        if not retired.removing:
            await self.write(replace(app, retired=replace(retired, removing=True)))
        for group in retired.groups:
            await snapshots.purge(self.js, self.pieces, app.incarnation, group)
            for status in self.view.snapshot().statuses:
                instance = status.value.instance
                start = f"{names.group_name(app.spec.name, group)}-"
                is_ours = status.value.app == app.spec.name and instance.startswith(start)
                if is_ours and instance.removeprefix(start).isdigit():
                    await self.delete_status(instance)
        await channels.delete_retired(self.js, app.spec, retired, self.check)
        await self.write(replace(app, retired=None))

    async def check(self) -> None:
        """Return if the next request may be a deletion of the app's."""
        try:
            bucket = names.APPS_BUCKET
            stored = await self.js.get_last_msg(f"KV_{bucket}", kv.subject(bucket, self.key))
            revision = stored.seq
        except NotFoundError:
            revision = None
        if revision != self.revision:
            raise kv.RevisionConflict(f"{self.key} is not at revision {self.revision}")
        # After the answer, for which it may have waited for long.
        if not self.may_remove():
            raise DeposedError

    async def delete_status(self, instance: str) -> None:
        await self.check()
        await delete_status(self.js, self.view, names.status_key(instance))

    async def write(self, record: AppRecord | None) -> None:
        """Write or delete the app's record."""
        bucket, data = names.APPS_BUCKET, None if record is None else codec.encode(record)
        revision = await kv.write(self.js, bucket, self.key, data, revision=self.revision)
        self.view.took_write(bucket, self.key, record, revision)
        self.revision = revision


async def present_ms(client: Client, own_ms: int) -> int:
    """The earlier of a manager's time and NATS's, milliseconds since 1970.

    A piece is stored before the manifest that names it.  With a clock that is a day ahead, it would
    be deleted in between.
    """
    answer = await api_call(client, f"STREAM.INFO.KV_{names.SNAPSHOTS_BUCKET}")
    said = answer.get("ts")
    return own_ms if said is None else min(own_ms, time_ms(said))


async def sweep(js: JetStreamContext, pieces: BlobStore, now_ms: int) -> int:
    """Delete the pieces that no snapshot of a present app names; returns their number.

    Pieces of apps without any snapshot, and of backups, are left to their own removal.  Old
    checkpoints of histories are deleted as well.

    Args:
        js: the connection.
        pieces: the store of ``state.store``.
        now_ms: the present time, as ``present_ms`` has it; the store's clock may differ by hours.
    """
    await history_checkpoints.drop_old(js, pieces, now_ms)
    # Listed before the manifests are read: a manifest names only pieces that were stored before.
    stored = await pieces.listed()
    named, incarnations = await _named(js)
    gone = 0
    for name in stored:
        if name.partition("/")[0] not in incarnations or name in named:
            continue
        stored_ms = await pieces.stored_ms(name)
        if stored_ms is not None and now_ms - stored_ms > AGE_MS:
            await pieces.delete(name)
            gone += 1
    if gone:
        log.info("pieces without a snapshot deleted", extra=fields(pieces=gone))
    return gone


async def _named(js: JetStreamContext) -> tuple[set[str], set[str]]:
    """The pieces that snapshots name, and the incarnations of the apps that have snapshots."""
    prefix = kv.subject(names.SNAPSHOTS_BUCKET, "")
    info = await js.stream_info(f"KV_{names.SNAPSHOTS_BUCKET}", subjects_filter=f"{prefix}>")
    bucket = await kv.open_bucket(js, names.SNAPSHOTS_BUCKET)
    named: set[str] = set()
    incarnations: set[str] = set()
    for subject in info.state.subjects or {}:
        key = subject.removeprefix(prefix)
        try:
            entry = await bucket.get(key)
        except KeyNotFoundError:
            continue
        incarnations.add(key.partition(".")[0])
        named.update(orjson.loads(entry.value or b"{}").get("objects", {}).values())
    return named, incarnations
