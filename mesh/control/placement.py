"""Placement of instances: within labels and capacity, spread, sticky, with the fewest moves.

A pure function from the present workers and the current placement to the wanted placement.  Each
instance that fits somewhere is placed: if the suitable workers are full, other instances move to
make room (the shortest augmenting path of a bipartite matching).

The workers that it can use, and the admission of each, are derived from heartbeats and from
requests of operators.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from mesh.control.membership import HeartbeatStatus, heartbeat_status
from mesh.model.cluster import Admission, NodeRole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mesh.control.snapshot import ClusterSnapshot, Revisioned
    from mesh.model.cluster import NodeOrder, NodeRecord
    from mesh.settings import Settings


class Admits(StrEnum):
    """Admission of instances by a worker."""

    #: It accepts more.
    OPEN = "open"
    #: It keeps the instances that it has.
    CLOSED = "closed"
    #: Its instances move away, as far as there is another place for them.
    EMPTYING = "emptying"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worker as placement sees it; one that is gone is none."""

    name: str
    admits: Admits = Admits.OPEN
    #: Most instances, 0 for any number.
    capacity: int = 0
    labels: frozenset[str] = frozenset()
    takes_receivers: bool = True
    takes_queries: bool = True
    #: Why it is not open, as in "w1 {why}".
    why: str = ""
    #: Whether an operator could open it.
    is_barred: bool = False
    #: Whether its last heartbeat is older than a term.
    is_silent: bool = False
    #: ``source http`` and the like.
    connectors: frozenset[str] = frozenset()
    #: Whether it runs groups other than those of connectors.
    has_spark: bool = True


@dataclass(frozen=True, slots=True)
class Need:
    """An instance that should run, with its requirements of a worker."""

    instance: str
    app: str
    group: str
    labels: frozenset[str] = frozenset()
    is_receiver: bool = False
    #: Connectors that the worker must have.
    connectors: frozenset[str] = frozenset()

    def fits(self, host: Candidate) -> bool:
        """Whether ``host`` is of the right kind, full or not."""
        taken = host.takes_receivers if self.is_receiver else host.takes_queries
        is_able = self.connectors <= host.connectors and (host.has_spark or bool(self.connectors))
        return taken and is_able and self.labels <= host.labels


@dataclass(frozen=True, slots=True)
class Waiting:
    """The reason why an instance has no place, and the remedy."""

    reason: str
    cure: str


@dataclass(frozen=True, slots=True)
class Placement:
    """The wanted place of each instance."""

    #: Instance to worker.
    where: dict[str, str]
    #: Instances without a place.
    waiting: dict[str, Waiting]
    #: Instances that stay on a worker that is to be emptied, because there is no other place.
    stuck: dict[str, Waiting]
    #: Why an instance is moved off a worker that is open.
    moved: dict[str, str]


def place(
    needs: Sequence[Need],
    current: Mapping[str, str],
    hosts: Sequence[Candidate],
    standbys: Mapping[str, str] | None = None,
    formers: Mapping[str, str] | None = None,
) -> Placement:
    """Place ``needs`` on ``hosts``.

    Args:
        needs: all instances that should run; earlier ones have priority.
        current: instance to worker, for placed instances; the worker may be gone.
        hosts: the present workers, in a fixed order.
        standbys: instance to the worker of its standby.  An instance that has lost its place, or
            has to leave it, goes there if there is room.
        formers: instance to its former worker.  If instances move to even out the counts, a
            restarted worker preferably gets back its own.

    Returns:
        A placement of as many as can be placed.  An instance on a worker that is not emptying stays
        there, with two exceptions: the fewest moves that make room for others, and moves that bring
        the counts of open workers to within one of each other.  An instance on an emptying worker
        stays only if there is no other place for it.  Placing again moves nothing.
    """
    board = _Board({host.name: host for host in hosts})
    for need in needs:
        host = board.hosts.get(current.get(need.instance, ""))
        if host is None or host.admits is Admits.EMPTYING or not need.fits(host):
            continue
        if board.has_room(host):
            board.put(need, host.name)
    board.standbys, board.formers = standbys or {}, formers or {}
    waiting, stuck = {}, {}
    for need in needs:
        if need.instance in board.where or board.seat(need, current):
            continue
        host = board.hosts.get(current.get(need.instance, ""))
        if host is not None and need.fits(host) and host.admits is Admits.EMPTYING:
            stuck[need.instance] = board.why_not(need, host.name)
            board.put(need, host.name)
        else:
            waiting[need.instance] = board.why_not(need)
    board.level(current)
    return Placement(board.where, waiting, stuck, board.moved)


