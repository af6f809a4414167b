"""Deploys and edits: a text becomes the desired state of an app, by any manager.

Clients may publish as soon as a deploy returns.  So the record is written twice: as ``making``,
when nothing is placed, before its channels are made, and again when they are there.

Answers of a manager to a deploy: what it would change and runs first, and why it is refused.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import orjson
from nats.errors import Error as NatsError

from mesh.errors import MeshError
from mesh.jetstream import channels, stream_positions
from mesh.jetstream.connection import refusals
from mesh.manager.desired_state import until, until_removed
from mesh.manager.guarantees import GuaranteeAudit
from mesh.model import names
from mesh.model.begin import EARLIEST
from mesh.model.cluster import AppRecord, NodeRole, Retired
from mesh.model.values import JsonObject
from mesh.plan.edits import still_retired, with_start_positions
from mesh.plan.explain import changes_to_values, explain_changes
from mesh.plan.fork import read_by_others
from mesh.plan.reads import with_reads
from mesh.store.sources import OF_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

    from nats.aio.client import Client

    from mesh.clock import Clock
    from mesh.control.snapshot import ClusterSnapshot, Revisioned
    from mesh.jetstream.watch import ClusterView
    from mesh.manager.desired_state import DesiredState
    from mesh.manager.guarantees import Guarantees
    from mesh.manager.planning import Planner
    from mesh.model.app import AppSpec
    from mesh.model.begin import StartPosition
    from mesh.model.history import Backfilled
    from mesh.settings import Settings


#: Time that a deploy waits for the removal of an app of the same name.
UNDEPLOY_S: Final = 15.0
#: Time for which the removal of a failed deploy is retried while others write the record.
GIVE_UP_S: Final = 2.0
#: Time for a worker to compare tables with databases: a process starts there, and connects.
_ANSWER_S: Final = 30.0
MAKING: Final = "its channels are being made"
_STORE: Final = re.compile(r"@\s*store\b", re.IGNORECASE)


async def _no_history(_: AppSpec) -> AppPast | None:
    return None


@dataclass(eq=False, repr=False)
class Deployments:
    """Deploys, replaces and edits apps."""

    _client: Client
    _view: ClusterView
    _desired: DesiredState
    _settings: Settings
    _clock: Clock
    #: Writes a journal entry: text, time in milliseconds, user, app and cause.
    _note: Callable[..., None]
    _planner: Planner
    #: The history that the text of a new app names.
    history_of: Callable[[AppSpec], Awaitable[AppPast | None]] = _no_history
    #: Longest wait for an app that is being undeployed, seconds.
    undeploy_s: float = UNDEPLOY_S

    def __post_init__(self) -> None:
        self.guarantees = GuaranteeAudit(self._client, self._desired, self._planner, self._settings)

    async def deploy(self, text: str, *, by: str = "", begin: StartPosition = EARLIEST) -> Deployed:
        """Plan ``text``, make its channels and write it as desired state.

        Raises:
            MeshError: MESH-L*, MESH-P* for faults of the text; MESH-A409 when an app of the same
                name is deployed that has another plan.
        """
        return await self._deploy(await self._planner.plan(text), by, begin)

    async def preview(self, text: str, reset: Collection[str] = ()) -> Preview:
        """Plan ``text`` and compare it with the app of its name; nothing is written.

        Args:
            text: SiddhiQL.
            reset: groups that would discard their state.

        Raises:
            MeshError: MESH-L*, MESH-P* for faults of the text.
        """
        spec = await self._planner.plan(text)
        record = self._desired.record(spec.name)
        is_new = record is None or record.deleting or record.making
        if record is None or is_new:
            outcome = await self._planner.preview(None, spec, {}, ())
        else:
            outcome = await self._planner.preview(record.spec, spec, record.scaled, reset)
        plan, changes, refused = outcome
        guarantees, weak = await self.guarantees.preview(spec)
        refused = refused or (None if weak is None else weak.to_dict())
        return Preview(spec.name, is_new, plan, changes, refused, guarantees)

    async def deploy_after(self, spec: AppSpec, by: str, history: AppPast) -> None:
        """Deploy a plan as a new app that continues after its history.

        Raises:
            MeshError: MESH-A409 when an app of the name is deployed; errors of ``history``, after
                which the app is removed.
        """
        current = await self._current(spec.name)
        if current is not None and not current.value.making and not current.value.deleting:
            raise MeshError(
                "MESH-A409",
                f'app "{spec.name}" is deployed already',
                detail="The past of a running app can't be added to its states.",
                hint="Undeploy it first, or deploy the text under another name.",
            )
        await self._deploy(spec, by, EARLIEST, history)

    async def _deploy(
        self, spec: AppSpec, by: str, begin: StartPosition, history: AppPast | None = None
    ) -> Deployed:
        current = await self._current(spec.name)
        if current is not None and current.value.deleting:
            await self._desired.wait_gone(spec.name, self.undeploy_s)
            current = await self._current(spec.name)
        # The revision of what was just looked at: another deploy may be written meanwhile.
        revision = self._desired.revision(spec.name)
        if current is not None and not current.value.making:
            if await self._planner.is_same(current.value.spec, spec, current.value.scaled):
                return await self._same(current.value, spec)
            raise MeshError(
                "MESH-A409",
                f'app "{spec.name}" is deployed already, with another text',
                hint="'mesh deploy' (PUT) changes it while it runs; 'mesh diff' shows how.",
            )
        await self.guarantees.check(spec)
        await _check_stores(self._client, spec, self._view.snapshot())
        history = history or await self.history_of(spec)
        if history is not None and begin != EARLIEST:
            raise MeshError(
                "MESH-A422",
                f'app "{spec.name}" begins where its history ends, not at {begin}',
                hint="Leave --from out; 'until' is the end of a history.",
            )
        record = AppRecord(
            spec,
            secrets.token_hex(8),
            self._clock.wall_ms(),
            by,
            held=MAKING,
            # Of a deploy that never ended.
            retired=None
            if current is None
            else retired_by(current.value, spec, current.value.retired),
            making=True,
        )

        async def fill(tell: Tell) -> AppRecord:
            await channels.ensure_channels(self._client, spec, self._settings.channels)
            if history is not None:
                passed = await history.run(record, tell)
            else:
                passed = await stream_positions.skipped_positions(
                    self._client, spec.external_streams, begin
                )
            return replace(record, spec=with_start_positions(spec, passed))

        await self.make(record, revision, fill)
        if history is not None:
            with contextlib.suppress(MeshError, NatsError, TimeoutError):
                await history.ended(spec.name)
        instances = sum(group.parallel for group in spec.groups)
        reads = "" if begin == EARLIEST else f", to read from {begin}"
        reads = reads if history is None else ", after its history"
        note = f"deployed app {spec.name}, {instances} instances{reads}"
        self._note(note, record.deployed_at_ms, by, app=spec.name)
        past = None if history is None else history.done
        return await self._done(spec, is_new=True, past=past)

    async def _current(self, app: str) -> Revisioned[AppRecord] | None:
        """The record of an app, as soon as no other deploy makes its channels."""

        def is_settled() -> bool:
            record = self._desired.record(app)
            return record is None or not record.making

        await until(self._view, self._clock, self.undeploy_s, is_settled)
        return self._desired.find(app)

    async def make(
        self, record: AppRecord, revision: int, fill: Callable[[Tell], Awaitable[AppRecord]]
    ) -> None:
        """Write a record, make its channels, and let the app run.

        The record is first, so that only one of two deploys makes channels, and that the leader
        removes them with the record when a deploy fails.

        Args:
            record: the new app, marked as ``making``.
            revision: what the last revision of the app's record must be.
            fill: makes the channels, and returns the record with the positions of its groups; it
                may tell meanwhile why the app does not run yet.
        """
        spec = record.spec
        most = with_start_positions(spec, dict.fromkeys(spec.external_streams, 2**63))
        self._desired.check_size(replace(record, spec=most))
        conflict = MeshError(
            "MESH-A409",
            f'app "{spec.name}" was deployed by another user just now',
            hint="Look at it with 'mesh status', then deploy again if need be.",
        )
        with refusals(conflict):
            await channels.expect_streams(self._client.jetstream(), spec)
            revision = await self._desired.write_app(record, revision)

            async def tell(held: str) -> None:
                nonlocal revision
                revision = await self._desired.write_app(replace(record, held=held), revision)

            try:
                app_record = replace(await fill(tell), held="", making=False)
                await self._desired.write_app(app_record, revision)
            except BaseException:
                await self._give_up(record)
                raise

    async def _give_up(self, record: AppRecord) -> None:
        """Have the leader remove the channels of a deploy that failed or was overtaken."""
        app = record.spec.name
        gone = replace(record, deleting=True, held="", making=False)

        def removed() -> AppRecord | None:
            current = self._desired.record(app)
            if current is None:
                # It was undeployed meanwhile, and channels may have been made after that.
                return gone
            if current.incarnation == record.incarnation:
                return gone if current.making else None
            left = retired_by(record, current.spec, current.retired)
            return None if left == current.retired else replace(current, retired=left)

        # Without NATS the record stays as it is: it shows what has happened, and can be undeployed.
        with contextlib.suppress(MeshError):
            await self._desired.change(names.app_key(app), removed, GIVE_UP_S)

    async def update(
        self,
        text: str,
        *,
        undeploy: Callable[..., Any],
        by: str = "",
        replace: bool = False,
        reset: Collection[str] = (),
        begin: StartPosition = EARLIEST,
        adopting: Collection[str] = (),
    ) -> Deployed:
        """Deploy ``text`` in place of the app of its name, or as a new app.

        A text with the same plan is no change.  With another plan, groups that changed restart from
        their positions.  With ``replace``, the old app is removed first, with channels and state.

        Args:
            text: SiddhiQL.
            undeploy: removes the app of a name for the user ``by``; awaited.
            by: the user.
            replace: whether the old app may be removed.
            reset: the groups that lose their state, without ``replace``.
            begin: where a new app begins to read streams that hold events already.
            adopting: those of ``reset`` that wait for a state; see ``AppRecord.adopting``.

        Raises:
            MeshError: as ``deploy`` for a new app; MESH-C120 for a change that loses state of a
                group that ``reset`` doesn't name, MESH-C121 for one that can't be made while the
                app runs, MESH-C122 for a group that doesn't exist; MESH-A409 when another user
                changed the app at the same time.
        """
        spec, history = await self._planner.plan(text), None
        current = await self._current(spec.name)
        if current is not None and current.value.making:
            current = None
        if current is not None and not current.value.deleting:
            before = current.value
            if not reset and await self._planner.is_same(before.spec, spec, before.scaled):
                return await self._same(before, spec)
            if not replace:
                if begin != EARLIEST:
                    raise MeshError(
                        "MESH-A409",
                        f'app "{spec.name}" runs and continues from its positions',
                        hint="A start position is for a new app; --replace "
                        "removes the old one first.",
                    )
                return await self._edit(spec, by, reset, adopting)
            # A wrong history is refused before anything is removed.
            history = await self.history_of(spec)
            await self.guarantees.check(spec, as_new=True)
            await _check_stores(self._client, spec, self._view.snapshot())
            await undeploy(spec.name, by=by)
            await self._desired.wait_gone(spec.name, self.undeploy_s)
        done = await self._deploy(spec, by, begin, history)
        is_new = current is None and done.is_new
        return dataclasses.replace(done, is_new=is_new, replaced=current is not None)

    async def _edit(
        self, spec: AppSpec, by: str, reset: Collection[str], adopting: Collection[str]
    ) -> Deployed:
        """Give a running app another plan."""
        name = spec.name
        hint = "Deploy it again in a moment."
        await until_removed(self._view, self._clock, name, self.undeploy_s, hint)
        current = self._desired.get(name)
        before = current.value
        refuse_edit(before)
        number = before.edits + 1
        spec, edit = await self._planner.edit(before.spec, spec, before.scaled, number, reset)
        await self.guarantees.check(spec)
        await _check_stores(self._client, spec, self._view.snapshot())
        refuse_lost_input((s.value.spec for s in self._view.snapshot().apps), name, edit.retired)
        conflict = MeshError(
            "MESH-A409",
            f'app "{name}" was changed by another user just now',
            hint="Look at it with 'mesh status', then deploy again if need be.",
        )
        with refusals(conflict):
            joined = {stream for streams in edit.joins.values() for stream in streams}
            ends = await channels.ends(self._client.jetstream(), joined)
            record = replace(
                before,
                spec=edit.begun(ends),
                edits=number,
                adopting=tuple(adopting),
                retired=still_retired(before.retired, edit.retired, spec),
            )
            self._desired.check_size(record)
            try:
                await channels.ensure_channels(self._client, spec, self._settings.channels)
                at_ms = self._clock.wall_ms()
                # The revision that the edit was computed from, not a newer one seen meanwhile.
                await self._desired.write_app(record, current.revision)
            except BaseException:
                await self._retire_added(before.spec, spec)
                raise
        summary = explain_changes(edit.changes).splitlines()[0].partition(": ")[2]
        cause = "; ".join(
            f"{group.group}: {', '.join(group.reasons)}"
            for group in edit.changes.groups
            if group.reasons
        )
        self._note(f"changed app {name}: {summary}", at_ms, by, app=name, cause=cause)
        changes = changes_to_values(edit.changes)
        return await self._done(spec, is_new=False, edited=True, changes=changes)

    async def _same(self, before: AppRecord, spec: AppSpec) -> Deployed:
        """The answer to a text whose plan runs already; another text may demand more.

        The record of an earlier version gets the streams that the author may read.
        """
        if before.spec.text != spec.text:
            await self.guarantees.check(spec)
        reads = {g.name: g.reads for g in spec.groups if g.reads is not None}

        def permitted() -> AppRecord | None:
            current = self._desired.record(spec.name)
            if current is None or current.spec != before.spec:
                return None
            new_spec = with_reads(current.spec, reads)
            return None if new_spec == current.spec else replace(current, spec=new_spec)

        await self._desired.change(names.app_key(spec.name), permitted, GIVE_UP_S)
        return await self._done(spec, is_new=False)

    async def _done(self, spec: AppSpec, **more: Any) -> Deployed:
        warnings = await self._planner.warnings(spec)
        held = await self.guarantees.summary(spec)
        return Deployed(spec.name, warnings=warnings, guarantees=held, **more)

    async def _retire_added(self, before: AppSpec, spec: AppSpec) -> None:
        """Have the leader remove channels that a failed edit has made, if nothing uses them now."""
        there = {channel.js_stream() for channel in before.channels}
        added = Retired(tuple(c for c in spec.channels if c.js_stream() not in there))

        def cleared() -> AppRecord | None:
            current = self._desired.record(spec.name)
            if current is None or current.deleting:
                return None
            left = still_retired(current.retired, added, current.spec)
            return None if left == current.retired else replace(current, retired=left)

        if added.channels:
            with contextlib.suppress(MeshError):
                await self._desired.change(names.app_key(spec.name), cleared, GIVE_UP_S)


def retired_by(failed: AppRecord, spec: AppSpec, before: Retired | None) -> Retired | None:
    """``before``, and the channels and groups of a failed deploy that ``spec`` does not use."""
    groups = tuple(group.name for group in failed.spec.groups)
    return still_retired(before, Retired(failed.spec.channels, groups), spec)


async def _check_stores(client: Client, spec: AppSpec, snapshot: ClusterSnapshot) -> None:
    """Have a worker compare the tables of an app with their databases.

    Without a worker that answers, or a database that does, the group compares them when it starts.

    What depends on the settings of a node is an error if every worker has it.

    Raises:
        MeshError: MESH-S142, a column is missing; MESH-S145, no worker knows the data source;
            MESH-S146, a column has another type; MESH-C132, the database is open on no worker.
    """
    if _STORE.search(spec.text) is None:
        return
    nodes = (node.value for node in snapshot.nodes)
    ready = [node.id for node in nodes if node.role is NodeRole.WORKER and node.ready]
    if not ready:
        return
    question = orjson.dumps({"text": spec.text, "only": [], "stores": True})
    reply: object = None
    for worker in sorted(ready):
        try:
            answer = await client.request(names.check_subject(worker), question, timeout=_ANSWER_S)
            reply = orjson.loads(answer.data)
        except (NatsError, TimeoutError, OSError, orjson.JSONDecodeError):
            return
        if not isinstance(reply, dict) or reply.get("code") not in OF_SETTINGS:
            break
    if isinstance(reply, dict) and reply.get("code"):
        raise MeshError(
            reply["code"], reply["message"], detail=reply.get("detail"), hint=reply.get("hint")
        )


#: Writes why an app does not run yet.
Tell: TypeAlias = "Callable[[str], Awaitable[None]]"


@dataclass(frozen=True, slots=True)
class Deployed:
    """The answer to a deploy."""

    app: str
    #: False if an app of this name was deployed already.
    is_new: bool
    #: Whether another app was removed for it.
    replaced: bool = False
    #: Whether a running app continues with another plan.
    edited: bool = False
    #: The changes of an edit, as ``mesh diff --output json`` prints them.
    changes: JsonObject | None = None
    #: Parts of the app that run to no effect, a sentence each.
    warnings: tuple[str, ...] = ()
    #: A line of the guarantees that hold on this cluster, then one for each that does not.
    guarantees: tuple[str, ...] = ()
    #: The history after which a new app begins; None without one.
    past: Backfilled | None = None


@dataclass(frozen=True, slots=True)
class Preview:
    """The effect of a text, as it would be if it were deployed now."""

    app: str
    #: Whether no app of this name is deployed.
    is_new: bool
    #: As ``mesh plan --output json`` prints it.
    plan: JsonObject
    #: As ``mesh diff --output json`` prints them; None for a new app.
    changes: JsonObject | None
    #: The error with which the deploy would be refused; None if it would not be.
    refused: JsonObject | None
    #: The guarantees that the app would have through each failure.
    guarantees: Guarantees | None = None


class AppPast(Protocol):
    """The past of a new app."""

    @property
    def done(self) -> Backfilled | None:
        """The outcome, as soon as it has been run."""
        ...

    async def run(self, record: AppRecord, tell: Tell) -> Mapping[str, int]:
        """Run it for an app whose channels are there: by JetStream stream, what it includes."""
        ...

    async def ended(self, app: str) -> None:
        """Remove what only another run of it would need."""
        ...


def refuse_edit(record: AppRecord) -> None:
    """Refuse an edit of an app that does not run, or is a fork: MESH-A409."""
    name = record.spec.name
    if record.held:
        raise MeshError(
            "MESH-A409", f'app "{name}" is being restored', hint="Deploy it again when it runs."
        )
    if record.paused:
        raise paused_error(name)
    if record.adopting:
        raise MeshError(
            "MESH-A409",
            f'app "{name}" waits for states of a fork that is promoted',
            hint="'mesh promote' of the fork again continues it.",
        )
    if record.fork is not None:
        raise MeshError(
            "MESH-A409",
            f'app "{name}" is a fork of "{record.fork.app}" and keeps its text',
            hint=f"Undeploy it, and fork '{record.fork.app}' with the new text.",
        )


def refuse_lost_input(specs: Iterable[AppSpec], name: str, retired: Retired) -> None:
    """Refuse an edit that removes a channel which a fork reads: MESH-A409."""
    read = read_by_others(specs, name)
    for channel in retired.channels:
        if channel.id in read:
            fork = read[channel.id]
            raise MeshError(
                "MESH-A409",
                f'app "{name}" would lose channel {channel.subject()}, which fork "{fork}" reads',
                hint=f"'mesh undeploy {fork}' first.",
            )


def paused_error(app: str) -> MeshError:
    """The refusal of a change of an app that is paused."""
    return MeshError(
        "MESH-A409",
        f'app "{app}" is paused',
        hint=f"'mesh resume {app}' continues it; change it then.",
    )
