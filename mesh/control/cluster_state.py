"""Desired placement, actual placement and their difference; shared by reconcile and status."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mesh.control.group_revisions import StopOutcome, instances_to_catch_up
from mesh.control.placement import Admits, Need, Placement, Waiting, candidates, place, ready
from mesh.model.app import GroupKind
from mesh.model.cluster import GroupForm, InstanceState, NodeRole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.control.placement import Candidate
    from mesh.control.snapshot import ClusterSnapshot
    from mesh.model.app import GroupSpec
    from mesh.model.cluster import (
        AppRecord,
        Assignment,
        InstanceStatus,
        NodeRecord,
        Standby,
        StandbyStatus,
    )
    from mesh.settings import Settings


@dataclass(frozen=True, slots=True)
class DesiredInstance:
    """An instance that should run."""

    app: AppRecord
    #: The group revision of the instance.
    form: GroupForm
    #: 1 to ``parallel``.
    index: int
    #: It as placement sees it.
    need: Need
    #: The desired group; None if the revision is the desired one.
    becomes: GroupSpec | None = None


@dataclass(frozen=True, slots=True)
class ChangingGroup:
    """A group that is changing its revision."""

    form: GroupForm
    becomes: GroupSpec
    #: Its instances that are not over.
    live: tuple[Assignment, ...]
    #: The end of each instance, by name, once none is live;
    stops: Mapping[str, StopOutcome]
    #: the instances that must run once more, and the position to run up to.
    left: Mapping[str, Mapping[str, int]]
    #: Whether its next revision waits for a state that a manager stores.
    adopts: bool = False

    @property
    def has_drained(self) -> bool:
        """Whether its next revision may begin, but for such a state."""
        return not (self.live or self.left)


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The cluster, read once."""

    hosts: tuple[Candidate, ...]
    #: Present workers, by name.
    nodes: Mapping[str, NodeRecord]
    #: Apps in the order they were deployed, their instances in the order written: those of the
    #: revisions that the groups have, also of groups that are changing their revision.
    desired: Mapping[str, DesiredInstance]
    #: By app and group; only desired groups.
    forms: Mapping[tuple[str, str], GroupForm]
    assignments: Mapping[str, Assignment]
    statuses: Mapping[str, InstanceStatus]
    #: Groups that are changing their revision, by app and group.
    changes: Mapping[tuple[str, str], ChangingGroup]
    placement: Placement
    #: Standbys by instance, and the copies that they hold.
    standbys: Mapping[str, Standby]
    held: Mapping[str, StandbyStatus]
    #: Instance to the worker of its standby.
    standing_by: Mapping[str, str]
    #: Apps of which nothing is to run, with why.
    held_apps: Mapping[str, str]
    #: Paused apps, with their incarnations.
    paused_apps: Mapping[str, str] = field(default_factory=dict)

    def is_over(self, assignment: Assignment) -> bool:
        """Whether no instance runs for ``assignment`` any more, or its writes are ignored.

        Either its worker is gone or was restarted, or it has reported a stop that was requested, at
        once or at a position.  That report must be of the epoch of the request: an older one may be
        from before.
        """
        node = self.nodes.get(assignment.worker)
        if node is None:
            return True
        if assignment.worker_incarnation not in ("", node.incarnation):
            return True
        form = self.forms.get((assignment.app, assignment.group))
        if form is not None and self.is_ours(assignment) and assignment.form < form.number:
            # A group revision is replaced only when all instances of the old one are over.
            return True
        status = self.statuses.get(assignment.instance)
        return (
            (assignment.stop or assignment.until is not None)
            and status is not None
            and status.state is InstanceState.STOPPED
            and status.epoch == assignment.epoch
        )

    def settled_at(self, assignment: Assignment) -> Mapping[str, int] | None:
        """Position at which ``assignment``, which is over, has drained; None if it has not."""
        status = self.statuses.get(assignment.instance)
        if status is None or status.state is not InstanceState.STOPPED or not status.settled:
            return None
        # Its worker may have ended before it could answer in the epoch of the request.
        epochs = (assignment.epoch, assignment.placed_epoch)
        return status.position if status.epoch in epochs else None

    def is_paused(self, assignment: Assignment) -> bool:
        """Whether ``assignment`` is of a paused app: it stays, stopped, until that is resumed."""
        return self.paused_apps.get(assignment.app) == assignment.app_incarnation

    def is_ours(self, assignment: Assignment) -> bool:
        """Whether ``assignment`` is of a desired app, not of an earlier one of the same name."""
        desired = self.desired.get(assignment.instance)
        return desired is not None and desired.app.incarnation == assignment.app_incarnation


