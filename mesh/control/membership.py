"""Which nodes are there, judged by their heartbeats.

Three grades: ``alive``; ``suspect`` past its term, when it gets nothing new but keeps what it has;
and ``gone`` past its term and a margin, when its instances are placed elsewhere.  A worker stops
its instances by itself when it hasn't been able to renew for its term, so by the time it is gone it
has stopped.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from mesh.model.cluster import Role

if TYPE_CHECKING:
    from mesh.control.snapshot import ClusterSnapshot, Seen
    from mesh.model.cluster import NodeRecord


#: A node renews its record this many times in its term.
BEATS_PER_TERM = 4


class Presence(StrEnum):
    """How sure it is that a node is there."""

    ALIVE = "alive"
    SUSPECT = "suspect"
    GONE = "gone"


def presence(node: Seen[NodeRecord], now_s: float, ttl_s: float, margin_s: float) -> Presence:
    """Judge a node by the age of its last heartbeat, as this observer saw it."""
    age_s = now_s - node.seen_at_s
    if age_s < ttl_s:
        return Presence.ALIVE
    return Presence.SUSPECT if age_s < ttl_s + margin_s else Presence.GONE


def workers(snapshot: ClusterSnapshot, ttl_s: float, margin_s: float) -> dict[str, Presence]:
    """Every worker that has left a record, with how sure it is that it is there."""
    return {
        node.value.id: presence(node, snapshot.now_s, ttl_s, margin_s)
        for node in snapshot.nodes
        if node.value.role is Role.WORKER
    }


def ready_workers(snapshot: ClusterSnapshot, ttl_s: float, margin_s: float) -> tuple[str, ...]:
    """The workers that can be given something: alive, and their session warm; sorted."""
    grades = workers(snapshot, ttl_s, margin_s)
    return tuple(
        sorted(
            node.value.id
            for node in snapshot.nodes
            if node.value.role is Role.WORKER
            and node.value.ready
            and grades[node.value.id] is Presence.ALIVE
        )
    )


def is_taken(
    node: Seen[NodeRecord] | None, incarnation: str, now_s: float, ttl_s: float, margin_s: float
) -> bool:
    """Whether another process with this node's id still beats."""
    return (
        node is not None
        and node.value.incarnation != incarnation
        and presence(node, now_s, ttl_s, margin_s) is not Presence.GONE
    )
