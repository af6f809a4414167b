"""Calls of the REST API on the cluster, as protocols.

``mesh.manager.service`` implements them; tests use small ones.  Results are dataclasses of JSON
values and are encoded as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from mesh.api.feed_service import Feeds
    from mesh.api.history_service import (
        Backfills,
        Forks,
        Guarantees,
        Past,
        Promotions,
        Verification,
        WhatIfs,
    )
    from mesh.model.app import AppSpec
    from mesh.model.begin import StartPosition
    from mesh.model.cluster import StatisticsLevel
    from mesh.model.events import SimulatedEvent


class Deployed(Protocol):
    """The answer to a deploy."""

    @property
    def app(self) -> str:
        """The app's name."""
        ...

    @property
    def is_new(self) -> bool:
        """False when an app of this name was deployed already."""
        ...


class Leadership(Protocol):
    """The current leader, as one manager sees it."""

    @property
    def manager(self) -> str:
        """The manager that says so."""
        ...

    @property
    def leader(self) -> str | None:
        """The leader; None if no manager leads."""
        ...

    @property
    def leads(self) -> bool:
        """Whether the manager that answers is the leader."""
        ...


class Node(Protocol):
    """A manager or a worker."""

    @property
    def role(self) -> str:
        """``manager`` or ``worker``."""
        ...


class Events(Protocol):
    """Calls on an app's events; all raise MESH-A404 for an app that is not there."""

    async def failed_count(self, app: str) -> int:
        """Number of failed events."""
        ...

    async def failed(self, app: str, limit: int, before: int | None = None) -> Sequence[Any]:
        """The last ``limit`` failed events with an id below ``before``, oldest first."""
        ...

    async def failed_one(self, app: str, id_: int) -> Any:
        """A failed event; MESH-A404."""
        ...

    async def replay(
        self,
        app: str,
        ids: Sequence[int] | None,
        data: bytes | None,
        *,
        by: str,
        to_stream: bool = False,
    ) -> Any:
        """Send failed events again, None for all; ``data`` in the place of a single one.

        Those of a source or sink go to that alone, unless ``to_stream``.
        """
        ...

    async def discard(self, app: str, ids: Sequence[int] | None, *, by: str) -> Any:
        """Discard failed events, None for all."""
        ...

    async def discard_older(self, app: str, age_s: float, *, by: str) -> int:
        """Discard events that failed longer ago; returns how many."""
        ...

    async def send(self, app: str, events: Sequence[SimulatedEvent]) -> int:
        """Publish events for a test; MESH-A400 for one that does not fit its stream."""
        ...


class Backups(Protocol):
    """Calls on backups; MESH-A404 for an app or a backup that is not there."""

    async def make(self, app: str, *, by: str) -> Backup:
        """Back an app up while it runs."""
        ...

    async def known(self, app: str) -> Sequence[Any]:
        """The backups of an app, oldest first."""
        ...

    async def delete(self, app: str, revision: str | None, *, by: str) -> int:
        """Delete one backup, or all with None; how many there were."""
        ...

    async def restore(
        self,
        app: str,
        *,
        revision: str | None,
        before_ms: int | None,
        other: str | None,
        replay: bool,
        by: str,
    ) -> Any:
        """Restore a backup's state.

        MESH-A409 for a name that is taken, MESH-A410 when the input since then is deleted.
        """
        ...


class Backup(Protocol):
    """A backup that was made."""

    @property
    def revision(self) -> str:
        """Its name."""
        ...


class QueryAnswer(Protocol):
    """The answer to an on-demand query."""

    def to_values(self, *, details: bool) -> dict[str, Any]:
        """As JSON values; with ``details`` also names and types of the columns."""
        ...


class Queries(Protocol):
    """On-demand queries."""

    async def ask(
        self,
        app: str,
        query: str,
        *,
        at_least: Mapping[str, int],
        partial: bool,
        may_change: bool,
        id_: str,
    ) -> QueryAnswer:
        """The answer; MESH-A503 if a part can't answer now, unless ``partial``.

        ``at_least``: by JetStream stream, the sequence that the answer has to include.
        ``may_change``, ``id_``: whether it may change a table, and the id of the change.
        """
        ...

    async def check_aggregation(self, app: str, aggregation: str) -> None:
        """Check that an app has an aggregation; MESH-A404."""
        ...


