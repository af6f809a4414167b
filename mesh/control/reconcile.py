"""Compare the desired with the actual state and decide the leader's next actions.

Called again after each change of the snapshot.  An action that isn't performed, or lost its write's
race, is decided again.

An instance moves in three steps, each a write or a report, so a new leader continues where the last
one ended: the leader withdraws it, its worker stops it and reports that, the leader places it.  It
is placed at once if its worker is gone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from mesh.control import group_revisions, standby
from mesh.control.actions import (
    Action,
    Discard,
    DropForm,
    ForgetNode,
    Place,
    RemoveApp,
    Withdraw,
    WriteGroupForm,
)
from mesh.control.cluster_state import cluster_state_of
from mesh.control.membership import HeartbeatStatus, heartbeat_status
from mesh.control.retiring import retirements
from mesh.model.cluster import Assignment, InstanceState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mesh.control.cluster_state import ClusterState, Wanted
    from mesh.control.snapshot import ClusterSnapshot
    from mesh.model.cluster import GroupForm, InstanceStatus
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
    found = cluster_state_of(snapshot, settings)
    if behind := list(_behind(found, snapshot, settings.worker.ttl_s)):
        return behind
    actions: list[Action] = [*_unwanted(found, snapshot.lease.revision)]
    actions += _forms(found, snapshot)
    actions += _moves(found, snapshot, settings)
    actions += standby.decide(found, snapshot.lease.revision)
    actions += (
        RemoveApp(app.value, app.revision, "undeployed")
        for app in snapshot.apps
        if app.value.deleting
        and not any(a.app == app.value.spec.name for a in found.assignments.values())
        and not any(form.value.app == app.value.spec.name for form in snapshot.forms)
    )
    actions += retirements(found, snapshot)
    kept_s = settings.worker.margin_s + FORGET_AFTER_S
    actions += (
        ForgetNode(node.value.role, node.value.id, "gone for long")
        for node in snapshot.nodes
        if heartbeat_status(node, snapshot.ages_s, settings.worker.ttl_s, kept_s)
        is HeartbeatStatus.GONE
    )
    return actions


def next_deadline_s(snapshot: ClusterSnapshot, settings: Settings) -> float:
    """Time at which the decision may change without an event, on the observer's clock."""
    worker = settings.worker
    ages = (
        worker.ttl_s,
        worker.ttl_s + worker.margin_s,
        worker.ttl_s + worker.margin_s + FORGET_AFTER_S,
    )
    ends = [node.seen_at_s + age for node in snapshot.nodes for age in ages]
    ends += (assignment.seen_at_s + MOVE_S for assignment in snapshot.assignments)
    ends += (
        node.seen_at_s + settings.manager.hold_s - node.value.starting_s
        for node in snapshot.nodes
        if not node.value.ready
    )
    return min((end for end in ends if end > snapshot.now_s), default=snapshot.now_s + 60.0)


def _behind(found: ClusterState, snapshot: ClusterSnapshot, ttl_s: float) -> Iterator[Action]:
    """Write assignments again whose epochs are behind, in later ones; nothing else meanwhile.

    That can only be if NATS has lost writes: a report, a marker or a snapshot has a later epoch.  A
    view that lags shows the same for a moment, hence the wait of ``ttl_s``, but for a worker that
    runs the instance in a later epoch, which it may begin again at once.
    """
    assert snapshot.lease is not None, "only a leader decides"
    lease_revision = snapshot.lease.revision
    for seen in snapshot.statuses:
        status = seen.value
        made = found.assignments.get(status.instance)
        if made is None or found.is_over(made):
            continue
        is_refused = status.epoch == made.epoch and status.newer_epoch >= made.epoch
        if not is_refused and status.epoch <= made.epoch:
            continue
        runs_later = not is_refused and status.worker == made.worker
        if runs_later or snapshot.now_s - seen.seen_at_s >= ttl_s:
            epoch = max(lease_revision, _epoch_above(status))
            cause = "NATS has lost writes, its epoch was behind"
            after = replace(made, epoch=epoch, lease_revision=lease_revision, cause=cause)
            yield Withdraw(after, cause) if made.stop else Place(after, cause)