@dataclass
class _Board:
    """A placement in the making."""

    hosts: dict[str, Candidate]
    where: dict[str, str] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    #: Host to the needs on it, in order of arrival.
    on: dict[str, dict[str, Need]] = field(default_factory=dict)
    #: (host, app, group) and (host, app) to the number of instances.
    kin: Counter[tuple[str, ...]] = field(default_factory=Counter)
    standbys: Mapping[str, str] = field(default_factory=dict)
    formers: Mapping[str, str] = field(default_factory=dict)
    #: Instances that went to their standby: they stay there this time.
    taken_over: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.on = {name: {} for name in self.hosts}
        self.open = [host for host in self.hosts.values() if host.admits is Admits.OPEN]

    def has_room(self, host: Candidate) -> bool:
        return not host.capacity or len(self.on[host.name]) < host.capacity

    def put(self, need: Need, name: str) -> None:
        self._count(need, name, 1)
        self.where[need.instance] = name
        self.on[name][need.instance] = need

    def move(self, need: Need, name: str) -> None:
        before = self.where[need.instance]
        self._count(need, before, -1)
        del self.on[before][need.instance]
        self.put(need, name)

    def _count(self, need: Need, name: str, by: int) -> None:
        self.kin[name, need.app, need.group] += by
        self.kin[name, need.app] += by

    def seat(self, need: Need, current: Mapping[str, str]) -> bool:
        """Place ``need``, if necessary by moving others; False if no move helps."""
        fitting = [host for host in self.open if need.fits(host)]
        free = [host for host in fitting if self.has_room(host)]
        ready = next((h for h in free if h.name == self.standbys.get(need.instance)), None)
        if ready is not None:
            self.taken_over.add(need.instance)
            self.put(need, ready.name)
            return True
        if free:
            self.put(need, min(free, key=lambda host: self._rank(need, host)).name)
            return True
        # Breadth first, so that the path found, a chain of moves that makes room, is the shortest.
        came: dict[str, tuple[Need, str] | None] = {host.name: None for host in fitting}
        ahead = [host.name for host in fitting]
        for name in ahead:
            for mover in reversed(self.on[name].values()):
                for host in self.open:
                    if host.name in came or not mover.fits(host):
                        continue
                    came[host.name] = mover, name
                    ahead.append(host.name)
                    if self.has_room(host):
                        self.put(need, self._make_room(host.name, came, need, current))
                        return True
        return False

    def _make_room(
        self,
        name: str,
        came: Mapping[str, tuple[Need, str] | None],
        need: Need,
        current: Mapping[str, str],
    ) -> str:
        """Move along a path that ends at ``name``; the host at its start, which has room now."""
        while (step := came[name]) is not None:
            mover, before = step
            if current.get(mover.instance) == before:
                self.moved[mover.instance] = f"{before} is needed for {need.instance}"
            self.move(mover, name)
            name = before
        return name

    def _rank(self, need: Need, host: Candidate) -> tuple[int, int, int, str]:
        """Fewest instances first, then fewest of the same group, then of the same app."""
        return (
            len(self.on[host.name]),
            self.kin[host.name, need.app, need.group],
            self.kin[host.name, need.app],
            host.name,
        )

    def level(self, current: Mapping[str, str]) -> None:
        """Even out the counts of open hosts, one move at a time; each lowers their squares' sum."""
        while (step := next(self._steps(current), None)) is not None:
            mover, name = step
            before = self.where[mover.instance]
            if current.get(mover.instance) == before:
                self.moved[mover.instance] = f"{before} has more than its share"
            self.move(mover, name)

    def _steps(self, current: Mapping[str, str]) -> Iterator[tuple[Need, str]]:
        """Moves that even out, the best first: from the fullest to the emptiest."""
        by_count = sorted(self.open, key=lambda host: (len(self.on[host.name]), host.name))
        for crowded in reversed(by_count):
            for roomy in by_count:
                if len(self.on[crowded.name]) - len(self.on[roomy.name]) < 2:
                    break
                if not self.has_room(roomy):
                    continue
                fit = [
                    need
                    for need in self.on[crowded.name].values()
                    if need.fits(roomy) and need.instance not in self.taken_over
                ]
                if fit:
                    yield (
                        max(
                            enumerate(fit),
                            key=lambda one: (
                                self._gain(one[1], crowded.name, roomy.name),
                                self.formers.get(one[1].instance) == roomy.name,
                                current.get(one[1].instance) != crowded.name,
                                one[0],
                            ),
                        )[1],
                        roomy.name,
                    )

    def _gain(self, need: Need, before: str, after: str) -> int:
        """The decrease in instances of its own group on the same host when ``need`` moves."""
        app, group = need.app, need.group
        return self.kin[before, app, group] - self.kin[after, app, group]

    def why_not(self, need: Need, leaving: str = "") -> Waiting:
        """The reason why ``need`` has no place, or none but the host that it is ``leaving``."""
        others = [host for host in self.hosts.values() if host.name != leaving]
        fitting = [host for host in others if need.fits(host)]
        if not fitting:
            return _no_such_worker(need, others, " other" if leaving else "")
        closed = [host for host in fitting if host.admits is not Admits.OPEN]
        full = [host for host in fitting if host.admits is Admits.OPEN]
        says = [f"{host.name} has no room ({host.capacity} taken)" for host in full]
        says += [f"{host.name} {host.why}" for host in closed]
        barred = [host.name for host in closed if host.is_barred]
        cures = [f"'mesh uncordon {name}'" for name in barred]
        if full:
            cures.append("start another worker, or raise worker.capacity")
        elif not barred:
            cures.append("wait for it, or start another worker")
        return Waiting("; ".join(says), "; or ".join(cures))


