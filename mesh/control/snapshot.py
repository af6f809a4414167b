"""Input of a decision: the cluster's records as one observer has seen them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from mesh.model.cluster import (
    AppRecord,
    Assignment,
    GroupForm,
    InstanceStatus,
    LeaseRecord,
    NodeOrder,
    NodeRecord,
    Role,
    Standby,
    StandbyStatus,
)

if TYPE_CHECKING:
    from mesh.model.app import GroupSpec

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Seen(Generic[T]):
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
    lease: Seen[LeaseRecord | None] | None = None
    nodes: tuple[Seen[NodeRecord], ...] = ()
    apps: tuple[Seen[AppRecord], ...] = ()
    assignments: tuple[Seen[Assignment], ...] = ()
    statuses: tuple[Seen[InstanceStatus], ...] = ()
    orders: tuple[Seen[NodeOrder], ...] = ()
    standbys: tuple[Seen[Standby], ...] = ()
    held: tuple[Seen[StandbyStatus], ...] = ()
    forms: tuple[Seen[GroupForm], ...] = ()
    #: Time to which ages of nodes are measured, if that is not ``now_s``: an observer that receives
    #: nothing, not even its own heartbeats, is cut off, and must not count that as silence of the
    #: others.
    listened_s: float | None = None

    @property
    def ages_s(self) -> float:
        """The time to which ages of nodes are measured."""
        return self.now_s if self.listened_s is None else self.listened_s

    def node(self, role: Role, name: str) -> Seen[NodeRecord] | None:
        """The record of one node."""
        return next((n for n in self.nodes if (n.value.role, n.value.id) == (role, name)), None)

    def app(self, name: str) -> Seen[AppRecord] | None:
        """The desired state of one app."""
        return next((a for a in self.apps if a.value.spec.name == name), None)

    def groups_of(self, record: AppRecord) -> set[GroupSpec]:
        """The groups of an app, as desired and as they run: one may be about to change."""
        incarnation = record.incarnation
        running = (f.value.spec for f in self.forms if f.value.app_incarnation == incarnation)
        return {*record.spec.groups, *running}

    def form(self, assignment: Assignment) -> GroupForm | None:
        """The group revision of ``assignment``; None if that isn't known here."""
        told = assignment
        wanted = told.app, told.group, told.app_incarnation, told.form
        forms = (seen.value for seen in self.forms)
        found = (f for f in forms if (f.app, f.group, f.app_incarnation, f.number) == wanted)
        return next(found, None)

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
