"""Performs the leader's actions; the server refuses them once another manager holds the lease."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from mesh.control.actions import (
    Action,
    Discard,
    Dismiss,
    DropForm,
    ForgetNode,
    Place,
    RemoveApp,
    Retire,
    Shape,
    StandBy,
    Withdraw,
)
from mesh.jetstream import channels, kv, snapshots
from mesh.logs import fields
from mesh.model import codec, names

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js import JetStreamContext

    from mesh.jetstream.pieces import Pieces
    from mesh.jetstream.watch import ClusterView
    from mesh.model.cluster import AppRecord

log = logging.getLogger(__name__)


async def apply(
    action: Action, client: Client, view: ClusterView, lease_revision: int, pieces: Pieces
) -> None:
    """Perform one action.

    Raises:
        RevisionConflict: the lease, or what the action is about, has changed.
    """
    js = client.jetstream()
    match action:
        case Place(assignment, cause):
            key = names.assignment_key(assignment.instance)
            revision = await kv.write_as_leader(js, key, codec.encode(assignment), lease_revision)
            view.took_write(names.CONTROL_BUCKET, key, assignment, revision)
            log.info(
                "instance placed",
                extra=fields(
                    instance=assignment.instance,
                    worker=assignment.worker,
                    epoch=assignment.epoch,
                    cause=cause,
                ),
            )
        case Withdraw(assignment, cause):
            key = names.assignment_key(assignment.instance)
            revision = await kv.write_as_leader(js, key, codec.encode(assignment), lease_revision)
            view.took_write(names.CONTROL_BUCKET, key, assignment, revision)
            log.info(
                "instance withdrawn",
                extra=fields(instance=assignment.instance, worker=assignment.worker, cause=cause),
            )
        case Shape(form, cause):
            key = names.form_key(form.app, form.group)
            revision = await kv.write_as_leader(js, key, codec.encode(form), lease_revision)
            view.took_write(names.CONTROL_BUCKET, key, form, revision)
            log.info(
                "group revision written",
                extra=fields(app=form.app, group=form.group, number=form.number, cause=cause),
            )
        case DropForm(app_name, group, cause):
            key = names.form_key(app_name, group)
            revision = await kv.write_as_leader(js, key, None, lease_revision)
            view.took_write(names.CONTROL_BUCKET, key, None, revision)
            log.info("group revision deleted", extra=fields(app=app_name, group=group, cause=cause))
        case Discard(instance, cause):
            key = names.assignment_key(instance)
            revision = await kv.write_as_leader(js, key, None, lease_revision)
            view.took_write(names.CONTROL_BUCKET, key, None, revision)
            log.info("assignment deleted", extra=fields(instance=instance, cause=cause))
        case StandBy(standby, cause):
            key = names.standby_key(standby.instance)
            revision = await kv.write_as_leader(js, key, codec.encode(standby), lease_revision)
            view.took_write(names.CONTROL_BUCKET, key, standby, revision)
            log.info(
                "standby chosen",
                extra=fields(instance=standby.instance, worker=standby.worker, cause=cause),
            )
        case Dismiss(instance, cause):
            key = names.standby_key(instance)
            revision = await kv.write_as_leader(js, key, None, lease_revision)
            view.took_write(names.CONTROL_BUCKET, key, None, revision)
            revision = await kv.put(js, names.STATUS_BUCKET, key, None)
            view.took_write(names.STATUS_BUCKET, key, None, revision)
            log.info("standby removed", extra=fields(instance=instance, cause=cause))
        case ForgetNode(role, node, cause):
            key = names.node_key(role, node)
            revision = await kv.write_as_leader(js, key, None, lease_revision)
            view.took_write(names.CONTROL_BUCKET, key, None, revision)
            log.info("node record deleted", extra=fields(role=role, node=node, cause=cause))
        case Retire(app, app_revision, cause):
            await _retire(app, app_revision, js, pieces, view)
            log.info("rest of earlier texts removed", extra=fields(app=app.spec.name))
        case RemoveApp(app, app_revision, cause):
            await channels.delete_channels(js, app.spec)
            if app.retired is not None:
                await channels.delete_retired(js, app.spec, app.retired)
            await snapshots.purge(js, pieces, app.incarnation)
            # Also of instances that it had once, and has no more.
            for status in view.snapshot().statuses:
                if status.value.app == app.spec.name:
                    key = names.status_key(status.value.instance)
                    revision = await kv.put(js, names.STATUS_BUCKET, key, None)
                    view.took_write(names.STATUS_BUCKET, key, None, revision)
            key = names.app_key(app.spec.name)
            revision = await kv.write(js, names.APPS_BUCKET, key, None, revision=app_revision)
            view.took_write(names.APPS_BUCKET, key, None, revision)
            log.info("app removed", extra=fields(app=app.spec.name, cause=cause))


async def _retire(
    app: AppRecord, revision: int, js: JetStreamContext, pieces: Pieces, view: ClusterView
) -> None:
    """Say that it is being removed, so that nobody has it back meanwhile; remove it; say so."""
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
                at = await kv.put(js, names.STATUS_BUCKET, names.status_key(instance), None)
                view.took_write(names.STATUS_BUCKET, names.status_key(instance), None, at)
    await channels.delete_retired(js, app.spec, retired)
    await write(replace(app, retired=None), revision)
