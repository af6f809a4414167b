"""The workers that placement can use, and the admission of each.

Derived from heartbeats and from requests of operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.control.membership import HeartbeatStatus, heartbeat_status
from mesh.control.placement import Admits, Candidate
from mesh.model.cluster import Admission, NodeRole

if TYPE_CHECKING:
    from mesh.control.snapshot import ClusterSnapshot, Revisioned
    from mesh.model.cluster import NodeOrder, NodeRecord
    from mesh.settings import Settings


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
