"""Duties of a worker for its assignments, decided from its view and its session's instances."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mesh.control.cluster_state import cluster_state_of
from mesh.model.cluster import Assignment, InstanceState, InstanceStatus, NodeRole

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from mesh.control.snapshot import ClusterSnapshot
    from mesh.model.app import GroupSpec
    from mesh.settings import Settings


@dataclass(frozen=True, slots=True)
class Start:
    """Start this in the session; an older epoch of it is stopped first."""

    assignment: Assignment
    group: GroupSpec


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop this in the session."""

    assignment: Assignment
    #: Whether the session may spend time on draining, so that the next owner needs no replay.
    settle: bool


@dataclass(frozen=True, slots=True)
class ReportStatus:
    """Write a report in place of the session: an instance that it doesn't run has stopped."""

    status: InstanceStatus


Duty = Start | Stop | ReportStatus


def decide(
    snapshot: ClusterSnapshot,
    me: str,
    incarnation: str,
    running: Mapping[str, Assignment],
    stopping: Collection[str],
    *,
    may_start: bool,
    at_ms: int,
) -> Iterator[Duty]:
    """Decide the next duties of worker ``me``.

    Args:
        snapshot: its view.
        me: its name.
        incarnation: of its process.
        running: instances that the session was instructed to run and not to stop, by name.
        stopping: instances that the session was instructed to stop and has not reported as stopped.
        may_start: whether the session is warm and the worker's term is not over.
        at_ms: the worker's wall clock, for reports.
    """
    mine = {
        a.value.instance: a.value
        for a in snapshot.assignments
        if a.value.worker == me and a.value.worker_incarnation in ("", incarnation)
    }
    for name, assignment in running.items():
        assigned = mine.get(name)
        if assigned is None or assigned.stop:
            app = snapshot.app(assignment.app)
            # An instance that was placed elsewhere must not continue; one that is undeployed need
            # not.
            is_desired = app is not None and not app.value.deleting
            yield Stop(assignment, settle=assigned is not None and is_desired)
    statuses = {s.value.instance: s.value for s in snapshot.statuses}
    for name, assigned in mine.items():
        current = running.get(name)
        if assigned.stop:
            if (
                current is None
                and name not in stopping
                and not _has_reported(statuses.get(name), assigned)
            ):
                yield ReportStatus(_stopped(assigned, statuses.get(name), at_ms))
        elif (
            may_start
            # One run at a time: otherwise a report of STOPPED would not identify its run.
            and name not in stopping
            and (current is None or current.epoch < assigned.epoch)
            and not has_ended(statuses.get(name), assigned)
            and not _is_past(statuses.get(name), assigned)
        ):
            # The group revision is written earlier, but may be replaced or deleted by now.
            form = snapshot.form(assigned)
            if form is not None:
                yield Start(assigned, form.spec)
    # This session will not report instances of an earlier session that are not desired any more.
    for name, status in statuses.items():
        is_left = status.worker == me and status.state is not InstanceState.STOPPED
        if is_left and name not in mine and name not in running and name not in stopping:
            yield ReportStatus(replace(status, state=InstanceState.STOPPED, at_ms=at_ms))


def _has_reported(status: InstanceStatus | None, assigned: Assignment) -> bool:
    return (
        status is not None
        and status.epoch >= assigned.epoch
        and (status.state is InstanceState.STOPPED or status.epoch > assigned.epoch)
    )


def has_stopped(status: InstanceStatus, epoch: int) -> bool:
    """Whether this report answers the request to stop the instance that runs in ``epoch``.

    A report of an older epoch is about an earlier run, which was replaced.
    """
    return status.state is InstanceState.STOPPED and status.epoch >= epoch


def has_ended(status: InstanceStatus | None, assigned: Assignment) -> bool:
    """Whether an instance that runs only up to a position has ended its run and reported that.

    It has one run in an epoch, wherever that ends.  The leader counts the run as over
    (``ClusterState.is_over``), frees its seat, and places the instance where it shall continue.
    """
    return (
        assigned.until is not None
        and status is not None
        and status.epoch == assigned.epoch
        and status.state is InstanceState.STOPPED
    )


def _is_past(status: InstanceStatus | None, assigned: Assignment) -> bool:
    """Whether there is a report of a later epoch, whose assignment has not arrived here yet."""
    return status is not None and status.epoch > assigned.epoch


def _stopped(assigned: Assignment, last: InstanceStatus | None, at_ms: int) -> InstanceStatus:
    """The report of a requested stop, in its epoch, with the position if it has drained."""
    has_settled = (
        last is not None
        and last.state is InstanceState.STOPPED
        and last.settled
        and (last.worker, last.epoch) == (assigned.worker, assigned.placed_epoch)
    )
    return InstanceStatus(
        instance=assigned.instance,
        app=assigned.app,
        worker=assigned.worker,
        epoch=assigned.epoch,
        state=InstanceState.STOPPED,
        at_ms=at_ms,
        settled=has_settled,
        position=last.position if last is not None and has_settled else {},
    )


def has_handed_over(
    snapshot: ClusterSnapshot, me: str, settings: Settings, passed_s: float
) -> bool:
    """Whether worker ``me`` has nothing left that another worker would take over.

    Args:
        snapshot: its view.
        me: its name.
        settings: times.
        passed_s: time since its request to end, seconds.
    """
    record = snapshot.node(NodeRole.WORKER, me)
    if record is None or not record.value.leaving:
        # A worker that can't report to the cluster that it is leaving waits for a term.
        return passed_s >= settings.worker.ttl_s
    return not handover_pending(snapshot, me, settings)


def handover_pending(snapshot: ClusterSnapshot, me: str, settings: Settings) -> bool:
    """Whether an instance of worker ``me`` is about to be moved elsewhere.

    Args:
        snapshot: its view, in which its own record is marked as leaving.
        me: its name.
        settings: times.
    """
    lease = snapshot.lease
    if lease is None or lease.value is None:
        return False
    if snapshot.now_s >= lease.seen_at_s + settings.manager.lease_ttl_s:
        return False
    cluster = cluster_state_of(snapshot, settings)
    return any(
        not cluster.is_over(assignment)
        and (assignment.stop or cluster.placement.where.get(name) not in (None, me))
        for name, assignment in cluster.assignments.items()
        if assignment.worker == me
    )
