"""What is wanted, what is placed, and where everything should be: what leader and status share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mesh.control.hosts import hosts, ready
from mesh.control.placement import Admits, Need, Placement, Waiting, place
from mesh.model.app import GroupKind
from mesh.model.cluster import InstanceState, Role

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.control.placement import Host
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
class Wanted:
    """An instance that should run."""

    app: AppRecord
    group: GroupSpec
    #: 1 to ``parallel``.
    index: int
    #: It as placement sees it.
    need: Need


@dataclass(frozen=True, slots=True)
class Survey:
    """The cluster, read once."""

    hosts: tuple[Host, ...]
    #: Workers that are there, by name.
    nodes: Mapping[str, NodeRecord]
    #: Apps in the order they were deployed, their instances in the order written.
    wanted: Mapping[str, Wanted]
    assignments: Mapping[str, Assignment]
    statuses: Mapping[str, InstanceStatus]
    placement: Placement
    #: Who was told to stand by, by instance, and what they hold.
    standbys: Mapping[str, Standby]
    held: Mapping[str, StandbyStatus]
    #: Instance to the worker that holds its state ready.
    standing_by: Mapping[str, str]
    #: Apps of which nothing is to run, with why.
    held_apps: Mapping[str, str]

    def is_over(self, assignment: Assignment) -> bool:
        """Whether nothing runs for ``assignment`` any more, or nobody would take what it writes.

        Its worker is gone, or was started anew, or has said that it has stopped what it was told
        to stop: in the epoch in which it was told, for an older report may be from before.
        """
        node = self.nodes.get(assignment.worker)
        if node is None:
            return True
        if assignment.worker_incarnation not in ("", node.incarnation):
            return True
        status = self.statuses.get(assignment.instance)
        return (
            assignment.stop
            and status is not None
            and status.state is InstanceState.STOPPED
            and status.epoch == assignment.epoch
        )

    def is_ours(self, assignment: Assignment) -> bool:
        """Whether ``assignment`` is of an app that is wanted, not of an earlier one of its name."""
        wanted = self.wanted.get(assignment.instance)
        return wanted is not None and wanted.app.incarnation == assignment.app_incarnation


def survey(snapshot: ClusterSnapshot, settings: Settings) -> Survey:
    """Read ``snapshot``, and place what is wanted."""
    found = hosts(snapshot, settings)
    there = {host.name for host in found}
    are_open = {host.name for host in found if host.admits is Admits.OPEN}
    wanted = _wanted(snapshot)
    assignments = {a.value.instance: a.value for a in snapshot.assignments}
    current = {}
    for name, assignment in assignments.items():
        item = wanted.get(name)
        if item is not None and item.app.incarnation == assignment.app_incarnation:
            # What is on its way has a seat where it is going, not where it comes from.
            if not assignment.stop:
                current[name] = assignment.worker
            elif assignment.next_worker in are_open:
                current[name] = assignment.next_worker
    # Placement itself says best why nothing can be placed where nobody is there.
    enough = ready(found) >= settings.manager.min_workers or settings.manager.min_workers <= 1
    # What ran already goes on with fewer workers; only what is new waits for enough of them.
    needs = tuple(w.need for name, w in wanted.items() if enough or name in assignments)
    standing_by = _standing_by(snapshot, wanted)
    placement = place(needs, current, found, standing_by)
    if not enough:
        placement.waiting.update(_too_few(wanted, assignments, ready(found), settings))
    return Survey(
        hosts=found,
        nodes={
            n.value.id: n.value
            for n in snapshot.nodes
            if n.value.role is Role.WORKER and n.value.id in there
        },
        wanted=wanted,
        assignments=assignments,
        statuses={s.value.instance: s.value for s in snapshot.statuses},
        placement=placement,
        standbys={s.value.instance: s.value for s in snapshot.standbys},
        held={h.value.instance: h.value for h in snapshot.held},
        standing_by=standing_by,
        held_apps={a.value.spec.name: a.value.held for a in snapshot.apps if a.value.held},
    )


def _wanted(snapshot: ClusterSnapshot) -> dict[str, Wanted]:
    apps = sorted(snapshot.apps, key=lambda a: (a.value.deployed_at_ms, a.value.spec.name))
    found = {}
    for app in apps:
        if app.value.deleting or app.value.held:
            continue
        for group in app.value.spec.groups:
            labels = frozenset(group.node)
            is_receiver = group.kind is GroupKind.RECEIVER or bool(group.sources)
            for index, name in enumerate(group.instances, 1):
                need = Need(name, group.app, group.name, labels, is_receiver)
                found[name] = Wanted(app.value, group, index, need)
    return found


def _standing_by(snapshot: ClusterSnapshot, wanted: Mapping[str, Wanted]) -> dict[str, str]:
    """Instance to the worker that holds its state ready."""
    nodes = {n.value.id: n.value.incarnation for n in snapshot.nodes if n.value.role is Role.WORKER}
    found = {}
    for standby in (seen.value for seen in snapshot.standbys):
        item = wanted.get(standby.instance)
        is_ours = item is not None and item.app.incarnation == standby.app_incarnation
        # One that was started anew holds nothing yet.
        if is_ours and nodes.get(standby.worker) == standby.worker_incarnation:
            found[standby.instance] = standby.worker
    return found


def _too_few(
    wanted: Mapping[str, Wanted],
    assignments: Mapping[str, Assignment],
    ready_now: int,
    settings: Settings,
) -> dict[str, Waiting]:
    least = settings.manager.min_workers
    missing = least - ready_now
    cure = f"start {missing} more worker{'s' if missing > 1 else ''}, or lower manager.min_workers"
    waiting = Waiting(f"{ready_now} of at least {least} workers ready", cure)
    return {name: waiting for name in wanted if name not in assignments}
