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
    NodeRole,
    Standby,
    StandbyStatus,
)

if TYPE_CHECKING:
    from mesh.model.app import GroupSpec

T = TypeVar("T")


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
