"""Compare the desired with the actual state and decide the leader's next actions.

Called again after each change of the snapshot.  An action that isn't performed, or lost its write's
race, is decided again.

An instance moves in three steps, each a write or a report, so a new leader continues where the last
one ended: the leader withdraws it, its worker stops it and reports that, the leader places it.  It
is placed at once if its worker is gone.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from mesh.control import group_revisions, standby
from mesh.control.actions import (
    Action,
    Discard,
    DropForm,
    ForgetNode,
    PlaceInstance,
    RemoveApp,
    Retire,
    Withdraw,
    WriteGroupForm,
)
from mesh.control.cluster_state import cluster_state_of
from mesh.control.membership import HeartbeatStatus, heartbeat_status
from mesh.model.cluster import Assignment, InstanceState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mesh.control.cluster_state import ClusterState, DesiredInstance
    from mesh.control.snapshot import ClusterSnapshot
    from mesh.model.cluster import AppRecord, GroupForm, InstanceStatus
    from mesh.settings import Settings

#: A node's record is kept this long after the node is gone, for operators.
FORGET_AFTER_S = 60.0
#: A move that is not done after this time does not block other moves any more.
MOVE_S = 30.0


def decide(snapshot: ClusterSnapshot, settings: Settings) -> list[Action]:
    """Decide the leader's next actions, in order.

    Args:
        snapshot: the view of the manager that holds the lease.
        settings: times and limits.
    """
    assert snapshot.lease is not None, "only a leader decides"
    cluster = cluster_state_of(snapshot, settings)
    if behind := list(_behind(cluster, snapshot, settings.worker.ttl_s)):
        return behind
    actions: list[Action] = [*_unwanted(cluster, snapshot.lease.revision)]
    actions += _forms(cluster, snapshot)
    actions += _moves(cluster, snapshot, settings)
    actions += standby.decide(cluster, snapshot.lease.revision)
    left = {a.app for a in cluster.assignments.values()} | {f.value.app for f in snapshot.forms}
    actions += (
        RemoveApp(app.value, app.revision, "undeployed")
        for app in snapshot.apps
        if app.value.deleting and app.value.spec.name not in left
    )
    actions += _retirements(cluster, snapshot)
    forget_s = settings.worker.margin_s + FORGET_AFTER_S
    actions += (
        ForgetNode(node.value.role, node.value.id, "gone for long")
        for node in snapshot.nodes
        if heartbeat_status(node, snapshot.ages_s, settings.worker.ttl_s, forget_s)
        is HeartbeatStatus.GONE
    )
    return actions


def next_deadline_s(snapshot: ClusterSnapshot, settings: Settings, since_s: float) -> float:
    """First time after ``since_s`` at which the decision may change without an event.

    Times are of the observer's clock.  Heartbeats and reports move it into the future only.
    """
    ends = (end for end in _deadlines_s(snapshot, settings) if end > since_s)
    return min(ends, default=math.inf)


def _deadlines_s(snapshot: ClusterSnapshot, settings: Settings) -> Iterator[float]:
    """The times with which ``decide`` compares the present one."""
    worker = settings.worker
    ages = (
        worker.ttl_s,
        worker.ttl_s + worker.margin_s,
        worker.ttl_s + worker.margin_s + FORGET_AFTER_S,
    )
    for node in snapshot.nodes:
        yield from (node.seen_at_s + age for age in ages)
        if not node.value.ready:
            yield node.seen_at_s + settings.manager.hold_s - node.value.starting_s
    reports = {seen.value.instance: seen for seen in snapshot.statuses}
    for placed in snapshot.assignments:
        assignment, seen = placed.value, reports.get(placed.value.instance)
        # Those that run block no moves.
        if not _has_settled(assignment, seen.value if seen is not None else None):
            yield placed.seen_at_s + MOVE_S
        if seen is not None and _is_ahead(seen.value, assignment.epoch):
            yield seen.seen_at_s + worker.ttl_s


def _has_settled(assignment: Assignment, status: InstanceStatus | None) -> bool:
    """Whether an instance is not moving: it was started where it is placed, and is to stay."""
    return (
        not assignment.stop
        and status is not None
        and status.epoch == assignment.epoch
        and status.state in (InstanceState.RUNNING, InstanceState.RETRYING)
    )


def _is_ahead(status: InstanceStatus, epoch: int) -> bool:
    """Whether a report shows that an assignment's epoch is behind."""
    is_refused = status.epoch == epoch and status.newer_epoch >= epoch
    return is_refused or status.epoch > epoch


