"""Calls that any manager serves for clients: writes of desired state, and views of the cluster.

The leader acts on what is written; a manager that doesn't lead serves all the same.

The service of a manager without a manager: it sees the cluster, and leads nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mesh.clock import SystemClock
from mesh.control import election
from mesh.control.cluster_state import cluster_state_of
from mesh.control.journal import JournalEntry, story
from mesh.control.lifecycle import AppState, AppStatus, app_status, app_statuses
from mesh.control.readiness import manager_reasons
from mesh.errors import MeshError
from mesh.http.bounds import Bound
from mesh.jetstream import channels, evidence, journal
from mesh.jetstream.blob_store import open_blob_store
from mesh.jetstream.connection import close, connect, connector_options, refusals
from mesh.jetstream.feed_store import FeedStore
from mesh.jetstream.history_store import MetricsHistoryStore
from mesh.jetstream.journal import Journal
from mesh.jetstream.watch import ClusterView
from mesh.manager import connector_checks
from mesh.manager.backfills import Backfills
from mesh.manager.backups import Backups
from mesh.manager.deployments import UNDEPLOY_S, Deployments, paused_error
from mesh.manager.desired_state import DesiredState, until
from mesh.manager.events import AppEvents
from mesh.manager.feeds import Feeds
from mesh.manager.forks import Forks
from mesh.manager.language import LanguageDesk
from mesh.manager.nodes import Leadership, NodeView, node_views, worker_view
from mesh.manager.overview import Overview, overview
from mesh.manager.past import PastQuestions
from mesh.manager.planning import Planner
from mesh.manager.previews import Previews, WhatIfs
from mesh.manager.promotions import Adoptions, Promotions
from mesh.manager.queries import Queries
from mesh.manager.streams import Streams
from mesh.manager.supervision import Restarting, supervised
from mesh.manager.telemetry import Telemetry
from mesh.manager.tracing import Tracer
from mesh.manager.verifying import Verification
from mesh.model import names
from mesh.model.begin import EARLIEST
from mesh.model.cluster import Admission, AppRecord, NodeOrder
from mesh.plan.groups import as_scaled, scaled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence

    from nats.aio.client import Client

    from mesh.clock import Clock
    from mesh.control.cluster_state import ClusterState
    from mesh.manager.deployments import Deployed, Preview
    from mesh.manager.rates import Flow
    from mesh.migrate import Migrated
    from mesh.model.app import AppSpec
    from mesh.model.begin import StartPosition
    from mesh.model.cluster import StatisticsLevel
    from mesh.model.values import JsonObject
    from mesh.plan.picture import Drawing
    from mesh.settings import Settings


#: Time for which a write of an order or a width is retried while others write the key.
RETRY_S: Final = 5.0
#: Requests that wait for an app to run, or for the entries of a story.
WAITS_MAX: Final = 64
STORIES_MAX: Final = 8


class ManagerService:
    """The calls that the API offers; all raise MESH-A503 when NATS can't be reached."""

    def __init__(
        self,
        client: Client,
        view: ClusterView,
        settings: Settings,
        clock: Clock,
        *,
        name: str = "",
        notes: Journal | None = None,
    ) -> None:
        self.client = self._client = client
        self._js = client.jetstream()
        self._view = view
        self._settings = settings
        self._clock = clock
        self._notes = notes
        self._name = name
        self.custody: evidence.Custody | None = None
        #: Why JetStream refuses what the manager writes; empty if it does not.
        self.refusal_of_lease: Callable[[], str] = str
        self.desired = DesiredState(client, view, clock)
        self._waits = Bound(WAITS_MAX, "requests wait for an app to run")
        self._stories = Bound(STORIES_MAX, "requests wait for a story")
        self._story_turn = asyncio.Lock()
        self._survey: tuple[int, ClusterState] | None = None
        self._planner = planner = Planner(settings)
        context = client, view, self.desired
        self.deployments = Deployments(*context, settings, clock, self._note, planner)
        self.guarantees = self.deployments.guarantees
        self.language = LanguageDesk(settings.receiver.refs_file)
        self.streams = Streams(client, self.desired.spec)
        self.tracer = Tracer()
        #: By app and group: the instances that the load needs; the autoscaler's, while it leads.
        self.targets: Mapping[tuple[str, str], int] = {}
        self.telemetry = Telemetry(view, clock, settings.manager)
        self.queries = Queries(client, view, self.desired, settings, clock)
        self.events = AppEvents(client, self.desired.spec, self._take, clock.wall_ms)
        pieces = open_blob_store(self._js, settings.state.store, connector_options(settings.nats))
        store = FeedStore(self._js, pieces, settings.channels.replicas)
        self.feeds = Feeds(store, self.events, self.desired.spec, self._take, clock.wall_ms)
        self.backups = Backups(*context, pieces, settings, clock, self._take, planner)
        self.verification = Verification(client, view, self.desired, pieces, settings, clock)
        self.past = PastQuestions(self.desired, settings)
        adoptions = Adoptions(*context, self.past, pieces, settings, clock)
        calls = self.deployments, planner, self.undeploy, self._take
        self.promotions = Promotions(self.desired, *calls, adoptions)
        self.forks = Forks(
            client, self.desired, self.deployments, pieces, settings, clock, self._take, planner
        )
        self.what_ifs = WhatIfs(planner, view)
        self.previews = Previews(planner, self.desired, self.past)
        self.backfills = Backfills(client, self.deployments, planner, pieces, settings, clock)
        self.deployments.history_of = self.backfills.history_of

    async def deploy(self, text: str, *, by: str = "", begin: StartPosition = EARLIEST) -> Deployed:
        """See ``Deployments.deploy``."""
        return await self.deployments.deploy(text, by=by, begin=begin)

    async def update(
        self,
        text: str,
        *,
        by: str = "",
        replace: bool = False,
        reset: Collection[str] = (),
        begin: StartPosition = EARLIEST,
    ) -> Deployed:
        """See ``Deployments.update``."""
        return await self.deployments.update(
            text, undeploy=self.undeploy, by=by, replace=replace, reset=reset, begin=begin
        )

    async def preview(self, text: str, *, reset: Collection[str] = ()) -> Preview:
        """See ``Deployments.preview``."""
        return await self.deployments.preview(text, reset)

    async def check(self, text: str) -> list[JsonObject]:
        """See ``mesh.manager.connector_checks``."""
        spec = await self._planner.plan(text)
        return await connector_checks.check(self._client, spec, self._view.snapshot())

    async def pause(self, app: str, *, by: str = "") -> AppStatus:
        """Stop the instances of an app; its channels, states and positions stay.

        Raises:
            MeshError: MESH-A404; MESH-A409 while it is undeployed, restored or changing.
        """
        await self._set_paused(app, True, by)
        return self._status(app)

    async def set_statistics(self, app: str, level: StatisticsLevel, *, by: str = "") -> None:
        """Switch the metrics of an app; MESH-A404."""

        def next_record() -> AppRecord | None:
            record = self.desired.get(app).value
            return None if record.statistics is level else replace(record, statistics=level)

        if at_ms := await self.desired.change(names.app_key(app), next_record, RETRY_S):
            self._note(f"set statistics of app {app} to {level}", at_ms, by, app=app)

    async def resume(self, app: str, *, by: str = "") -> AppStatus:
        """Continue a paused app where it stopped; errors as ``pause``."""
        await self._set_paused(app, False, by)
        return self._status(app)

    async def _set_paused(self, app: str, paused: bool, by: str) -> None:
        def next_record() -> AppRecord | None:
            record = self.desired.get(app).value
            if record.deleting:
                raise MeshError("MESH-A409", f'app "{app}" is still being undeployed')
            if record.held:
                raise MeshError("MESH-A409", f'app "{app}" does not run now: {record.held}')
            # A group that changes its revision stops and starts instances itself.
            if paused and any(name == app for name, _ in self._surveyed().changes):
                raise MeshError(
                    "MESH-A409",
                    f'app "{app}" is changing',
                    hint="'mesh status' shows what it waits for.  Pause it when it runs.",
                )
            return None if record.paused == paused else replace(record, paused=paused)

        if at_ms := await self.desired.change(names.app_key(app), next_record, RETRY_S):
            self._note(f"{'paused' if paused else 'resumed'} app {app}", at_ms, by, app=app)

    def unready_reasons(self) -> tuple[str, ...]:
        """Reasons why this manager can't serve now; none if it is ready."""
        ttl_s, is_connected = self._settings.worker.ttl_s, self._client.is_connected
        reasons = manager_reasons(self._view.snapshot(), ttl_s, is_connected=is_connected)
        missing = evidence.reasons(self.custody.missing if self.custody else ())
        return (*reasons, *missing, *filter(None, [self.refusal_of_lease()]))

    def is_live(self) -> bool:
        """Whether the connection to NATS is there, or may come back."""
        return not self._client.is_closed

    async def leadership(self) -> Leadership:
        """The current leader."""
        ttl_s = self._settings.manager.lease_ttl_s
        return Leadership(self._name, election.leader_of(self._view.snapshot(), ttl_s))

    async def undeploy(self, app: str, *, by: str = "") -> None:
        """Mark ``app`` for removal; the leader stops it and deletes its channels and state."""

        def removed() -> AppRecord | None:
            current = self.desired.get(app).value
            if not current.deleting:
                self.desired.refuse_while_read(app)
            return None if current.deleting else replace(current, deleting=True)

        if at_ms := await self.desired.change(names.app_key(app), removed, UNDEPLOY_S):
            self._note(f"asked for app {app} to be undeployed", at_ms, by, app=app)

    async def scale(self, app: str, group: str, parallel: int, *, by: str = "") -> AppStatus:
        """Set the desired number of instances of a group.

        Returns:
            The app's status now; it is "rescaling" until the first of the new instances starts.

        Raises:
            MeshError: MESH-A404 where there is no such app or group, MESH-A422 where it can't have
                so many, MESH-A409 while the app is being undeployed.
        """

        def next_record() -> AppRecord | None:
            record = self.desired.get(app).value
            if record.deleting:
                raise MeshError("MESH-A409", f'app "{app}" is still being undeployed')
            if record.held:
                raise MeshError("MESH-A409", f'app "{app}" does not run now: {record.held}')
            if record.paused:
                raise paused_error(app)
            spec = scaled(record.spec, group, parallel)
            new_record = replace(record, spec=spec, scaled={**record.scaled, group: parallel})
            return None if new_record == record else new_record

        if at_ms := await self.desired.change(names.app_key(app), next_record, RETRY_S):
            count = f"{parallel} instance{'s' if parallel > 1 else ''}"
            self._note(f"asked for {count} of group {group}", at_ms, by, app=app)
        return await self.status(app)

    def loads(self) -> tuple[Sequence[AppRecord], Sequence[AppStatus], Callable[[str], Flow]]:
        """Records and states of all apps, and the flow of an instance by name.

        No app at all while no group is scaled by its load: the autoscaler needs none then.
        """
        records = [seen.value for seen in self._view.snapshot().apps]
        if not any(record.spec.bounds for record in records):
            return [], [], self.telemetry.rates.flow
        return records, app_statuses(self._surveyed(), records), self.telemetry.rates.flow

    async def apps(self) -> list[AppStatus]:
        """All apps with their states, by name."""
        snapshot = self._view.snapshot()
        cluster = cluster_state_of(snapshot, self._settings)
        records = sorted((a.value for a in snapshot.apps), key=lambda record: record.spec.name)
        return app_statuses(cluster, records)

    async def overview(self) -> Overview:
        """The whole cluster, what needs a person first."""
        return await self.overview_of(await self.apps(), await self.nodes())

    async def overview_of(self, apps: Sequence[AppStatus], nodes: Sequence[NodeView]) -> Overview:
        """The overview of these apps and nodes."""
        facts = (await self.leadership()).leader, self.unready_reasons(), self.verification.latest()
        failed = await self.events.failed_counts()
        return overview(apps, nodes, *facts, self.telemetry.rates.flow, failed)

    async def flows(self) -> dict[str, Flow]:
        """The present flow of each app, by name."""
        members: dict[str, list[str]] = {}
        for placed in self._view.snapshot().assignments:
            members.setdefault(placed.value.app, []).append(placed.value.instance)
        return self.telemetry.flows(members)

    def now_ms(self) -> int:
        """The wall clock, milliseconds since 1970."""
        return self._clock.wall_ms()

    async def cluster_figures(self) -> JsonObject:
        """Figures of the cluster besides apps and nodes, for metrics."""
        return {
            **self.telemetry.figures(),
            "targets": dict(self.targets),
            "findings": self.verification.figures(),
        }

    async def app(self, app: str) -> AppSpec:
        """The plan of an app; MESH-A404 if it is not deployed."""
        return self.desired.spec(app)

    async def plan_view(self, app: str, form: str) -> Any:
        """The plan of an app as ``json`` values, as ``elements``, in ``svg`` or ``dot``."""
        return await self._planner.view(self.desired.spec(app), form)

    async def drawing(self, text: str) -> Drawing:
        """The places of a text's groups and channels, with the instances of its app now."""
        spec = await self._planner.plan(text)
        record = self.desired.record(spec.name)
        spec = as_scaled(spec, record.scaled if record is not None else {})
        layout: Drawing = await self._planner.view(spec, "drawing")
        return layout

    async def name_of(self, text: str) -> str:
        """The name of the app of a text; MESH-L*."""
        return await self._planner.name(text)

    async def migrated(self, text: str, name: str) -> Migrated:
        """A text of Siddhi 3, 4 or 5 as it runs here; see ``mesh.migrate``."""
        return await self._planner.migrated(text, name)

    def record(self, app: str) -> AppRecord | None:
        """The desired state of an app; None if it is not deployed."""
        return self.desired.record(app)

    async def status(self, app: str) -> AppStatus:
        """The app's state, its reason and its instances; MESH-A404."""
        return self._status(app)

    async def wait_running(self, app: str, timeout_s: float) -> AppStatus:
        """The status as soon as the app runs, or after ``timeout_s``."""

        def is_running() -> bool:
            record = self.desired.get(app).value
            return app_status(self._surveyed(), record).state is AppState.RUNNING

        with self._waits.turn():
            await until(self._view, self._clock, timeout_s, is_running)
        return self._status(app)

    async def nodes(self) -> list[NodeView]:
        """Managers and workers, by role and name."""
        return node_views(self._view.snapshot(), self._settings)

    async def order_node(self, node: str, admission: str, *, by: str = "") -> NodeView:
        """Set the admission of worker ``node``: ``open``, ``cordoned`` or ``draining``.

        Returns:
            The worker, with the order in force.

        Raises:
            MeshError: MESH-A404 when there is no such worker.
        """
        target = Admission(admission)

        def order() -> NodeOrder:
            worker_view(self._view.snapshot(), self._settings, node)
            return NodeOrder(node, target, by, self._clock.wall_ms())

        if at_ms := await self.desired.change(names.order_key(node), order, RETRY_S):
            self._note(f"made worker {node} {target.value}", at_ms, by, worker=node)
        return worker_view(self._view.snapshot(), self._settings, node)

    async def story(self, app: str) -> list[JournalEntry]:
        """The journal of ``app``, in order, also after it was undeployed; MESH-A404."""
        with self._stories.turn(), refusals():
            async with self._story_turn:
                entries = story(await journal.read(self._js, app), app)
        if not entries:
            self.desired.get(app)
        return entries

    def _note(
        self,
        text: str,
        at_ms: int,
        by: str = "",
        *,
        app: str = "",
        worker: str = "",
        cause: str = "",
    ) -> None:
        """Note a write of ``at_ms``: its consequences may be noted before it."""
        by = by and f"user {by}"
        self._take(JournalEntry(text, cause, by=by, at_ms=at_ms, app=app, worker=worker))

    def _take(self, entry: JournalEntry) -> None:
        if self._notes is not None:
            self._notes.note(entry)

    def _surveyed(self) -> ClusterState:
        """The cluster, surveyed once for each change of the view, for all that wait for one."""
        version = self._view.version
        if self._survey is None or self._survey[0] != version:
            self._survey = version, cluster_state_of(self._view.snapshot(), self._settings)
        return self._survey[1]

    def _status(self, app: str) -> AppStatus:
        record = self.desired.get(app).value
        return app_status(cluster_state_of(self._view.snapshot(), self._settings), record)


@asynccontextmanager
async def observing(settings: Settings) -> AsyncIterator[ManagerService]:
    """A service on a view of its own.

    Raises:
        MeshError: MESH-N1* when NATS can't be reached.
    """
    clock = SystemClock()
    async with contextlib.AsyncExitStack() as ends:
        client = await connect(settings.nats, "mesh dashboard")
        ends.push_async_callback(close, client)
        await channels.ensure_buckets(client.jetstream(), settings.channels)
        view = ClusterView(client, clock, quiet_s=settings.worker.ttl_s / 2)
        ends.push_async_callback(view.stop)
        await view.start()
        journal = Journal(client, "dashboard", clock)
        journal.start()
        ends.push_async_callback(journal.stop)
        service = ManagerService(client, view, settings, clock, notes=journal)
        # Questions of NATS clients are answered by managers.
        ends.push_async_callback(service.queries.stop)
        stored = MetricsHistoryStore(client, settings.channels.replicas, 0)
        keeper = partial(service.telemetry.keep, stored, lambda: False)
        works = {
            one.name: one
            for one in (
                Restarting("history", service.telemetry.run), Restarting("stored history", keeper)
            )
        }  # fmt: skip
        async with supervised(works, {**view.tasks, **journal.tasks}):
            yield service