def _no_such_worker(need: Need, others: Sequence[Candidate], other: str) -> Waiting:
    if not others:
        return Waiting(f"no{other} worker is there", "start one with 'mesh worker'")
    missing = sorted(need.connectors.difference(*(host.connectors for host in others)))
    if missing:
        return Waiting(
            f'no{other} worker has connector "{missing[0]}"',
            "install its package on a worker; 'mesh connectors' lists the installed ones",
        )
    if not need.connectors and not any(host.has_spark for host in others):
        return Waiting(f"no{other} worker has Spark", "start one with worker.spark true")
    if need.labels:
        labels = ",".join(sorted(need.labels))
        return Waiting(
            f"no{other} worker has {labels}"
            + (" and takes groups with sources of their own" if need.is_receiver else ""),
            f"start a worker with worker.labels '{labels}', or change the app's @dist(node)",
        )
    kind = "takes_receivers" if need.is_receiver else "takes_queries"
    what = "groups with sources of their own" if need.is_receiver else "groups without sources"
    return Waiting(f"no{other} worker takes {what}", f"start a worker with worker.{kind} true")


def candidates(snapshot: ClusterSnapshot, settings: Settings) -> tuple[Candidate, ...]:
    """Every worker that is not gone, by name."""
    orders = {order.value.node: order.value for order in snapshot.orders}
    hosts = []
    for node in snapshot.nodes:
        if node.value.role is not NodeRole.WORKER:
            continue
        ttl_s, margin_s = settings.worker.ttl_s, settings.worker.margin_s
        grade = heartbeat_status(node, snapshot.ages_s, ttl_s, margin_s)
        if grade is not HeartbeatStatus.GONE:
            hosts.append(_host(node, grade, orders.get(node.value.id), settings.manager.hold_s))
    return tuple(sorted(hosts, key=lambda host: host.name))


def ready(hosts: tuple[Candidate, ...]) -> int:
    """Number of workers that could run an instance now, without cordoned ones."""
    return sum(host.admits is Admits.OPEN for host in hosts)


def _host(
    node: Revisioned[NodeRecord], grade: HeartbeatStatus, order: NodeOrder | None, hold_s: float
) -> Candidate:
    admits, why = _admits(node.value, grade, order, hold_s)
    return Candidate(
        name=node.value.id,
        admits=admits,
        capacity=node.value.capacity,
        labels=frozenset(node.value.labels),
        takes_receivers=node.value.takes_receivers,
        takes_queries=node.value.takes_queries,
        connectors=frozenset(node.value.connectors),
        has_spark=node.value.has_spark,
        why=why,
        is_silent=grade is HeartbeatStatus.SUSPECT,
        is_barred=order is not None and order.admission is not Admission.OPEN,
    )


def _admits(
    record: NodeRecord, grade: HeartbeatStatus, order: NodeOrder | None, hold_s: float
) -> tuple[Admits, str]:
    """Admission of a worker; the first row that holds counts.

    The table of docs/control-plane.md, "What a worker admits".
    """
    admission = order.admission if order is not None else Admission.OPEN
    if record.leaving:
        return Admits.EMPTYING, "is ending"
    if admission is Admission.DRAINING:
        return Admits.EMPTYING, f"is drained{_by(order)}"
    if not record.ready and record.cold:
        return Admits.EMPTYING, "is starting its session"
    if not record.ready and record.starting_s >= hold_s:
        return Admits.EMPTYING, f"has not started its session in {hold_s:g} s"
    if grade is HeartbeatStatus.SUSPECT:
        return Admits.CLOSED, "is silent"
    if admission is Admission.CORDONED:
        return Admits.CLOSED, f"is cordoned{_by(order)}"
    if not record.ready:
        return Admits.CLOSED, "is starting its session"
    return Admits.OPEN, ""


def _by(order: NodeOrder | None) -> str:
    return f" by {order.by}" if order is not None and order.by else ""