def cluster_state_of(snapshot: ClusterSnapshot, settings: Settings) -> ClusterState:
    """Read ``snapshot``, and place the desired instances."""
    hosts = candidates(snapshot, settings)
    there = {host.name for host in hosts}
    are_open = {host.name for host in hosts if host.admits is Admits.OPEN}
    forms = _forms(snapshot)
    desired = _desired_instances(snapshot, forms)
    assignments = {a.value.instance: a.value for a in snapshot.assignments}
    cluster = ClusterState(
        hosts=hosts,
        nodes={
            n.value.id: n.value
            for n in snapshot.nodes
            if n.value.role is NodeRole.WORKER and n.value.id in there
        },
        desired=desired,
        forms=forms,
        assignments=assignments,
        statuses={s.value.instance: s.value for s in snapshot.statuses},
        changes={},
        placement=Placement({}, {}, {}, {}),
        standbys={s.value.instance: s.value for s in snapshot.standbys},
        held={h.value.instance: h.value for h in snapshot.held},
        standing_by=_standing_by(snapshot, desired),
        held_apps={a.value.spec.name: a.value.held for a in snapshot.apps if a.value.held},
        paused_apps={
            a.value.spec.name: a.value.incarnation
            for a in snapshot.apps
            if a.value.paused and not (a.value.deleting or a.value.held)
        },
    )
    changes = _changes(cluster)
    current = {}
    for name, assignment in assignments.items():
        item = desired.get(name)
        if item is not None and item.app.incarnation == assignment.app_incarnation:
            # An instance that is moving has a seat at its destination, not at its origin.
            if not assignment.stop:
                # An instance that has run up to its position has freed its seat; so has one of an
                # earlier group revision whose process has ended.
                is_earlier = assignment.form < item.form.number
                has_freed = assignment.until is not None or is_earlier
                if not has_freed or not cluster.is_over(assignment):
                    current[name] = assignment.worker
            elif assignment.next_worker in are_open:
                current[name] = assignment.next_worker
    # Without workers, placement itself gives the best reason why an instance can't be placed.
    new = {name: w for name, w in desired.items() if name not in assignments}
    # Instances that ran already continue on fewer workers; only new ones wait for enough of them.
    too_few = _too_few(new, ready(hosts), settings.manager.min_workers, "workers")
    receivers = {name: w for name, w in new.items() if w.need.is_receiver and name not in too_few}
    takers = tuple(host for host in hosts if host.takes_receivers)
    too_few |= _too_few(receivers, ready(takers), settings.manager.min_receivers, "receivers")
    needs = tuple(
        w.need
        for name, w in desired.items()
        if name not in too_few and _needs_place(name, w, changes)
    )
    formers = {name: assignment.former for name, assignment in assignments.items()}
    placement = place(needs, current, hosts, cluster.standing_by, formers)
    placement.waiting.update(too_few)
    return replace(cluster, changes=changes, placement=placement)


def _changes(cluster: ClusterState) -> dict[tuple[str, str], ChangingGroup]:
    changes = {}
    for at in dict.fromkeys(
        (w.form.app, w.form.group) for w in cluster.desired.values() if w.becomes
    ):
        group = {n: w for n, w in cluster.desired.items() if (w.form.app, w.form.group) == at}
        instances = {name: cluster.assignments.get(name) for name in group}
        form, becomes = cluster.forms[at], next(w.becomes for w in group.values())
        assert becomes is not None, "a group that changes has something to become"
        # Also the remains of an earlier app of the same name.
        live = tuple(
            a
            for a in instances.values()
            if a is not None and not (cluster.is_ours(a) and cluster.is_over(a))
        )
        stops: dict[str, StopOutcome] = {}
        left: dict[str, Mapping[str, int]] = {}
        if not live:
            stops = {name: _stop(cluster, form, one) for name, one in instances.items()}
            left = instances_to_catch_up(form, becomes, stops)
        adopts = any(form.group in w.app.adopting for w in group.values())
        changes[at] = ChangingGroup(form, becomes, live, stops, left, adopts)
    return changes


