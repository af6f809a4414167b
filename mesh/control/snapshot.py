"""Input of a decision: the cluster's records as one observer has seen them.

The observer builds its view of them from the changes that it receives.

Revisions of a bucket grow, so an older one that arrives late is ignored.  They go back if NATS has
lost the bucket's last writes, or its stream was restored or made again.  So an observer that reads
a bucket from its start compares what it knows with what it has read, and forgets the rest.

Every record has its revision and the time at which this observer first saw it, on its own monotonic
clock.  The age of a heartbeat or of the lease is measured from there, so clocks of two machines are
never compared.  This module has no clock and no socket: the caller passes the time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from mesh.model import names
from mesh.model.cluster import (
    AppRecord,
    Assignment,
    GroupForm,
    InstanceStatus,
    LeaseRecord,
    NodeOrder,
    NodeRecord,
    NodeRole,
    Standby,
    StandbyStatus,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.model.app import GroupSpec
    from mesh.model.values import JsonObject


T = TypeVar("T")

#: Bucket and key, or start of the key up to its first dot, to the current record.
_KINDS: Final[tuple[tuple[str, str, type[Any]], ...]] = (
    (names.CONTROL_BUCKET, names.LEASE_KEY, LeaseRecord),
    (names.CONTROL_BUCKET, "node.", NodeRecord),
    (names.CONTROL_BUCKET, "assignment.", Assignment),
    (names.CONTROL_BUCKET, "standby.", Standby),
    (names.CONTROL_BUCKET, "form.", GroupForm),
    (names.APPS_BUCKET, "app.", AppRecord),
    (names.APPS_BUCKET, "node.", NodeOrder),
    (names.STATUS_BUCKET, "instance.", InstanceStatus),
    (names.STATUS_BUCKET, "standby.", StandbyStatus),
)


@dataclass(frozen=True, slots=True)
class Revisioned(Generic[T]):
    """A record with its revision."""

    value: T
    #: Stream sequence of the write.
    revision: int
    #: When the observer first saw this revision, seconds on its own monotonic clock.
    seen_at_s: float


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The whole view at one moment."""

    #: The observer's monotonic clock, seconds; not before any ``seen_at_s``.
    now_s: float
    #: Its value is None when the last holder gave it up.
    lease: Revisioned[LeaseRecord | None] | None = None
    nodes: tuple[Revisioned[NodeRecord], ...] = ()
    apps: tuple[Revisioned[AppRecord], ...] = ()
    assignments: tuple[Revisioned[Assignment], ...] = ()
    statuses: tuple[Revisioned[InstanceStatus], ...] = ()
    orders: tuple[Revisioned[NodeOrder], ...] = ()
    standbys: tuple[Revisioned[Standby], ...] = ()
    held: tuple[Revisioned[StandbyStatus], ...] = ()
    forms: tuple[Revisioned[GroupForm], ...] = ()
    #: Time to which ages of nodes are measured, if that is not ``now_s``: an observer that receives
    #: nothing, not even its own heartbeats, is cut off, and must not count that as silence of the
    #: others.
    listened_s: float | None = None
    #: Grows with each change that may matter to a decision; None if the observer does not count.
    news: int | None = None

    @property
    def ages_s(self) -> float:
        """The time to which ages of nodes are measured."""
        return self.now_s if self.listened_s is None else self.listened_s

    def node(self, role: NodeRole, name: str) -> Revisioned[NodeRecord] | None:
        """The record of one node."""
        return next((n for n in self.nodes if (n.value.role, n.value.id) == (role, name)), None)

    def app(self, name: str) -> Revisioned[AppRecord] | None:
        """The desired state of one app."""
        return next((a for a in self.apps if a.value.spec.name == name), None)

    def groups_of(self, record: AppRecord) -> set[GroupSpec]:
        """The groups of an app, as desired and as they run: one may be about to change."""
        incarnation = record.incarnation
        running = (f.value.spec for f in self.forms if f.value.app_incarnation == incarnation)
        return {*record.spec.groups, *running}

    def form(self, assignment: Assignment) -> GroupForm | None:
        """The group revision of ``assignment``; None if that isn't known here."""
        shown = assignment
        key = shown.app, shown.group, shown.app_incarnation, shown.form
        forms = (seen.value for seen in self.forms)
        matches = (f for f in forms if (f.app, f.group, f.app_incarnation, f.number) == key)
        return next(matches, None)

    def status(self, assignment: Assignment) -> InstanceStatus | None:
        """The worker's last report about an assignment; reports of other epochs don't count."""
        return next(
            (
                s.value
                for s in self.statuses
                if s.value.instance == assignment.instance and s.value.epoch == assignment.epoch
            ),
            None,
        )


@lru_cache(10_000)
def kind_of(bucket: str, key: str) -> type[Any] | None:
    """The type of the record under a key; None for other keys."""
    for at, start, kind in _KINDS:
        if at == bucket and (key.startswith(start) if start.endswith(".") else key == start):
            return kind
    return None


