"""Performs the leader's writes; the server refuses them once another manager holds the lease.

Removals of streams and states, which the server can't refuse, are in ``mesh.jetstream.removal``.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mesh.control.actions import (
    AssignStandby,
    Discard,
    DropForm,
    ForgetNode,
    PlaceInstance,
    RemoveStandby,
    Withdraw,
    WriteGroupForm,
)
from mesh.jetstream import kv
from mesh.model import codec, names
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js import JetStreamContext

    from mesh.control.actions import RecordAction
    from mesh.jetstream.watch import ClusterView
    from mesh.model.cluster import Assignment, GroupForm, Standby

log = logging.getLogger(__name__)


async def apply(
    action: RecordAction, client: Client, view: ClusterView, lease_revision: int
) -> None:
    """Perform one action.

    Raises:
        RevisionConflict: the lease, or what the action is about, has changed.
    """
    js = client.jetstream()
    writer = _LeaderWriter(js, view, lease_revision)
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
class _LeaderWriter:
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
