"""The leader's one decision: from what is, to what must be done next.

Called again after each change of the snapshot; an action that isn't performed, or whose write lost
its race, is simply asked for again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.control.actions import Action, ForgetNode, Place, RemoveApp, Withdraw
from mesh.control.membership import Presence, presence, ready_workers, workers
from mesh.control.placement import place
from mesh.model.cluster import Assignment, InstanceState

if TYPE_CHECKING:
    from mesh.control.snapshot import ClusterSnapshot
    from mesh.model.app import GroupSpec
    from mesh.model.cluster import AppRecord
    from mesh.settings import Settings

#: A node's record is kept this long after it is gone, for people who look.
FORGET_AFTER_S = 60.0


def decide(snapshot: ClusterSnapshot, settings: Settings) -> list[Action]:
    """What the leader does now, in order.

    Args:
        snapshot: the view of the manager that holds the lease.
        settings: times and limits.
    """
    ttl_s, margin_s = settings.worker.ttl_s, settings.worker.margin_s
    grades = workers(snapshot, ttl_s, margin_s)
    ready = ready_workers(snapshot, ttl_s, margin_s)
    current = {a.value.instance: a.value for a in snapshot.assignments}
    wanted = _wanted(snapshot)
    # Reports count too: what an app that is being undeployed ran has no assignment any more.
    named = {a.worker for a in current.values()} | {s.value.worker for s in snapshot.statuses}
    gone = {worker for worker in named if grades.get(worker, Presence.GONE) is Presence.GONE}

    actions: list[Action] = []
    actions.extend(
        Withdraw(name, f"app {assignment.app} no longer wants it")
        for name, assignment in current.items()
        if name not in wanted or wanted[name][0].incarnation != assignment.app_incarnation
    )

    placed = {
        name: a.worker
        for name, a in current.items()
        if name in wanted and wanted[name][0].incarnation == a.app_incarnation
    }
    enough = len(ready) >= settings.manager.min_workers
    # What ran already goes on with fewer workers; only what is new waits for enough of them.
    placeable = tuple(name for name in wanted if enough or name in placed)
    target = place(placeable, placed, ready, gone)
    actions.extend(
        _place(snapshot, name, worker, wanted[name], current.get(name), gone)
        for name, worker in target.items()
        if placed.get(name) != worker
    )

    actions.extend(
        RemoveApp(app.value, app.revision, "undeployed")
        for app in snapshot.apps
        if app.value.deleting and _has_stopped(snapshot, app.value, gone)
    )
    for node in snapshot.nodes:
        grade = presence(node, snapshot.now_s, ttl_s, margin_s + FORGET_AFTER_S)
        if grade is Presence.GONE:
            actions.append(ForgetNode(node.value.role, node.value.id, "gone for long"))
    return actions


def next_deadline_s(snapshot: ClusterSnapshot, settings: Settings) -> float:
    """When the passing of time alone may change the decision, on the observer's clock."""
    worker = settings.worker
    ages = (worker.ttl_s, worker.ttl_s + worker.margin_s)
    ends = (node.seen_at_s + age for node in snapshot.nodes for age in ages)
    return min((end for end in ends if end > snapshot.now_s), default=snapshot.now_s + 60.0)


def _wanted(snapshot: ClusterSnapshot) -> dict[str, tuple[AppRecord, GroupSpec, int]]:
    """Every instance that should run, apps in the order they were deployed."""
    apps = sorted(snapshot.apps, key=lambda a: (a.value.deployed_at_ms, a.value.spec.name))
    return {
        instance: (app.value, group, index)
        for app in apps
        if not app.value.deleting
        for group in app.value.spec.groups
        for index, instance in enumerate(group.instances, 1)
    }


def _place(
    snapshot: ClusterSnapshot,
    instance: str,
    worker: str,
    wanted: tuple[AppRecord, GroupSpec, int],
    before: Assignment | None,
    gone: set[str],
) -> Place:
    assert snapshot.lease is not None, "only a leader places"
    app, group, index = wanted
    # An epoch is above every earlier one, also of a placement that was withdrawn since: revisions
    # of the lease only grow.
    epoch = max(snapshot.lease.revision, before.epoch + 1 if before is not None else 0)
    if before is None:
        cause = "deployed"
    elif before.worker in gone:
        cause = f"worker {before.worker} is gone"
    else:
        cause = f"worker {before.worker} has more than its share"
    return Place(
        Assignment(
            instance=instance,
            app=app.spec.name,
            group=group.name,
            index=index,
            app_incarnation=app.incarnation,
            worker=worker,
            epoch=epoch,
            lease_revision=snapshot.lease.revision,
        ),
        cause,
    )


def _has_stopped(snapshot: ClusterSnapshot, app: AppRecord, gone: set[str]) -> bool:
    """Whether no instance of the app is assigned, or reported as anything but stopped."""
    name = app.spec.name
    if any(a.value.app == name for a in snapshot.assignments):
        return False
    return all(
        s.value.state is InstanceState.STOPPED
        or s.value.worker in gone
        or not any(n.value.id == s.value.worker for n in snapshot.nodes)
        for s in snapshot.statuses
        if s.value.app == name
    )
