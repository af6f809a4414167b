"""Presence of nodes, judged by their heartbeats.

Three grades: ``alive``; ``suspect`` past its term, when it gets no new instances but keeps its own;
and ``gone`` past its term and a margin, when its instances are placed elsewhere.  A worker stops
its instances on its own if it could not renew for its term, so it has stopped by the time it is
gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from mesh.errors import MeshError

if TYPE_CHECKING:
    from mesh.control.snapshot import Revisioned
    from mesh.model.cluster import NodeRecord, NodeRole


#: A node renews its record this many times in its term.
BEATS_PER_TERM = 4


class HeartbeatStatus(StrEnum):
    """Certainty of a node's presence."""

    ALIVE = "alive"
    SUSPECT = "suspect"
    GONE = "gone"


def heartbeat_status(
    node: Revisioned[NodeRecord], now_s: float, ttl_s: float, margin_s: float
) -> HeartbeatStatus:
    """Judge a node by the age of its last heartbeat, as this observer saw it."""
    age_s = now_s - node.seen_at_s
    if age_s < ttl_s:
        return HeartbeatStatus.ALIVE
    return HeartbeatStatus.SUSPECT if age_s < ttl_s + margin_s else HeartbeatStatus.GONE


def is_id_in_use(
    node: Revisioned[NodeRecord] | None,
    incarnation: str,
    now_s: float,
    ttl_s: float,
    margin_s: float,
) -> bool:
    """Whether another process with this node's id still sends heartbeats."""
    return (
        node is not None
        and node.value.incarnation != incarnation
        and heartbeat_status(node, now_s, ttl_s, margin_s) is not HeartbeatStatus.GONE
    )


class Claim(StrEnum):
    """The answer to a process that requests a name."""

    FREE = "free"
    #: The last process of this name may still be there.
    UNCERTAIN = "uncertain"
    #: Another process sends heartbeats under it.
    TAKEN = "taken"


@dataclass(slots=True)
class NameClaim:
    """A process's claim of a node's name."""

    #: Of this process.
    incarnation: str
    _has_read: bool = False
    #: Revision of the record at the first look; None for no record.
    _first: int | None = None

    def judge(
        self, record: Revisioned[NodeRecord] | None, now_s: float, ttl_s: float, margin_s: float
    ) -> Claim:
        """Check the name's record: another process has the name if the record changes meanwhile."""
        revision = record.revision if record is not None else None
        if not self._has_read:
            self._has_read, self._first = True, revision
        if not is_id_in_use(record, self.incarnation, now_s, ttl_s, margin_s):
            return Claim.FREE
        return Claim.UNCERTAIN if self._first in (None, revision) else Claim.TAKEN


def rejection(role: NodeRole, name: str, pid: int, *, was_member: bool = False) -> MeshError:
    """The error of a process whose name another one has.

    Args:
        role: of both.
        name: of both.
        pid: the other's process id.
        was_member: whether the name was this process's before.
    """
    detail = f"Its process id is {pid}."
    if was_member:
        detail = f"It took this {role}'s name while this one was cut off."
    variable = f"MESH_{role.upper()}_ID"
    return MeshError(
        "MESH-C110",
        f'another {role} is called "{name}"',
        detail=detail,
        hint=None if was_member else f"Give this one another name with --id or {variable}.",
    )


def labels(text: str) -> tuple[str, ...]:
    """The labels of a list like ``gpu=true, zone=a``, each once, in order."""
    return tuple(sorted({label.strip() for label in text.split(",") if label.strip()}))