@dataclass(eq=False, repr=False)
class Records:
    """The records received so far."""

    #: When a message last arrived; at first the observer's clock.
    _last_activity_s: float
    #: A heartbeat after a longer silence is news.  A longer silence of all nodes means that this
    #: observer is cut off.  Half of a node's term, in which a manager's own heartbeats arrive
    #: twice.
    _quiet_s: float = 1.0
    _revisions: dict[tuple[str, str], int] = field(default_factory=dict)
    _seen: defaultdict[type[Any], dict[str, Revisioned[Any]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    _lease: Revisioned[LeaseRecord | None] | None = None
    #: Built on demand, and kept until a record of the kind changes.
    _tuples: dict[type[Any], tuple[Any, ...]] = field(default_factory=dict)
    #: Grows with each change.
    version: int = 0
    #: Grows with each change that may matter to a decision: not with a heartbeat or a report
    #: with the same content as the last one.
    news: int = 0

    def snapshot(self, now_s: float) -> ClusterSnapshot:
        """Everything, as of ``now_s``."""
        return ClusterSnapshot(
            now_s=now_s,
            listened_s=min(now_s, self._last_activity_s + self._quiet_s),
            lease=self._lease,
            nodes=self._all(NodeRecord),
            apps=self._all(AppRecord),
            assignments=self._all(Assignment),
            forms=self._all(GroupForm),
            statuses=self._all(InstanceStatus),
            orders=self._all(NodeOrder),
            standbys=self._all(Standby),
            held=self._all(StandbyStatus),
            news=self.news,
        )

    def revision(self, bucket: str, key: str) -> int:
        """The revision of a key's last write, a deletion too; 0 for one never written."""
        return self._revisions.get((bucket, key), 0)

    def last_revision(self, bucket: str) -> int:
        """The highest known revision of any key of a bucket; 0 for none."""
        return max((r for (b, _), r in self._revisions.items() if b == bucket), default=0)

    def values(self, bucket: str) -> JsonObject:
        """By key, the records of a bucket."""
        records = {key: self._value(bucket, key) for at, key in self._revisions if at == bucket}
        return {key: value for key, value in records.items() if value is not None}

    def take_all(
        self, bucket: str, entries: Mapping[str, tuple[object, int]], upto: float, now_s: float
    ) -> None:
        """Apply a whole bucket that was read from its start.

        Args:
            bucket: the bucket.
            entries: each key with its record, None for a deletion, and its revision.
            upto: what is known above this revision stays: it was written after the read; infinity
                if the bucket is known to have gone back.
            now_s: the observer's clock.
        """
        for (at, key), revision in list(self._revisions.items()):
            if at != bucket or revision > upto:
                continue
            value, there = entries.get(key, (None, 0))
            # Another history may have written another record at the same revision.
            is_same = there == revision and value == self._value(bucket, key)
            if upto == math.inf or not (there > revision or is_same):
                self._forget(bucket, key)
        for key, (value, revision) in entries.items():
            self.take(bucket, key, value, revision, now_s)
        if self._lease is not None and names.LEASE_KEY in entries:
            # It may have been renewed at the revision that an earlier one had.
            self._lease = replace(self._lease, seen_at_s=now_s)

    def _value(self, bucket: str, key: str) -> object:
        kind = kind_of(bucket, key)
        if kind is LeaseRecord:
            return self._lease.value if self._lease is not None else None
        seen = self._seen[kind].get(key) if kind is not None else None
        return seen.value if seen is not None else None

    def _forget(self, bucket: str, key: str) -> None:
        """Drop a record and its revision."""
        del self._revisions[bucket, key]
        kind = kind_of(bucket, key)
        self.version += 1
        self.news += 1
        if kind is LeaseRecord:
            self._lease = None
        elif kind is not None:
            self._seen[kind].pop(key, None)
            self._tuples.pop(kind, None)

    def hear(self, now_s: float) -> None:
        """Record that a message of the control bucket arrived.

        After a time in which this observer was cut off, the ages of nodes start at zero.  Otherwise
        the first worker to send a heartbeat after an outage would be the only one present.  It
        would be given all instances that the other workers are about to continue.
        """
        if now_s - self._last_activity_s > self._quiet_s:
            nodes = self._seen[NodeRecord]
            for key, seen in nodes.items():
                nodes[key] = Revisioned(seen.value, seen.revision, now_s)
            self._tuples.pop(NodeRecord, None)
            self.news += 1
        self._last_activity_s = now_s

    def take(self, bucket: str, key: str, value: Any, revision: int, now_s: float) -> bool:
        """Apply a record, None for a deletion; False if a later one is known."""
        if self._revisions.get((bucket, key), 0) >= revision:
            return False
        # A deletion leaves its revision, so an older write that arrives late is not treated as
        # news.
        self._revisions[bucket, key] = revision
        kind = kind_of(bucket, key)
        self.version += 1
        if kind is LeaseRecord:
            before = self._lease.value if self._lease is not None else None
            self.news += before != value
            self._lease = Revisioned(value, revision, now_s)
        elif kind is not None:
            records = self._seen[kind]
            earlier = records.get(key)
            if self._is_news(earlier, value, now_s):
                self.news += 1
            if value is None:
                records.pop(key, None)
            else:
                records[key] = Revisioned(value, revision, now_s)
            self._tuples.pop(kind, None)
        return True

    def _all(self, kind: type[Any]) -> tuple[Any, ...]:
        records = self._tuples.get(kind)
        if records is None:
            records = self._tuples[kind] = tuple(self._seen[kind].values())
        return records

    def _is_news(self, earlier: Revisioned[object] | None, value: object, now_s: float) -> bool:
        if earlier is None or value is None:
            return earlier is not None or value is not None
        if isinstance(value, NodeRecord):
            if now_s - earlier.seen_at_s > self._quiet_s:
                return True
            return bool(_substance_of_node(earlier.value) != _substance_of_node(value))
        if isinstance(value, StandbyStatus):
            return False
        if isinstance(value, InstanceStatus):
            return bool(_substance_of_status(earlier.value) != _substance_of_status(value))
        return True


#: The fields of heartbeats and reports that decisions use: not those that always change.
_substance_of_node: Final = attrgetter(
    *(f.name for f in fields(NodeRecord) if f.name not in ("beat", "metrics", "starting_s"))
)
_substance_of_status: Final = attrgetter(
    "worker", "epoch", "state", "error", "restarts", "newer_epoch"
)
