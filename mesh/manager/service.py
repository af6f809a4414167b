"""What any manager does for a client: writes down what is desired, and tells what is.

The leader acts on what is written; a manager that doesn't lead serves all the same.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nats.errors import Error as NatsError

from mesh.control.journal import Entry, story
from mesh.control.lifecycle import AppState, AppStatus, app_status
from mesh.control.survey import survey
from mesh.errors import MeshError
from mesh.jetstream import beginnings, channels, journal, kv
from mesh.jetstream.connection import connector_options
from mesh.jetstream.pieces import open_pieces
from mesh.manager.backups import Backups
from mesh.manager.events import Events, unreachable
from mesh.manager.nodes import NodeView, node_views
from mesh.manager.waiting import until, until_removed
from mesh.model import codec, names
from mesh.model.begin import EARLIEST
from mesh.model.cluster import Admission, AppRecord, NodeOrder
from mesh.plan.build import plan
from mesh.plan.changes import changes
from mesh.plan.edits import begun, edited, still_retired
from mesh.plan.explain_changes import changes_to_values, explain_changes
from mesh.plan.scale import as_scaled, scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from nats.aio.client import Client

    from mesh.clock import Clock
    from mesh.control.snapshot import Seen
    from mesh.jetstream.journal import Journal
    from mesh.jetstream.watch import ClusterView
    from mesh.model.app import AppSpec
    from mesh.model.begin import Begin
    from mesh.settings import Settings

#: How long a deploy waits for an app of the same name to be taken apart.
UNDEPLOY_S = 15.0
#: How long an order for a worker is tried again when others write it at the same time.
ORDER_S = 5.0


@dataclass(frozen=True, slots=True)
class Deployed:
    """The answer to a deploy."""

    app: str
    #: False when an app of this name was deployed already.
    is_new: bool
    #: Whether another one was removed for it.
    replaced: bool = False
    #: Whether it goes on with another plan.
    edited: bool = False
    #: What that changes, as ``mesh diff --output json`` has it.
    changes: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Leadership:
    """Who leads, as one manager sees it."""

    manager: str
    #: None when nobody does.
    leader: str | None

    @property
    def leads(self) -> bool:
        """Whether it is the manager that says so."""
        return self.manager == self.leader


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
        self._client = client
        self._js = client.jetstream()
        self._view = view
        self._settings = settings
        self._clock = clock
        self._notes = notes
        self._name = name
        self.events = Events(self._js, self._spec, self._take, clock.wall_ms)
        reading = connector_options(settings.nats)
        pieces = open_pieces(self._js, settings.state.store, reading)
        self.backups = Backups(client, view, pieces, settings, clock, self._take)

    async def deploy(self, text: str, *, by: str = "", begin: Begin = EARLIEST) -> Deployed:
        """Plan ``text``, make its channels and write it down as desired.

        Raises:
            MeshError: MESH-L*, MESH-P* for faults of the text; MESH-A409 when an app of the same
                name is deployed that has another plan.
        """
        spec = plan(text, partitions=self._settings.channels.partitions).spec
        known = self._find(spec.name)
        if known is not None and known.value.deleting:
            await self._wait_gone(spec.name)
            known = None
        if known is not None:
            spec = as_scaled(spec, known.value.scaled)
            before = known.value.spec
            if before.fingerprint == spec.fingerprint or changes(before, spec).is_same:
                return Deployed(spec.name, is_new=False)
            raise MeshError(
                "MESH-A409",
                f'app "{spec.name}" is deployed already, with another text',
                hint="'mesh deploy' (PUT) changes it while it runs; 'mesh diff' shows how.",
            )
        # Of what was just looked at: somebody else's deploy may come while channels are made.
        seen = self._view.revision(names.APPS_BUCKET, names.app_key(spec.name))
        try:
            # Channels come first: who has deployed may publish at once.
            await channels.ensure_channels(self._client, spec, self._settings.channels)
            passed = await beginnings.passed(self._client, spec.given_streams, begin)
            at_ms = self._clock.wall_ms()
            record = AppRecord(begun(spec, passed), secrets.token_hex(4), at_ms, by)
            await self._write(names.app_key(spec.name), record, seen)
        except kv.RevisionConflict as conflict:
            raise MeshError(
                "MESH-A409",
                f'app "{spec.name}" was deployed by another user just now',
                hint="Look at it with 'mesh status', then deploy again if need be.",
            ) from conflict
        except (NatsError, TimeoutError, OSError) as error:
            raise unreachable(error) from error
        instances = sum(group.parallel for group in spec.groups)
        reads = "" if begin == EARLIEST else f", to read from {begin}"
        told = f"deployed app {spec.name}, {instances} instances{reads}"
        self._note(told, at_ms, by, app=spec.name)
        return Deployed(spec.name, is_new=True)

    async def update(
        self,
        text: str,
        *,
        by: str = "",
        replace: bool = False,
        reset: Collection[str] = (),
        begin: Begin = EARLIEST,
    ) -> Deployed:
        """Put ``text`` in the place of what is deployed under its name; deploy it if nothing is.

        A text that only looks different is no change.  Of one that is another, groups that changed
        restart from where they are.  With ``replace`` it takes the old one's place from nothing:
        channels and states of that are removed first.

        Args:
            text: SiddhiQL.
            by: the user.
            replace: whether the app may be taken apart.
            reset: the groups that forget their states, without ``replace``.
            begin: where an app that is deployed anew begins to read what is there already.

        Raises:
            MeshError: as ``deploy`` for a new app; MESH-C120 for a change that loses state of a
                group that ``reset`` doesn't name, MESH-C121 for one that can't be made while the
                app runs, MESH-C122 for a group that isn't there; MESH-A409 when somebody else
                changed the app at the same time.
        """
        spec = plan(text, partitions=self._settings.channels.partitions).spec
        known = self._find(spec.name)
        if known is not None and not known.value.deleting:
            same = changes(known.value.spec, as_scaled(spec, known.value.scaled)).is_same
            if same and not reset:
                return Deployed(spec.name, is_new=False)
            if not replace:
                if begin != EARLIEST:
                    raise MeshError(
                        "MESH-A409",
                        f'app "{spec.name}" runs and continues from its positions',
                        hint="A start position is for a new app; --replace "
                        "removes the old one first.",
                    )
                return await self._edit(spec, by, reset)
            await self.undeploy(spec.name)
            await self._wait_gone(spec.name)
        done = await self.deploy(text, by=by, begin=begin)
        return Deployed(done.app, is_new=known is None and done.is_new, replaced=known is not None)

    async def _edit(self, spec: AppSpec, by: str, reset: Collection[str]) -> Deployed:
        """Have a running app go on with another plan."""
        name = spec.name
        hint = "Deploy it again in a moment."
        await until_removed(self._view, self._clock, name, UNDEPLOY_S, hint)
        known = self._get(name)
        before = known.value
        if before.held:
            raise MeshError(
                "MESH-A409",
                f'app "{name}" is being restored',
                hint="Deploy it again when it runs.",
            )
        spec = as_scaled(spec, before.scaled)
        made = edited(before.spec, spec, before.edits + 1, reset)
        try:
            joined = {stream for streams in made.joins.values() for stream in streams}
            ends = await channels.ends(self._js, joined)
            # Channels come first: what is placed reads and writes them.
            await channels.ensure_channels(self._client, spec, self._settings.channels)
            record = replace(
                before,
                spec=made.begun(ends),
                edits=before.edits + 1,
                retired=still_retired(before.retired, made.retired, spec),
            )
            # Guarded by what the edit was made for, not by what has been heard of meanwhile.
            key = names.app_key(name)
            data = codec.encode(record)
            at_ms = self._clock.wall_ms()
            revision = await kv.write(
                self._js, names.APPS_BUCKET, key, data, revision=known.revision
            )
            self._view.took_write(names.APPS_BUCKET, key, record, revision)
        except kv.RevisionConflict as conflict:
            raise MeshError(
                "MESH-A409",
                f'app "{name}" was changed by another user just now',
                hint="Look at it with 'mesh status', then deploy again if need be.",
            ) from conflict
        except (NatsError, TimeoutError, OSError) as error:
            raise unreachable(error) from error
        told = explain_changes(made.found).splitlines()[0].partition(": ")[2]
        why = "; ".join(
            f"{group.group}: {', '.join(group.reasons)}"
            for group in made.found.groups
            if group.reasons
        )
        self._note(f"changed app {name}: {told}", at_ms, by, app=name, cause=why)
        return Deployed(name, is_new=False, edited=True, changes=changes_to_values(made.found))

    async def leadership(self) -> Leadership:
        """Who leads."""
        lease = self._view.snapshot().lease
        holder = lease.value.holder if lease is not None and lease.value is not None else None
        return Leadership(self._name, holder)

    async def undeploy(self, app: str) -> None:
        """Mark ``app`` for removal; the leader stops it and deletes its channels and state."""

        def removed() -> AppRecord | None:
            known = self._get(app).value
            return None if known.deleting else replace(known, deleting=True)

        if at_ms := await self._change(names.app_key(app), removed, UNDEPLOY_S):
            self._note(f"asked for app {app} to be undeployed", at_ms, app=app)

    async def scale(self, app: str, group: str, parallel: int, *, by: str = "") -> AppStatus:
        """Write down how many instances of a group are wanted; the leader sees to it.

        Returns:
            The app's status now; it is "rescaling" until the first of the new instances starts.

        Raises:
            MeshError: MESH-A404 where there is no such app or group, MESH-A422 where it can't have
                so many, MESH-A409 while the app is being undeployed.
        """

        def wanted() -> AppRecord | None:
            record = self._get(app).value
            if record.deleting:
                raise MeshError("MESH-A409", f'app "{app}" is still being undeployed')
            spec = scaled(record.spec, group, parallel)
            made = replace(record, spec=spec, scaled={**record.scaled, group: parallel})
            return None if made == record else made

        if at_ms := await self._change(names.app_key(app), wanted, ORDER_S):
            count = f"{parallel} instance{'s' if parallel > 1 else ''}"
            self._note(f"asked for {count} of group {group}", at_ms, by, app=app)
        return await self.status(app)

    async def apps(self) -> list[AppStatus]:
        """All apps with their states, by name."""
        snapshot = self._view.snapshot()
        found = survey(snapshot, self._settings)
        records = sorted((a.value for a in snapshot.apps), key=lambda record: record.spec.name)
        return [app_status(found, record) for record in records]

    async def app(self, app: str) -> AppSpec:
        """What was deployed; MESH-A404 when nothing was."""
        return self._spec(app)

    def record(self, app: str) -> AppRecord | None:
        """What is desired under a name; None when nothing is."""
        found = self._find(app)
        return found.value if found is not None else None

    async def status(self, app: str) -> AppStatus:
        """The app's state, its reason and its instances; MESH-A404."""
        return self._status(app)

    async def wait_running(self, app: str, timeout_s: float) -> AppStatus:
        """The status as soon as the app runs, or after ``timeout_s``."""

        def is_running() -> bool:
            return self._status(app).state is AppState.RUNNING

        await until(self._view, self._clock, timeout_s, is_running)
        return self._status(app)

    async def nodes(self) -> list[NodeView]:
        """Managers and workers, by role and name."""
        return node_views(self._view.snapshot(), self._settings)

    async def order_node(self, node: str, admission: str, *, by: str = "") -> NodeView:
        """Write down what worker ``node`` may have: ``open``, ``cordoned`` or ``draining``.

        Returns:
            The worker, with the order in force.

        Raises:
            MeshError: MESH-A404 when there is no such worker.
        """
        wanted = Admission(admission)

        def order() -> NodeOrder:
            self._worker(node)
            return NodeOrder(node, wanted, by, self._clock.wall_ms())

        if at_ms := await self._change(names.order_key(node), order, ORDER_S):
            self._note(f"made worker {node} {wanted.value}", at_ms, by, worker=node)
        return self._worker(node)

    async def story(self, app: str) -> list[Entry]:
        """What happened to ``app``, in order, also after it was undeployed; MESH-A404."""
        try:
            entries = story(await journal.read(self._js, app), app)
        except (NatsError, TimeoutError, OSError) as error:
            raise unreachable(error) from error
        if not entries:
            self._get(app)
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
        """Take down what was written at ``at_ms``: what follows from it may be noted before."""
        by = by and f"user {by}"
        self._take(Entry(text, cause, by=by, at_ms=at_ms, app=app, worker=worker))

    def _take(self, entry: Entry) -> None:
        if self._notes is not None:
            self._notes.note(entry)

    def _worker(self, name: str) -> NodeView:
        everybody = node_views(self._view.snapshot(), self._settings)
        nodes = [node for node in everybody if node.role == "worker"]
        found = next((node for node in nodes if node.id == name), None)
        if found is None:
            raise MeshError(
                "MESH-A404",
                f'worker "{name}" is not there',
                detail=f"Workers are: {', '.join(node.id for node in nodes) or 'none'}.",
            )
        return found

    def _status(self, app: str) -> AppStatus:
        record = self._get(app).value
        return app_status(survey(self._view.snapshot(), self._settings), record)

    def _spec(self, app: str) -> AppSpec:
        return self._get(app).value.spec

    def _find(self, app: str) -> Seen[AppRecord] | None:
        return self._view.snapshot().app(app)

    def _get(self, app: str) -> Seen[AppRecord]:
        found = self._find(app)
        if found is None:
            known = sorted(a.value.spec.name for a in self._view.snapshot().apps)
            raise MeshError(
                "MESH-A404",
                f'app "{app}" is not deployed',
                detail=f"Deployed are: {', '.join(known) or 'none'}.",
            )
        return found

    async def _change(
        self, key: str, make: Callable[[], AppRecord | NodeOrder | None], within_s: float
    ) -> int | None:
        """Write what ``make`` makes of the view, and anew where somebody else was quicker.

        Returns:
            When it was written, milliseconds since 1970; None where there is nothing to change.

        Raises:
            MeshError: MESH-A503 when NATS does not answer, or others write for ``within_s``; what
                ``make`` raises.
        """
        deadline_s = self._clock.monotonic_s() + within_s
        while True:
            version = self._view.version
            record = make()
            if record is None:
                return None
            at_ms = self._clock.wall_ms()
            try:
                await self._write(key, record)
            except kv.RevisionConflict as conflict:
                left_s = deadline_s - self._clock.monotonic_s()
                if left_s <= 0:
                    raise unreachable(conflict) from conflict
                await self._view.changed(version, left_s)
                continue
            except (NatsError, TimeoutError, OSError) as error:
                raise unreachable(error) from error
            return at_ms

    async def _write(
        self, key: str, record: AppRecord | NodeOrder, seen: int | None = None
    ) -> None:
        """Write a key of the apps bucket, if its revision is ``seen``, or the newest known."""
        if seen is None:
            seen = self._view.revision(names.APPS_BUCKET, key)
        data = codec.encode(record)
        taken = await kv.write(self._js, names.APPS_BUCKET, key, data, revision=seen)
        self._view.took_write(names.APPS_BUCKET, key, record, taken)

    async def _wait_gone(self, app: str) -> None:
        if not await until(self._view, self._clock, UNDEPLOY_S, lambda: self._find(app) is None):
            raise MeshError(
                "MESH-A409",
                f'app "{app}" is still being undeployed',
                hint="Deploy it again in a moment.",
            )