def _behind(cluster: ClusterState, snapshot: ClusterSnapshot, ttl_s: float) -> Iterator[Action]:
    """Write assignments again whose epochs are behind, in later ones; nothing else meanwhile.

    That can only be if NATS has lost writes: a report, a marker or a snapshot has a later epoch.  A
    view that lags shows the same for a moment, hence the wait of ``ttl_s``, but for a worker that
    runs the instance in a later epoch, which it may begin again at once.
    """
    assert snapshot.lease is not None, "only a leader decides"
    lease_revision = snapshot.lease.revision
    for seen in snapshot.statuses:
        status = seen.value
        assignment = cluster.assignments.get(status.instance)
        if assignment is None or cluster.is_over(assignment):
            continue
        if not _is_ahead(status, assignment.epoch):
            continue
        runs_later = status.epoch > assignment.epoch and status.worker == assignment.worker
        if runs_later or snapshot.now_s - seen.seen_at_s >= ttl_s:
            epoch = max(lease_revision, _epoch_above(status))
            cause = "NATS has lost writes, its epoch was behind"
            after = replace(assignment, epoch=epoch, lease_revision=lease_revision, cause=cause)
            yield Withdraw(after, cause) if assignment.stop else PlaceInstance(after, cause)


def _epoch_above(status: InstanceStatus) -> int:
    """An epoch greater than all that a report has seen."""
    return max(status.epoch, status.newer_epoch) + 1


def _unwanted(cluster: ClusterState, lease_revision: int) -> Iterator[Action]:
    """Stop the instances that are not desired, and delete their assignments afterwards."""
    for name, assignment in cluster.assignments.items():
        if cluster.is_ours(assignment):
            continue
        if cluster.is_paused(assignment):
            if not assignment.stop:
                yield _withdraw(assignment, None, lease_revision, f"app {assignment.app} is paused")
            continue
        held = cluster.held_apps.get(assignment.app)
        cause = held or f"app {assignment.app} no longer wants it"
        if cluster.is_over(assignment):
            yield Discard(name, cause, assignment.app)
        elif not assignment.stop:
            yield _withdraw(assignment, None, lease_revision, cause)


def _forms(cluster: ClusterState, snapshot: ClusterSnapshot) -> Iterator[Action]:
    """Write group revisions before instances of them are placed; delete them after the last."""
    written = {(f.value.app, f.value.group): f.value for f in snapshot.forms}
    for at in dict.fromkeys((w.form.app, w.form.group) for w in cluster.desired.values()):
        if written.get(at) != cluster.forms[at]:
            yield WriteGroupForm(cluster.forms[at], "deployed")
    apps = {app.value.spec.name: app.value for app in snapshot.apps}
    assigned = {(a.app, a.group) for a in cluster.assignments.values()}
    for at, form in written.items():
        app = apps.get(form.app)
        # A group that is restored starts without the revisions that it had.
        is_there = app is not None and not app.deleting and not app.held
        is_desired = app is not None and is_there and app.spec.group(form.group) is not None
        if not is_desired and at not in assigned:
            yield DropForm(form.app, form.group, f"app {form.app} no longer wants it")


