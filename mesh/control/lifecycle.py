"""An app's state, derived from what is desired, placed and reported.

There is no stored state to go stale: the same records always give the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from mesh.model.cluster import InstanceState, InstanceStatus

if TYPE_CHECKING:
    from mesh.control.snapshot import ClusterSnapshot
    from mesh.model.cluster import AppRecord, Assignment


class AppState(StrEnum):
    """What a person is told of an app."""

    #: Something can't be placed, or its worker hasn't answered.
    WAITING = "waiting"
    #: All is placed; some instances are still coming up.
    STARTING = "starting"
    #: Every instance runs.
    RUNNING = "running"
    #: Some instance fails again and again.
    FAILING = "failing"
    #: It was undeployed and is being taken apart.
    UNDEPLOYING = "undeploying"


@dataclass(frozen=True, slots=True)
class InstanceView:
    """One instance with what is known of it."""

    instance: str
    group: str
    #: None while it is not placed.
    worker: str | None
    epoch: int | None
    state: str
    error: str | None = None
    restarts: int = 0
    messages_in: int = 0
    rows_out: int = 0
    behind: int = 0
    batch_ms_p50: float | None = None
    errors: int = 0


@dataclass(frozen=True, slots=True)
class AppStatus:
    """An app with its instances."""

    app: str
    state: AppState
    #: Why it is not running; None when it is.
    reason: str | None
    instances: tuple[InstanceView, ...]


def app_status(
    snapshot: ClusterSnapshot, app: AppRecord, ready: int, min_workers: int
) -> AppStatus:
    """The state of ``app``.

    Args:
        snapshot: the view of any manager.
        app: its desired state.
        ready: how many workers are ready.
        min_workers: how many there must be before anything is placed.
    """
    assignments = {
        a.value.instance: a.value
        for a in snapshot.assignments
        if a.value.app_incarnation == app.incarnation
    }
    views = tuple(
        _view(group.name, name, assignments.get(name), snapshot)
        for group in app.spec.groups
        for name in group.instances
    )
    states = {view.state for view in views}
    failing = next((view for view in views if view.state == InstanceState.RETRYING), None)
    if app.deleting:
        return AppStatus(app.spec.name, AppState.UNDEPLOYING, "being taken apart", views)
    if "unplaced" in states:
        reason = f"{ready} of at least {min_workers} workers ready"
        return AppStatus(app.spec.name, AppState.WAITING, reason, views)
    if failing is not None:
        return AppStatus(
            app.spec.name, AppState.FAILING, f"{failing.instance}: {failing.error}", views
        )
    if states - {InstanceState.RUNNING.value}:
        coming = [view.instance for view in views if view.state != InstanceState.RUNNING]
        return AppStatus(
            app.spec.name, AppState.STARTING, f"{', '.join(coming)} not running yet", views
        )
    return AppStatus(app.spec.name, AppState.RUNNING, None, views)


def _view(
    group: str, instance: str, assignment: Assignment | None, snapshot: ClusterSnapshot
) -> InstanceView:
    if assignment is None:
        return InstanceView(instance, group, None, None, "unplaced")
    status: InstanceStatus | None = snapshot.status(assignment)
    if status is None:
        return InstanceView(instance, group, assignment.worker, assignment.epoch, "assigned")
    return InstanceView(
        instance,
        group,
        assignment.worker,
        assignment.epoch,
        status.state.value,
        status.error,
        status.restarts,
        status.messages_in,
        status.rows_out,
        status.behind,
        status.batch_ms_p50,
        status.errors,
    )
