"""State of an app, derived from the desired, placed and reported records.

No state is stored, so none can go stale: the same records always give the same answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from mesh.control import standby
from mesh.control.group_revisions import describe_change
from mesh.control.verification import KINDS, app_streams
from mesh.model.cluster import InstanceState, InstanceStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mesh.control.cluster_state import ClusterState
    from mesh.control.standby import StandbyView
    from mesh.model.app import GroupSpec
    from mesh.model.cluster import AppRecord, ConnectorStatus, ElementCounts

#: States of an instance beside those that a worker reports: it has no place;
UNPLACED: Final = "unplaced"
#: it has one, and its worker has not answered;
ASSIGNED: Final = "assigned"
#: it is leaving the one it has;
STOPPING: Final = "stopping"
#: its app is paused, and it has stopped.
PAUSED: Final = "paused"
#: The connector's error for a stream that is not there; the exception crosses Spark as text.
_QUOTED: Final = re.compile(r'JetStream stream "([^"]+)" does not exist')


class AppState(StrEnum):
    """The states of an app as users see them."""

    #: Something can't be placed.
    WAITING = "waiting"
    #: Every instance has a place; some are still starting or moving.
    STARTING = "starting"
    #: Every instance runs.
    RUNNING = "running"
    #: Some instance fails again and again.
    FAILING = "failing"
    #: No instance runs while its state is restored.
    RESTORING = "restoring"
    #: A group stops, to continue as more or fewer instances, or with another text.
    RESCALING = "rescaling"
    #: Its instances are stopped until it is resumed.
    PAUSED = "paused"
    #: It was undeployed and is being removed.
    UNDEPLOYING = "undeploying"


@dataclass(frozen=True, slots=True)
class InstanceView:
    """One instance with all that is known about it."""

    instance: str
    group: str
    #: None while it is not placed.
    worker: str | None
    epoch: int | None
    state: str
    error: str | None = None
    restarts: int = 0
    events_in: int = 0
    events_out: int = 0
    errors: int = 0
    behind: int = 0
    batch_ms_p50: float | None = None
    #: Durations of its batches by bucket (``mesh.model.histogram``), and their sum, seconds.
    batches: tuple[int, ...] = ()
    batches_sum_s: float = 0.0
    #: Times from the broker's storing of an event to the publishing of its effect, likewise.
    latencies: tuple[int, ...] = ()
    latencies_sum_s: float = 0.0
    #: Size of its stored state; 0 for a group without state.
    state_bytes: int = 0
    #: With statistics DETAIL alone.
    elements: tuple[ElementCounts, ...] = ()
    #: Why it is not placed, or on the move.
    reason: str | None = None
    #: The change that would give it a place.
    cure: str | None = None
    #: The worker of its standby, and the copied part of its state: snapshots and bytes.
    standby: str | None = None
    standby_snapshots: int = 0
    standby_bytes: int = 0
    #: Why it has no standby although its group wants one.
    standby_reason: str | None = None
    #: When one that has failed is started again, milliseconds since 1970.
    retry_at_ms: int | None = None
    #: Its source, or its sink's destinations.
    connectors: tuple[ConnectorStatus, ...] = ()


#: Names of the fields of a view that are as the worker has reported them.
_REPORTED: Final = tuple(
    {one.name for one in fields(InstanceView)} & {one.name for one in fields(InstanceStatus)}
    - {"instance", "worker", "epoch", "state"}
)  # fmt: skip
_values_of: Final = attrgetter(*_REPORTED)


@dataclass(frozen=True, slots=True)
class AppStatus:
    """An app with its instances."""

    app: str
    state: AppState
    #: Why it is not running; None when it is.
    reason: str | None
    instances: tuple[InstanceView, ...]
    #: The remedy that would make it run, if a person has to act.
    cure: str | None = None
    #: Its metrics: ``OFF``, ``BASIC`` or ``DETAIL``.
    statistics: str = "BASIC"
    #: When it was deployed, milliseconds since 1970; 0 if unknown.
    deployed_at_ms: int = 0


def app_statuses(cluster: ClusterState, apps: Iterable[AppRecord]) -> list[AppStatus]:
    """The states of several apps; arguments as for ``app_status``."""
    standing_by = standby.views(cluster)
    return [_with_record(_status(cluster, app, standing_by), app) for app in apps]


def app_status(cluster: ClusterState, app: AppRecord) -> AppStatus:
    """The state of ``app``.

    Args:
        cluster: as any manager sees it.
        app: the app's desired state.
    """
    return _with_record(_status(cluster, app, standby.views(cluster)), app)


def _with_record(status: AppStatus, app: AppRecord) -> AppStatus:
    level = app.statistics.value
    return replace(status, statistics=level, deployed_at_ms=app.deployed_at_ms)


def _status(
    cluster: ClusterState, app: AppRecord, standing_by: Mapping[str, StandbyView]
) -> AppStatus:
    views = tuple(
        _with_standby(_view(group.name, name, app, cluster), standing_by.get(name))
        for group in app.spec.groups
        for name in cluster.forms[group.app, group.name].spec.instances
    )
    name = app.spec.name
    if app.deleting:
        return AppStatus(name, AppState.UNDEPLOYING, "being removed", views)
    if app.making:
        cure = "if its manager died meanwhile, deploy it again"
        return AppStatus(name, AppState.STARTING, app.held, views, cure)
    if app.held:
        return AppStatus(
            name,
            AppState.RESTORING,
            app.held,
            views,
            "if the restore was interrupted, run 'mesh restore' again",
        )
    if app.paused:
        stopping = ", ".join(view.instance for view in views if view.state == STOPPING)
        waits = f"{stopping} to stop; " if stopping else ""
        reason = f"{waits}'mesh resume {name}' continues it"
        return AppStatus(name, AppState.PAUSED, reason, views)
    unplaced = next((view for view in views if view.state == UNPLACED), None)
    if unplaced is not None:
        reason = f"{unplaced.instance}: {unplaced.reason}"
        return AppStatus(name, AppState.WAITING, reason, views, unplaced.cure)
    failing = next((view for view in views if view.state == InstanceState.RETRYING), None)
    if failing is not None:
        reason = f"{failing.instance}: {failing.error}"
        return AppStatus(name, AppState.FAILING, reason, views, cure_of(failing, app))
    changing = [_change(group, views, cluster) for group in app.spec.groups]
    if any(changing):
        return AppStatus(name, AppState.RESCALING, "; ".join(filter(None, changing)), views)
    coming = [view for view in views if view.state != InstanceState.RUNNING]
    if coming:
        reason = f"{', '.join(view.instance for view in coming)} not running yet"
        moving = next((view.reason for view in coming if view.reason), None)
        reason += f"; {moving}" if moving else ""
        return AppStatus(name, AppState.STARTING, reason, views)
    return AppStatus(name, AppState.RUNNING, None, views)


def cure_of(failing: InstanceView, app: AppRecord) -> str | None:
    """The remedy of a failure that only a person can end; None for others."""
    streams = app_streams(app.spec)
    if any(name in streams for name in _QUOTED.findall(failing.error or "")):
        _, remedy = KINDS["stream-missing"]
        return remedy.format(app=app.spec.name)
    return None


def _with_standby(view: InstanceView, standby: StandbyView | None) -> InstanceView:
    if standby is None:
        return view
    return replace(
        view,
        standby=standby.worker,
        standby_snapshots=standby.snapshots,
        standby_bytes=standby.bytes,
        standby_reason=standby.reason,
    )


def _change(desired: GroupSpec, views: tuple[InstanceView, ...], cluster: ClusterState) -> str:
    """The pending change of a group and its condition; empty if there is no change."""
    old = cluster.forms[desired.app, desired.name].spec
    if old == desired:
        return ""
    running = [v.instance for v in views if v.group == desired.name and v.worker is not None]
    waits = f": {', '.join(running)} to stop" if running else ""
    return f"{describe_change(old, desired)}{waits}"


def _unplaced(group: str, instance: str, app: AppRecord, cluster: ClusterState) -> InstanceView:
    """An instance without a place, and why."""
    waiting, desired = cluster.placement.waiting.get(instance), cluster.desired.get(instance)
    target = cluster.placement.where.get(instance)
    reason = cure = None
    if desired is not None and desired.app.incarnation != app.incarnation:
        reason = f"app {desired.app.spec.name} has an instance of this name"
        cure = "rename the app or its group, and deploy it again"
    elif waiting is not None:
        reason, cure = waiting.reason, waiting.cure
    elif target is not None:
        reason = f"a manager is about to place it on {target}"
    return InstanceView(instance, group, None, None, UNPLACED, reason=reason, cure=cure)


def _view(group: str, instance: str, app: AppRecord, cluster: ClusterState) -> InstanceView:
    assignment = cluster.assignments.get(instance)
    if assignment is not None and assignment.app_incarnation != app.incarnation:
        assignment = None
    waiting = cluster.placement.waiting.get(instance)
    if assignment is not None and assignment.stop and not cluster.is_over(assignment):
        reason = f"{assignment.worker} has to stop it: {assignment.cause}"
        return InstanceView(
            instance, group, assignment.worker, assignment.epoch, STOPPING, reason=reason
        )
    if app.paused:
        worker = assignment.worker if assignment is not None else None
        return InstanceView(instance, group, worker, None, PAUSED)
    if assignment is None or waiting is not None:
        return _unplaced(group, instance, app, cluster)
    if assignment.stop:
        return InstanceView(
            instance, group, None, assignment.epoch, STOPPING, reason="it is placed next"
        )
    stuck = cluster.placement.stuck.get(instance)
    why, cure = "", None
    if stuck is not None:
        why, cure = f"it is to leave {assignment.worker}, but {stuck.reason}", stuck.cure
    status = cluster.statuses.get(instance)
    # Made in one go: there are thousands in each look at the cluster.
    state, reported = ASSIGNED, dict[str, Any]()
    if status is not None and status.epoch == assignment.epoch:
        state, reported = status.state.value, dict(zip(_REPORTED, _values_of(status), strict=True))
    return InstanceView(
        instance, group, assignment.worker, assignment.epoch, state, reason=why or None, cure=cure,
        **reported,
    )  # fmt: skip