def _epoch_above(status: InstanceStatus) -> int:
    """An epoch greater than all that a report has seen."""
    return max(status.epoch, status.newer_epoch) + 1


def _unwanted(found: ClusterState, lease_revision: int) -> Iterator[Action]:
    """Stop the instances that are not desired, and delete their assignments afterwards."""
    for name, assignment in found.assignments.items():
        if found.is_ours(assignment):
            continue
        if found.is_paused(assignment):
            if not assignment.stop:
                yield _withdraw(assignment, None, lease_revision, f"app {assignment.app} is paused")
            continue
        held = found.held_apps.get(assignment.app)
        cause = held or f"app {assignment.app} no longer wants it"
        if found.is_over(assignment):
            yield Discard(name, cause, assignment.app)
        elif not assignment.stop:
            yield _withdraw(assignment, None, lease_revision, cause)


def _forms(found: ClusterState, snapshot: ClusterSnapshot) -> Iterator[Action]:
    """Write group revisions before instances of them are placed; delete them after the last."""
    written = {(f.value.app, f.value.group): f.value for f in snapshot.forms}
    for at in dict.fromkeys((w.form.app, w.form.group) for w in found.wanted.values()):
        if written.get(at) != found.forms[at]:
            yield WriteGroupForm(found.forms[at], "deployed")
    apps = {app.value.spec.name: app.value for app in snapshot.apps}
    assigned = {(a.app, a.group) for a in found.assignments.values()}
    for at, form in written.items():
        app = apps.get(form.app)
        # A group that is restored starts without the revisions that it had.
        is_there = app is not None and not app.deleting and not app.held
        is_wanted = app is not None and is_there and app.spec.group(form.group) is not None
        if not is_wanted and at not in assigned:
            yield DropForm(form.app, form.group, f"app {form.app} no longer wants it")


def _changes(found: ClusterState, lease_revision: int) -> Iterator[Action]:
    """Stop the groups that change their revision, and write the new one when all have stopped.

    Instances that have to run once more in the old revision get a ``Place`` where placement chose.
    """
    for at, change in found.changes.items():
        cause = group_revisions.describe_change(change.form.spec, change.becomes)
        for assignment in change.live:
            if assignment.stop or not found.is_ours(assignment):
                continue
            if assignment.until is None or _fails(found, assignment):
                yield _withdraw(assignment, None, lease_revision, cause)
            elif found.nodes[assignment.worker].leaving:
                # Not counted as failed, like a withdrawn instance with ``until``: it runs on
                # elsewhere.
                yield _withdraw(replace(assignment, until=None), None, lease_revision, cause)
        if change.live:
            continue
        for name, until in change.left.items():
            worker = found.placement.where.get(name)
            if worker is not None:
                wanted, before = found.wanted[name], found.assignments.get(name)
                yield _place(found, wanted, worker, before, lease_revision, until)
        if change.has_drained and not change.adopts:
            epochs = [a.epoch for a in found.assignments.values() if (a.app, a.group) == at]
            statuses = [s for n, s in found.statuses.items() if n in change.stops]
            epochs += [e for s in statuses for e in (s.epoch, s.newer_epoch)]
            epoch = max([change.form.epoch, *epochs]) + 1
            shape = group_revisions.next_revision(
                change.form, change.becomes, change.stops, epoch, cause
            )
            yield WriteGroupForm(shape, cause)


def _fails(found: ClusterState, assignment: Assignment) -> bool:
    """Whether an instance that runs up to a position, where it would stop, can't get there."""
    status = found.statuses.get(assignment.instance)
    return (
        status is not None
        and status.epoch == assignment.epoch
        and status.state is InstanceState.RETRYING
        and status.restarts > 1
    )


