"""Choice and duties of standbys: a second worker that keeps a copy of an instance's shared state.

A standby runs and writes nothing; it copies each snapshot that the active instance shares, so the
snapshot needs no download when the instance is placed there.  Placement prefers the standby if the
active worker is lost.  The choice only has to be good, not exact: a late or missing standby costs
time, and nothing else.

An instance with much state gets a standby for the moment, whatever its group wants, when its worker
is suspect: its copies are made in the time until the worker counts as gone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from mesh.control.actions import AssignStandby, RemoveStandby
from mesh.control.placement import Admits, Waiting
from mesh.model.cluster import Standby

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mesh.control.actions import Action
    from mesh.control.cluster_state import ClusterState, DesiredInstance
    from mesh.control.placement import Candidate
    from mesh.control.snapshot import ClusterSnapshot
    from mesh.model.app import GroupSpec


#: Bytes of state that are worth a copy while a worker is suspect.
_MUCH_STATE: Final = 4 << 20


def choose(cluster: ClusterState) -> tuple[dict[str, str], dict[str, Waiting]]:
    """Choose a worker for each instance that should have a standby.

    Args:
        cluster: with the desired place of each instance.

    Returns:
        Instance to worker, and why the others have none.  Never the worker of the instance itself,
        and one on another machine if there is one.  Instances have priority: a standby uses only a
        free seat.  A standby stays where it is while it can.
    """
    board = _Board(cluster)
    instances = {
        name: item
        for name, item in cluster.desired.items()
        if name in cluster.placement.where and (item.form.spec.standby or board.is_at_risk(name))
    }
    chosen: dict[str, str] = {}
    for name, item in instances.items():
        before = cluster.standbys.get(name)
        host = board.hosts.get(before.worker) if before is not None else None
        if host is None or host.admits is Admits.EMPTYING or not board.can_host(host, item):
            continue
        # It needs its copies until it has taken over the instances that are being moved to it.
        if host.name != board.active(name):
            chosen[name] = board.take(host)
    missing: dict[str, Waiting] = {}
    for name, item in instances.items():
        if name in chosen:
            continue
        busy = (board.active(name), cluster.placement.where[name])
        suitable = [
            host
            for host in cluster.hosts
            if host.admits is Admits.OPEN and host.name not in busy and board.can_host(host, item)
        ]
        if suitable:
            chosen[name] = board.take(min(suitable, key=lambda h: board.rank(h, item)))
        elif item.form.spec.standby:
            missing[name] = Waiting(
                "no other worker that fits has room for a standby",
                "start another worker, or raise worker.capacity",
            )
    return chosen, missing


def decide(cluster: ClusterState, lease_revision: int) -> Iterator[Action]:
    """Decide the leader's writes about standbys.

    Args:
        cluster: as the leader sees it.
        lease_revision: of the lease that it holds.
    """
    chosen, _ = choose(cluster)
    for name, worker in chosen.items():
        item, before = cluster.desired[name], cluster.standbys.get(name)
        standby = Standby(
            instance=name,
            app=item.app.spec.name,
            group=item.form.group,
            index=item.index,
            parallel=item.form.spec.parallel,
            app_incarnation=item.app.incarnation,
            worker=worker,
            worker_incarnation=cluster.nodes[worker].incarnation,
            lease_revision=lease_revision,
            cause=_why(cluster, name, before, worker),
        )
        if before is None or _substance(before) != _substance(standby):
            yield AssignStandby(standby, standby.cause)
    for name, before in cluster.standbys.items():
        if name not in chosen:
            is_desired = name in cluster.desired and cluster.desired[name].form.spec.standby
            cause = "no worker can be the standby" if is_desired else "no standby is wanted"
            yield RemoveStandby(name, cause, before.app)


@dataclass(frozen=True, slots=True)
class Hold:
    """Make the session keep a copy of this instance's shared state, and keep it up to date."""

    standby: Standby
    group: GroupSpec


@dataclass(frozen=True, slots=True)
class Release:
    """Make the session delete its copy of this instance's state."""

    instance: str


