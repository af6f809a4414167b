"""Leader election among managers, decided from one view of the lease key.

The lease is one key of the control bucket.  Its revision, the stream sequence of its last write,
doubles as the fencing token: each write of a leader carries it, so the server refuses the late
write of a deposed leader.  This module has no clock and no socket: the shell passes its observation
and the time, and receives one action.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mesh.control.snapshot import ClusterSnapshot, Revisioned
    from mesh.model.cluster import LeaseRecord


class ManagerCandidate(NamedTuple):
    """One process of a manager: two processes with one id never hold the lease together."""

    id: str
    #: Random, of each start.
    incarnation: str

    def has(self, lease: LeaseRecord) -> bool:
        """Whether this process is the holder of ``lease``."""
        return self == (lease.holder, lease.incarnation)


@dataclass(frozen=True, slots=True)
class Acquire:
    """Write the lease with this term, if it is still at this revision."""

    revision: int
    term: int


@dataclass(frozen=True, slots=True)
class Renew:
    """Write our own lease again."""

    revision: int
    term: int


@dataclass(frozen=True, slots=True)
class StandBy:
    """Nothing to do before ``until_s``, unless the lease changes."""

    until_s: float


Decision = Acquire | Renew | StandBy


def decide(
    lease: Revisioned[LeaseRecord | None] | None, me: ManagerCandidate, now_s: float, ttl_s: float
) -> Decision:
    """Decide the action of manager ``me`` on leadership at ``now_s``.

    Args:
        lease: the lease key as last seen; its value is None when it was given up.
        me: the manager that decides.
        now_s: the observer's monotonic clock, seconds; at least ``lease.seen_at_s``.
        ttl_s: lifetime of a lease without a renewal, seconds.

    Returns:
        ``Acquire`` when the seat is free, ``Renew`` past a third of our own term, ``StandBy``
        otherwise.

    Source:
        The observer times the revision, as in Kubernetes client-go leaderelection; NATS ADR-8 for
        compare-and-set on a key.
    """
    if lease is None:
        return Acquire(revision=0, term=1)
    record = lease.value
    if record is None:
        # The term is lost with the record; the revision still grows, and the revision is what
        # fences.
        return Acquire(lease.revision, term=1)
    lapses_at_s = lease.seen_at_s + ttl_s
    if now_s >= lapses_at_s:
        return Acquire(lease.revision, record.term + 1)
    if not me.has(record):
        return StandBy(lapses_at_s)
    renew_at_s = lease.seen_at_s + ttl_s / 3
    return Renew(lease.revision, record.term) if now_s >= renew_at_s else StandBy(renew_at_s)


def leader_of(snapshot: ClusterSnapshot, ttl_s: float) -> str | None:
    """The manager that leads; None if the lease was given up or not renewed within its term."""
    record = _standing(snapshot, ttl_s)
    return record.holder if record is not None else None


def holds(snapshot: ClusterSnapshot, me: ManagerCandidate, ttl_s: float) -> bool:
    """Whether ``me`` may act as leader: it holds the lease and has renewed it within its term."""
    record = _standing(snapshot, ttl_s)
    return record is not None and me.has(record)


def _standing(snapshot: ClusterSnapshot, ttl_s: float) -> LeaseRecord | None:
    lease = snapshot.lease
    if lease is None or snapshot.now_s >= lease.seen_at_s + ttl_s:
        return None
    return lease.value