def _stop(cluster: ClusterState, form: GroupForm, assignment: Assignment | None) -> StopOutcome:
    """The end of an instance of ``form``."""
    if assignment is None or assignment.form != form.number:
        return StopOutcome(None, has_run=False)
    status = cluster.statuses.get(assignment.instance)
    has_answered = status is not None and status.epoch == assignment.epoch
    return StopOutcome(
        cluster.settled_at(assignment),
        has_failed=assignment.until is not None and assignment.stop and has_answered,
    )


def _needs_place(
    name: str, desired: DesiredInstance, changes: Mapping[tuple[str, str], ChangingGroup]
) -> bool:
    """Whether an instance needs a place; in a group that changes, only an instance still to run."""
    change = changes.get((desired.form.app, desired.form.group))
    if change is None:
        return True
    return name in change.left or any(a.instance == name and not a.stop for a in change.live)


def _forms(snapshot: ClusterSnapshot) -> dict[tuple[str, str], GroupForm]:
    """The revisions of the desired groups: as stored, or as they are about to begin."""
    written = {(f.value.app, f.value.group): f.value for f in snapshot.forms}
    forms = {}
    for app in snapshot.apps:
        for group in app.value.spec.groups:
            at = group.app, group.name
            form = written.get(at)
            if form is None or form.app_incarnation != app.value.incarnation:
                form = GroupForm(*at, app.value.incarnation, group, 0)
            forms[at] = form
    return forms


def _desired_instances(
    snapshot: ClusterSnapshot, forms: Mapping[tuple[str, str], GroupForm]
) -> dict[str, DesiredInstance]:
    apps = sorted(snapshot.apps, key=lambda a: (a.value.deployed_at_ms, a.value.spec.name))
    instances = {}
    for app in apps:
        if app.value.deleting or app.value.held or app.value.paused:
            continue
        for desired in app.value.spec.groups:
            form = forms[desired.app, desired.name]
            group = form.spec
            becomes = desired if group != desired else None
            labels = frozenset(group.node)
            connectors = frozenset(group.connectors)
            is_receiver = group.kind is GroupKind.RECEIVER or bool(group.sources or connectors)
            for index, name in enumerate(group.instances, 1):
                if name in instances:
                    # Another app has the name: two managers have accepted them at the same time.
                    continue
                need = Need(name, group.app, group.name, labels, is_receiver, connectors)
                instances[name] = DesiredInstance(app.value, form, index, need, becomes)
    return instances


def _standing_by(
    snapshot: ClusterSnapshot, desired: Mapping[str, DesiredInstance]
) -> dict[str, str]:
    """Instance to the worker of its standby."""
    nodes = {
        n.value.id: n.value.incarnation for n in snapshot.nodes if n.value.role is NodeRole.WORKER
    }
    workers = {}
    for standby in (seen.value for seen in snapshot.standbys):
        item = desired.get(standby.instance)
        is_ours = item is not None and item.app.incarnation == standby.app_incarnation
        # A worker that was restarted holds nothing yet.
        if is_ours and nodes.get(standby.worker) == standby.worker_incarnation:
            workers[standby.instance] = standby.worker
    return workers


def _too_few(
    new: Mapping[str, DesiredInstance], ready_now: int, least: int, what: str
) -> dict[str, Waiting]:
    """The wait of new instances while fewer than ``least`` workers of a kind are ready."""
    if least <= 1 or ready_now >= least:
        return {}
    missing = least - ready_now
    more = {
        "workers": f"start {missing} more worker{'s' if missing > 1 else ''}",
        "receivers": f"start {missing} more with worker.takes_receivers true",
    }[what]
    reason = f"{ready_now} of at least {least} {what} ready"
    waiting = Waiting(reason, f"{more}, or lower manager.min_{what}")
    return dict.fromkeys(new, waiting)