class Service(Protocol):
    """Calls on the cluster, each good on any manager.

    All raise MeshError: MESH-A404 for an app that doesn't exist, MESH-N* without NATS.
    """

    @property
    def events(self) -> Events:
        """Calls on events."""
        ...

    @property
    def feeds(self) -> Feeds:
        """Calls on simulations."""
        ...

    @property
    def backups(self) -> Backups:
        """Calls on backups."""
        ...

    @property
    def verification(self) -> Verification:
        """Comparison of apps with what NATS stores of them."""
        ...

    @property
    def guarantees(self) -> Guarantees:
        """Audit of what holds through which failures."""
        ...

    @property
    def promotions(self) -> Promotions:
        """Promotions of forks."""
        ...

    @property
    def past(self) -> Past:
        """Questions about an app's past."""
        ...

    @property
    def forks(self) -> Forks:
        """Forks of apps."""
        ...

    @property
    def what_ifs(self) -> WhatIfs:
        """Needs of apps at rates."""
        ...

    @property
    def backfills(self) -> Backfills:
        """Deploys with history."""
        ...

    @property
    def queries(self) -> Queries:
        """On-demand queries."""
        ...

    async def deploy(self, text: str, *, by: str, begin: StartPosition) -> Deployed:
        """Plan ``text`` and write it down as desired.

        MESH-A409 when another text of the same name is deployed, MESH-L* and MESH-P* for faults
        of the text.
        """
        ...

    async def update(
        self, text: str, *, by: str, replace: bool, reset: Sequence[str], begin: StartPosition
    ) -> Deployed:
        """Deploy ``text`` in place of the app of its name, or as a new app.

        MESH-C120 and MESH-C121 when a running app would lose state that neither ``reset`` (groups)
        nor ``replace`` gives up.
        """
        ...

    async def preview(self, text: str, *, reset: Sequence[str]) -> Any:
        """The effect of deploying ``text`` now; nothing is written.

        MESH-L* and MESH-P* for faults of the text; another refusal is a part of the answer.
        """
        ...

    async def check(self, text: str) -> Any:
        """Results of opening each source and sink of an app by a worker that would run it.

        MESH-L* and MESH-P* for faults of the text; what can't be opened is a part of the answer.
        """
        ...

    async def pause(self, app: str, *, by: str) -> Any:
        """Stop an app's instances, and keep all else; the app's status."""
        ...

    async def resume(self, app: str, *, by: str) -> Any:
        """Continue a paused app; the app's status."""
        ...

    async def set_statistics(self, app: str, level: StatisticsLevel, *, by: str) -> None:
        """Switch the metrics of an app."""
        ...

    async def scale(self, app: str, group: str, parallel: int, *, by: str) -> Any:
        """Have as many instances of a group; the app's status.

        MESH-A404 for an unknown group, MESH-A422 where it can't have so many.
        """
        ...

    async def undeploy(self, app: str, *, by: str) -> None:
        """Mark ``app`` for removal."""
        ...

    async def apps(self) -> Sequence[Any]:
        """All apps with their states."""
        ...

    async def name_of(self, text: str) -> str:
        """The name of the app of a text; MESH-L*."""
        ...

    async def overview(self) -> Any:
        """The whole cluster, what needs a person first."""
        ...

    async def flows(self) -> Mapping[str, Any]:
        """The present flow of each app, by name: rates, backlog, duration of a batch."""
        ...

    def span(
        self, name: str, headers: Mapping[str, str], **attributes: Any
    ) -> AbstractContextManager[None]:
        """A span around the body, in the trace that the headers of a request name."""
        ...

    def now_ms(self) -> int:
        """The manager's wall clock, milliseconds since 1970."""
        ...

    def history_bytes(self) -> int:
        """Memory of the history."""
        ...

    async def cluster_figures(self) -> dict[str, Any]:
        """Figures of the cluster besides apps and nodes; see ``mesh.api.metrics.ClusterValues``."""
        ...

    async def history(self, kind: str, name: str, seconds: int, step_s: int) -> Any:
        """The last seconds of an ``app``, a ``group`` or a ``node``, in steps.

        MESH-A404 without a history, MESH-A422 for a longer time than is kept.
        """
        ...

    async def app(self, app: str) -> AppSpec:
        """The plan of an app."""
        ...

    async def plan_view(self, app: str, form: str) -> Any:
        """The plan of an app as ``json`` values, as ``elements``, in ``svg`` or ``dot``."""
        ...

    async def status(self, app: str) -> Any:
        """The app's state, its reason, and its instances."""
        ...

    async def wait_running(self, app: str, timeout_s: float) -> Any:
        """The status as soon as all instances run, or after ``timeout_s``."""
        ...

    async def leadership(self) -> Leadership:
        """The current leader."""
        ...

    def unready_reasons(self) -> Sequence[str]:
        """Reasons why this manager can't serve now; none if it is ready."""
        ...

    async def nodes(self) -> Sequence[Node]:
        """Managers and workers."""
        ...

    async def story(self, app: str) -> Sequence[Any]:
        """The journal of an app, in order; MESH-A404 without entries."""
        ...

    async def order_node(self, node: str, admission: str, *, by: str) -> Node:
        """Set a worker's admission: ``open``, ``cordoned`` or ``draining``; MESH-A404."""
        ...