def _moves(found: ClusterState, snapshot: ClusterSnapshot, settings: Settings) -> Iterator[Action]:
    """Place the instances without a place, and withdraw those that are in the wrong place."""
    assert snapshot.lease is not None, "only a leader decides"
    lease_revision = snapshot.lease.revision
    capacity = {host.name: host.capacity for host in found.hosts}
    busy = Counter(a.worker for a in found.assignments.values() if not found.is_over(a))
    free_moves = settings.manager.moves_at_once - _moving(found, snapshot)
    for action in _changes(found, lease_revision):
        if isinstance(action, Place):
            worker = action.assignment.worker
            if capacity[worker] and busy[worker] >= capacity[worker]:
                continue
            busy[worker] += 1
        yield action
    for name, wanted in found.wanted.items():
        if wanted.becomes is not None:
            continue
        before = found.assignments.get(name)
        target = found.placement.where.get(name)
        if target is None:
            continue
        # An instance that is being stopped still has its seat.
        has_room = not capacity[target] or busy[target] < capacity[target]
        if before is None or found.is_over(before):
            if has_room:
                busy[target] += 1
                yield _place(found, wanted, target, before, lease_revision)
        elif (
            not before.stop
            and before.until is None
            and target != before.worker
            and found.is_ours(before)
        ):
            node = found.nodes[before.worker]
            # An instance that doesn't run doesn't count as moving: it waits for a session, here or
            # there.
            if node.leaving or (has_room and (free_moves > 0 or not node.ready)):
                free_moves -= node.ready
                yield _withdraw(before, target, lease_revision, _why_moved(found, before))


def _moving(found: ClusterState, snapshot: ClusterSnapshot) -> int:
    """The number of instances that are moving, without those that have been for too long."""
    settled = (InstanceState.RUNNING, InstanceState.RETRYING)
    count = 0
    for seen in snapshot.assignments:
        assignment = seen.value
        if snapshot.now_s - seen.seen_at_s >= MOVE_S or found.is_paused(assignment):
            continue
        status = found.statuses.get(assignment.instance)
        runs = (
            not assignment.stop
            and status is not None
            and status.epoch == assignment.epoch
            and status.state in settled
        )
        count += not runs
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
    found: ClusterState,
    wanted: Wanted,
    worker: str,
    before: Assignment | None,
    lease_revision: int,
    until: Mapping[str, int] | None = None,
) -> Place:
    instance = wanted.need.instance
    form = wanted.form
    # An epoch is greater than every earlier one, also of a placement that was deleted since: lease
    # revisions grow, and an instance that ran has reported.  If NATS loses both, the marker of the
    # earlier epoch refuses the instance; see ``_behind``.
    epoch = max(lease_revision, form.epoch, before.epoch + 1 if before is not None else 0)
    status = found.statuses.get(instance)
    if status is not None:
        epoch = max(epoch, _epoch_above(status))
    cause = _why_placed(found, form, before, worker)
    if until is not None:
        cause = "to reach the position of the rest of its group" if until else "to store its state"
    return Place(
        Assignment(
            instance=instance,
            app=wanted.app.spec.name,
            group=form.group,
            index=wanted.index,
            app_incarnation=wanted.app.incarnation,
            worker=worker,
            epoch=epoch,
            lease_revision=lease_revision,
            worker_incarnation=found.nodes[worker].incarnation,
            cause=cause,
            skips=wanted.app.skips,
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
    found: ClusterState, form: GroupForm, before: Assignment | None, worker: str
) -> str:
    if before is None or not found.is_ours(before) or before.form != form.number:
        return form.cause or "deployed"
    node = found.nodes.get(before.worker)
    if node is None:
        return f"worker {before.worker} is gone{_ready(found, before.instance, worker)}"
    if before.worker_incarnation not in ("", node.incarnation):
        return f"worker {before.worker} was started again"
    return f"{before.worker} has stopped it: {before.cause}"


def _ready(found: ClusterState, instance: str, worker: str) -> str:
    return f", {worker} was its standby" if found.standing_by.get(instance) == worker else ""


def _why_moved(found: ClusterState, before: Assignment) -> str:
    cause = found.placement.moved.get(before.instance)
    if cause is not None:
        return f"worker {cause}"
    why = next((host.why for host in found.hosts if host.name == before.worker), "")
    return f"worker {before.worker} {why}".strip() if why else f"no longer fits {before.worker}"
