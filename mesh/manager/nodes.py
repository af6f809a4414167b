"""Views of nodes, for people."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mesh.control import election
from mesh.control.membership import heartbeat_status
from mesh.control.placement import candidates
from mesh.errors import MeshError
from mesh.model.cluster import NodeRole

if TYPE_CHECKING:
    from mesh.control.snapshot import ClusterSnapshot
    from mesh.settings import Settings


@dataclass(frozen=True, slots=True)
class Leadership:
    """The current leader, as one manager sees it."""

    manager: str
    #: None if no manager leads.
    leader: str | None

    @property
    def leads(self) -> bool:
        """Whether the manager that answers is the leader."""
        return self.manager == self.leader


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node, as people see it."""

    id: str
    role: str
    presence: str
    leads: bool
    ready: bool
    address: str
    pid: int
    instances: int
    cpu_percent: float
    memory_bytes: int
    process_cpu_percent: float = 0.0
    memory_percent: float = 0.0
    #: The limit of its container, or the memory of the machine.
    memory_limit_bytes: int = 0
    load_1m: float = 0.0
    #: Of a worker: whether it accepts instances, and why not.
    admits: str = ""
    why: str = ""
    #: Most instances, 0 for any number.
    capacity: int = 0
    labels: tuple[str, ...] = ()
    takes_receivers: bool = True
    takes_queries: bool = True
    #: Age of its last heartbeat, seconds.
    last_heartbeat_ago_s: float = 0.0


def node_views(snapshot: ClusterSnapshot, settings: Settings) -> list[NodeView]:
    """Managers and workers, by role and name."""
    worker = settings.worker
    leader = election.leader_of(snapshot, settings.manager.lease_ttl_s)
    seen = sorted(snapshot.nodes, key=lambda n: (n.value.role, n.value.id))
    paused = {a.value.spec.name for a in snapshot.apps if a.value.paused}
    # A paused app's assignments stay where they were stopped.
    placed = Counter(
        a.value.worker for a in snapshot.assignments if not (a.value.stop and a.value.app in paused)
    )
    workers = {host.name: host for host in candidates(snapshot, settings)}
    return [
        NodeView(
            id=node.value.id,
            role=node.value.role.value,
            presence=heartbeat_status(node, snapshot.ages_s, worker.ttl_s, worker.margin_s).value,
            leads=node.value.role is NodeRole.MANAGER and node.value.id == leader,
            ready=node.value.ready,
            address=node.value.address,
            pid=node.value.pid,
            instances=placed[node.value.id],
            cpu_percent=node.value.metrics.cpu_percent,
            memory_bytes=node.value.metrics.memory_bytes,
            process_cpu_percent=node.value.metrics.process_cpu_percent,
            memory_percent=node.value.metrics.memory_percent,
            memory_limit_bytes=node.value.metrics.memory_limit_bytes,
            load_1m=node.value.metrics.load_1m,
            admits=host.admits.value if host is not None else "",
            why=host.why if host is not None else "",
            capacity=node.value.capacity,
            labels=node.value.labels,
            takes_receivers=node.value.takes_receivers,
            takes_queries=node.value.takes_queries,
            last_heartbeat_ago_s=round(snapshot.now_s - node.seen_at_s, 3),
        )
        for node in seen
        for host in [workers.get(node.value.id) if node.value.role is NodeRole.WORKER else None]
    ]


def worker_view(snapshot: ClusterSnapshot, settings: Settings, name: str) -> NodeView:
    """The worker of a name; MESH-A404 when there is none."""
    workers = [node for node in node_views(snapshot, settings) if node.role == "worker"]
    worker = next((node for node in workers if node.id == name), None)
    if worker is None:
        raise MeshError(
            "MESH-A404",
            f'worker "{name}" is not there',
            detail=f"Workers are: {', '.join(node.id for node in workers) or 'none'}.",
        )
    return worker
