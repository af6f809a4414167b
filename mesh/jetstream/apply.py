"""Performs the leader's actions; the server refuses them once another manager holds the lease."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mesh.control.actions import (
    Action,
    AssignStandby,
    Discard,
    DropForm,
    ForgetNode,
    Place,
    RemoveApp,
    RemoveStandby,
    Retire,
    Withdraw,
    WriteGroupForm,
)
from mesh.jetstream import channels, kv, snapshots
from mesh.logs import fields
from mesh.model import codec, names

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js import JetStreamContext

    from mesh.jetstream.blob_store import BlobStore
    from mesh.jetstream.watch import ClusterView
    from mesh.model.cluster import AppRecord, Assignment, GroupForm, Standby

log = logging.getLogger(__name__)


async def apply(
    action: Action, client: Client, view: ClusterView, lease_revision: int, pieces: BlobStore
) -> None:
    """Perform one action.

    Raises:
        RevisionConflict: the lease, or what the action is about, has changed.
    """
    js = client.jetstream()
    writer = _LeaderWriter(js, view, lease_revision)
    match action:
        case Place(assignment, cause):
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
        case Discard(instance, cause):
            await writer.write(names.assignment_key(instance), None)
            log.info("assignment deleted", extra=fields(instance=instance, cause=cause))
        case AssignStandby(standby, cause):
            await writer.write(names.standby_key(standby.instance), standby)
            what = fields(instance=standby.instance, worker=standby.worker, cause=cause)
            log.info("standby chosen", extra=what)
        case RemoveStandby(instance, cause):
            await writer.write(names.standby_key(instance), None)
            await _delete_status(js, view, names.standby_key(instance))
            log.info("standby removed", extra=fields(instance=instance, cause=cause))
        case ForgetNode(role, node, cause):
            await writer.write(names.node_key(role, node), None)
            log.info("node record deleted", extra=fields(role=role, node=node, cause=cause))
        case Retire(app, app_revision, _):
            await _retire(app, app_revision, js, pieces, view)
            log.info("rest of earlier texts removed", extra=fields(app=app.spec.name))
        case RemoveApp(app, app_revision, cause):
            await _remove(app, app_revision, js, pieces, view)
            log.info("app removed", extra=fields(app=app.spec.name, cause=cause))


@dataclass(frozen=True, slots=True)
class _LeaderWriter:
    """Writes keys of the control bucket; the server refuses them once the lease has moved."""

    js: JetStreamContext
    view: ClusterView
    lease_revision: int

    async def write(self, key: str, record: Assignment | GroupForm | Standby | None) -> None:
        """Write the record of a key, or delete it with None."""
        data = None if record is None else codec.encode(record)
        revision = await kv.write_as_leader(self.js, key, data, self.lease_revision)
        self.view.took_write(names.CONTROL_BUCKET, key, record, revision)


async def _delete_status(js: JetStreamContext, view: ClusterView, key: str) -> None:
    """Delete a report that its worker no longer writes."""
    revision = await kv.put(js, names.STATUS_BUCKET, key, None)
    view.took_write(names.STATUS_BUCKET, key, None, revision)


async def _remove(
    app: AppRecord, revision: int, js: JetStreamContext, pieces: BlobStore, view: ClusterView
) -> None:
    """Delete channels, snapshots and reports of an app, and last its record."""
    await channels.delete_channels(js, app.spec)
    if app.retired is not None:
        await channels.delete_retired(js, app.spec, app.retired)
    await snapshots.purge(js, pieces, app.incarnation)
    # Reports of instances that the app had once are among them.
    for status in view.snapshot().statuses:
        if status.value.app == app.spec.name:
            await _delete_status(js, view, names.status_key(status.value.instance))
    key = names.app_key(app.spec.name)
    deleted = await kv.write(js, names.APPS_BUCKET, key, None, revision=revision)
    view.took_write(names.APPS_BUCKET, key, None, deleted)


async def _retire(
    app: AppRecord, revision: int, js: JetStreamContext, pieces: BlobStore, view: ClusterView
) -> None:
    """Remove what earlier texts had.

    The record says so first, so that no edit reuses it meanwhile, and again at the end.
    """
    retired, key = app.retired, names.app_key(app.spec.name)
    assert retired is not None, "there is something to remove"

    async def write(record: AppRecord, after: int) -> int:
        made = await kv.write(js, names.APPS_BUCKET, key, codec.encode(record), revision=after)
        view.took_write(names.APPS_BUCKET, key, record, made)
        return made

    if not retired.removing:
        marked = replace(app, retired=replace(retired, removing=True))
        revision = await write(marked, revision)
    for group in retired.groups:
        await snapshots.purge(js, pieces, app.incarnation, group)
        start = f"{names.group_name(app.spec.name, group)}-"
        for status in view.snapshot().statuses:
            instance = status.value.instance
            if instance.startswith(start) and instance.removeprefix(start).isdigit():
                await _delete_status(js, view, names.status_key(instance))
    await channels.delete_retired(js, app.spec, retired)
    await write(replace(app, retired=None), revision)