def _changes(cluster: ClusterState, lease_revision: int) -> Iterator[Action]:
    """Stop the groups that change their revision, and write the new one when all have stopped.

    Instances that have to run once more in the old revision get a ``PlaceInstance`` where placement
    chose.
    """
    for at, change in cluster.changes.items():
        cause = group_revisions.describe_change(change.form.spec, change.becomes)
        for assignment in change.live:
            if assignment.stop or not cluster.is_ours(assignment):
                continue
            if assignment.until is None or _fails(cluster, assignment):
                yield _withdraw(assignment, None, lease_revision, cause)
            elif cluster.nodes[assignment.worker].leaving:
                # Not counted as failed, like a withdrawn instance with ``until``: it runs on
                # elsewhere.
                yield _withdraw(replace(assignment, until=None), None, lease_revision, cause)
        if change.live:
            continue
        for name, until in change.left.items():
            worker = cluster.placement.where.get(name)
            if worker is not None:
                desired, before = cluster.desired[name], cluster.assignments.get(name)
                yield _place(cluster, desired, worker, before, lease_revision, until)
        if change.has_drained and not change.adopts:
            epochs = [a.epoch for a in cluster.assignments.values() if (a.app, a.group) == at]
            statuses = [s for n, s in cluster.statuses.items() if n in change.stops]
            epochs += [e for s in statuses for e in (s.epoch, s.newer_epoch)]
            epoch = max([change.form.epoch, *epochs]) + 1
            shape = group_revisions.next_revision(
                change.form, change.becomes, change.stops, epoch, cause
            )
            yield WriteGroupForm(shape, cause)


def _retirements(cluster: ClusterState, snapshot: ClusterSnapshot) -> Iterator[Retire]:
    """Channels and groups to remove now, which only an earlier text of an app had.

    An edit leaves them unused.  They are removed when no instance that knows them runs any more:
    all groups of the app have the desired revision, and there is no other group.  Until then
    another edit may use them again.
    """
    for app in snapshot.apps:
        retired = app.value.retired
        if app.value.deleting or app.value.held or retired is None:
            continue
        # A removal that has begun is completed, even if the app has changed since.
        if retired.removing or _is_settled(cluster, snapshot, app.value):
            yield Retire(app.value, app.revision, "the app has another text")


def _is_settled(cluster: ClusterState, snapshot: ClusterSnapshot, app: AppRecord) -> bool:
    """Whether the groups of an app are exactly the desired ones."""
    name = app.spec.name
    desired = {group.name: group for group in app.spec.groups}
    if any(cluster.forms[name, group].spec != spec for group, spec in desired.items()):
        return False
    there = [a.group for a in cluster.assignments.values() if a.app == name]
    there += [form.value.group for form in snapshot.forms if form.value.app == name]
    return all(group in desired for group in there)


def _fails(cluster: ClusterState, assignment: Assignment) -> bool:
    """Whether an instance that runs up to a position, where it would stop, can't get there."""
    status = cluster.statuses.get(assignment.instance)
    return (
        status is not None
        and status.epoch == assignment.epoch
        and status.state is InstanceState.RETRYING
        and status.restarts > 1
    )


def _moves(
    cluster: ClusterState, snapshot: ClusterSnapshot, settings: Settings
) -> Iterator[Action]:
    """Place the instances without a place, and withdraw those that are in the wrong place."""
    assert snapshot.lease is not None, "only a leader decides"
    lease_revision = snapshot.lease.revision
    capacity = {host.name: host.capacity for host in cluster.hosts}
    busy = Counter(a.worker for a in cluster.assignments.values() if not cluster.is_over(a))
    free_moves = settings.manager.moves_at_once - _moving(cluster, snapshot)
    for action in _changes(cluster, lease_revision):
        if isinstance(action, PlaceInstance):
            worker = action.assignment.worker
            if capacity[worker] and busy[worker] >= capacity[worker]:
                continue
            busy[worker] += 1
        yield action
    for name, desired in cluster.desired.items():
        if desired.becomes is not None:
            continue
        before = cluster.assignments.get(name)
        target = cluster.placement.where.get(name)
        if target is None:
            continue
        # An instance that is being stopped still has its seat.
        has_room = not capacity[target] or busy[target] < capacity[target]
        if before is None or cluster.is_over(before):
            if has_room:
                busy[target] += 1
                yield _place(cluster, desired, target, before, lease_revision)
        elif (
            not before.stop
            and before.until is None
            and target != before.worker
            and cluster.is_ours(before)
        ):
            node = cluster.nodes[before.worker]
            # An instance that doesn't run doesn't count as moving: it waits for a session, here or
            # there.
            if node.leaving or (has_room and (free_moves > 0 or not node.ready)):
                free_moves -= node.ready
                yield _withdraw(before, target, lease_revision, _why_moved(cluster, before))