def duties(
    snapshot: ClusterSnapshot,
    me: str,
    incarnation: str,
    holding: Mapping[str, Standby],
    *,
    may_start: bool,
) -> Iterator[Hold | Release]:
    """Decide the next duties of worker ``me`` as a standby.

    Args:
        snapshot: its view.
        me: its name.
        incarnation: of its process.
        holding: copies that its session was instructed to hold, by instance.
        may_start: whether the session is warm.
    """
    mine = {
        s.value.instance: s.value
        for s in snapshot.standbys
        if s.value.worker == me and s.value.worker_incarnation == incarnation
    }
    for name, held in holding.items():
        assigned = mine.get(name)
        if assigned is None or _substance(assigned) != _substance(held):
            yield Release(name)
    written = (f.value for f in snapshot.forms)
    forms = {(form.app, form.group, form.app_incarnation): form for form in written}
    for name, assigned in mine.items():
        current = holding.get(name)
        # The group revision is written earlier, but may be replaced by now.
        form = forms.get((assigned.app, assigned.group, assigned.app_incarnation))
        if not may_start or form is None:
            continue
        if current is None or _substance(current) != _substance(assigned):
            yield Hold(assigned, form.spec)


@dataclass(frozen=True, slots=True)
class StandbyView:
    """An instance's standby as users see it."""

    #: None if there is no standby.
    worker: str | None
    snapshots: int = 0
    bytes: int = 0
    #: Why there is no standby.
    reason: str | None = None


def views(cluster: ClusterState) -> dict[str, StandbyView]:
    """The standby of each placed instance that should have one."""
    chosen, missing = choose(cluster)
    assigned = {name: StandbyView(None, reason=why.reason) for name, why in missing.items()}
    for name in chosen:
        before, holds = cluster.standbys.get(name), cluster.held.get(name)
        if before is None:
            assigned[name] = StandbyView(None, reason="a manager is about to choose a worker")
        elif holds is None or holds.worker != before.worker:
            assigned[name] = StandbyView(before.worker)
        else:
            assigned[name] = StandbyView(before.worker, holds.snapshots, holds.bytes)
    return assigned


class _Board:
    """Free seats, which standbys use up."""

    def __init__(self, cluster: ClusterState) -> None:
        self.hosts = {host.name: host for host in cluster.hosts}
        self._cluster = cluster
        self._where = cluster.placement.where
        self._machines = {name: node.machine for name, node in cluster.nodes.items()}
        self._taken = Counter(self._where.values())

    def can_host(self, host: Candidate, item: DesiredInstance) -> bool:
        # A worker that is about to take the instance over has that seat already.
        has_room = not host.capacity or self._taken[host.name] < host.capacity
        has_room = has_room or self._where[item.need.instance] == host.name
        return has_room and item.need.fits(host)

    def active(self, instance: str) -> str:
        """The worker that runs it now, or last did; "" for none."""
        assignment = self._cluster.assignments.get(instance)
        if assignment is None or not self._cluster.is_ours(assignment):
            return ""
        return assignment.worker

    def is_at_risk(self, instance: str) -> bool:
        """Whether it has much state and its worker is silent: it may have to be moved soon."""
        status = self._cluster.statuses.get(instance)
        if status is None or status.state_bytes < _MUCH_STATE:
            return False
        worker = self.active(instance)
        host = self.hosts.get(worker)
        return bool(worker) and (host is None or host.is_silent)

    def take(self, host: Candidate) -> str:
        self._taken[host.name] += 1
        return host.name

    def rank(self, host: Candidate, item: DesiredInstance) -> tuple[bool, int, str]:
        """Another machine first, then the fewest seats taken."""
        machine = self._machines[host.name]
        active = self._machines.get(self._where[item.need.instance], "")
        return bool(machine) and machine == active, self._taken[host.name], host.name


def _why(cluster: ClusterState, instance: str, before: Standby | None, worker: str) -> str:
    item = cluster.desired[instance]
    if not item.form.spec.standby:
        return f"worker {cluster.assignments[instance].worker} is silent"
    if before is None or before.app_incarnation != item.app.incarnation:
        return "deployed"
    node = cluster.nodes.get(before.worker)
    if node is None:
        return f"worker {before.worker} is gone"
    if before.worker == worker:
        return f"worker {worker} was started again"
    assignment = cluster.assignments.get(before.instance)
    if assignment is not None and assignment.worker == before.worker:
        return f"{before.worker} runs it now"
    return f"{before.worker} has no room for it any more"


def _substance(standby: Standby) -> Standby:
    return replace(standby, lease_revision=0, cause="")