def _moving(cluster: ClusterState, snapshot: ClusterSnapshot) -> int:
    """The number of instances that are moving, without those that have been for too long."""
    count = 0
    for seen in snapshot.assignments:
        assignment = seen.value
        if snapshot.now_s - seen.seen_at_s >= MOVE_S or cluster.is_paused(assignment):
            continue
        count += not _has_settled(assignment, cluster.statuses.get(assignment.instance))
    return count


def _withdraw(before: Assignment, target: str | None, lease_revision: int, cause: str) -> Withdraw:
    # An epoch of its own: a report of STOPPED from before the request must not count.
    after = replace(
        before,
        stop=True,
        placed_epoch=before.epoch,
        next_worker=target,
        epoch=max(lease_revision, before.epoch + 1),
        lease_revision=lease_revision,
        cause=cause,
    )
    return Withdraw(after, cause)


def _place(
    cluster: ClusterState,
    desired: DesiredInstance,
    worker: str,
    before: Assignment | None,
    lease_revision: int,
    until: Mapping[str, int] | None = None,
) -> PlaceInstance:
    instance = desired.need.instance
    form = desired.form
    # An epoch is greater than every earlier one, also of a placement that was deleted since: lease
    # revisions grow, and an instance that ran has reported.  If NATS loses both, the marker of the
    # earlier epoch refuses the instance; see ``_behind``.
    epoch = max(lease_revision, form.epoch, before.epoch + 1 if before is not None else 0)
    status = cluster.statuses.get(instance)
    if status is not None:
        epoch = max(epoch, _epoch_above(status))
    cause = _why_placed(cluster, form, before, worker)
    if until is not None:
        cause = "to reach the position of the rest of its group" if until else "to store its state"
    return PlaceInstance(
        Assignment(
            instance=instance,
            app=desired.app.spec.name,
            group=form.group,
            index=desired.index,
            app_incarnation=desired.app.incarnation,
            worker=worker,
            epoch=epoch,
            lease_revision=lease_revision,
            worker_incarnation=cluster.nodes[worker].incarnation,
            cause=cause,
            skips=desired.app.skips,
            form=form.number,
            start=form.start,
            until=until,
            former=_former(before, worker),
        ),
        cause,
    )


def _former(before: Assignment | None, worker: str) -> str:
    """The worker that had an instance before ``worker``; also in an earlier revision."""
    if before is None:
        return ""
    return before.worker if before.worker != worker else before.former


def _why_placed(
    cluster: ClusterState, form: GroupForm, before: Assignment | None, worker: str
) -> str:
    if before is None or not cluster.is_ours(before) or before.form != form.number:
        return form.cause or "deployed"
    node = cluster.nodes.get(before.worker)
    if node is None:
        return f"worker {before.worker} is gone{_ready(cluster, before.instance, worker)}"
    if before.worker_incarnation not in ("", node.incarnation):
        return f"worker {before.worker} was started again"
    return f"{before.worker} has stopped it: {before.cause}"


def _ready(cluster: ClusterState, instance: str, worker: str) -> str:
    return f", {worker} was its standby" if cluster.standing_by.get(instance) == worker else ""


def _why_moved(cluster: ClusterState, before: Assignment) -> str:
    cause = cluster.placement.moved.get(before.instance)
    if cause is not None:
        return f"worker {cause}"
    why = next((host.why for host in cluster.hosts if host.name == before.worker), "")
    return f"worker {before.worker} {why}".strip() if why else f"no longer fits {before.worker}"
