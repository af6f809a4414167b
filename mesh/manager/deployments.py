"""Deploys and edits: a text becomes the desired state of an app, by any manager.

Channels are made before the record is written: clients may publish as soon as the deploy returns.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from mesh.errors import MeshError
from mesh.jetstream import channels, start_positions
from mesh.manager.desired_state import refusals
from mesh.manager.waiting import until_removed
from mesh.model.begin import EARLIEST
from mesh.model.cluster import AppRecord
from mesh.plan.edits import still_retired, with_start_positions
from mesh.plan.explain_changes import changes_to_values, explain_changes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from nats.aio.client import Client

    from mesh.clock import Clock
    from mesh.jetstream.watch import ClusterView
    from mesh.manager.desired_state import DesiredState
    from mesh.manager.planning import Planner
    from mesh.model.app import AppSpec
    from mesh.model.begin import StartPosition
    from mesh.settings import Settings

#: How long a deploy waits for the removal of an app of the same name.
UNDEPLOY_S: Final = 15.0


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
    changes: dict[str, Any] | None = None


class Deployments:
    """Deploys, replaces and edits apps.

    Args:
        client: the connection to NATS.
        view: the local view of the buckets.
        desired: the records of apps.
        settings: partitions and channels.
        clock: the time of records and deadlines.
        note: writes a journal entry: text, time in milliseconds, user, app and cause.
        planner: computes plans.
    """

    def __init__(
        self,
        client: Client,
        view: ClusterView,
        desired: DesiredState,
        settings: Settings,
        clock: Clock,
        note: Callable[..., None],
        planner: Planner,
    ) -> None:
        self._client = client
        self._view = view
        self._desired = desired
        self._settings = settings
        self._clock = clock
        self._note = note
        self._planner = planner

    async def deploy(self, text: str, *, by: str = "", begin: StartPosition = EARLIEST) -> Deployed:
        """Plan ``text``, make its channels and write it as desired state.

        Raises:
            MeshError: MESH-L*, MESH-P* for faults of the text; MESH-A409 when an app of the same
                name is deployed that has another plan.
        """
        return await self._deploy(await self._planner.plan(text), by, begin)

    async def _deploy(self, spec: AppSpec, by: str, begin: StartPosition) -> Deployed:
        known = self._desired.find(spec.name)
        if known is not None and known.value.deleting:
            await self._desired.wait_gone(spec.name, UNDEPLOY_S)
            known = None
        if known is not None:
            if await self._planner.is_same(known.value.spec, spec, known.value.scaled):
                return Deployed(spec.name, is_new=False)
            raise MeshError(
                "MESH-A409",
                f'app "{spec.name}" is deployed already, with another text',
                hint="'mesh deploy' (PUT) changes it while it runs; 'mesh diff' shows how.",
            )
        # The revision of what was just looked at: another deploy may be written while channels
        # are made.
        revision = self._desired.revision(spec.name)
        conflict = MeshError(
            "MESH-A409",
            f'app "{spec.name}" was deployed by another user just now',
            hint="Look at it with 'mesh status', then deploy again if need be.",
        )
        with refusals(conflict):
            await channels.ensure_channels(self._client, spec, self._settings.channels)
            passed = await start_positions.skipped_positions(
                self._client, spec.given_streams, begin
            )
            at_ms = self._clock.wall_ms()
            record = AppRecord(with_start_positions(spec, passed), secrets.token_hex(4), at_ms, by)
            await self._desired.write_app(record, revision)
        instances = sum(group.parallel for group in spec.groups)
        reads = "" if begin == EARLIEST else f", to read from {begin}"
        note = f"deployed app {spec.name}, {instances} instances{reads}"
        self._note(note, at_ms, by, app=spec.name)
        return Deployed(spec.name, is_new=True)

    async def update(
        self,
        text: str,
        *,
        undeploy: Callable[..., Any],
        by: str = "",
        replace: bool = False,
        reset: Collection[str] = (),
        begin: StartPosition = EARLIEST,
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

        Raises:
            MeshError: as ``deploy`` for a new app; MESH-C120 for a change that loses state of a
                group that ``reset`` doesn't name, MESH-C121 for one that can't be made while the
                app runs, MESH-C122 for a group that doesn't exist; MESH-A409 when another user
                changed the app at the same time.
        """
        spec = await self._planner.plan(text)
        known = self._desired.find(spec.name)
        if known is not None and not known.value.deleting:
            before = known.value
            if not reset and await self._planner.is_same(before.spec, spec, before.scaled):
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
            await undeploy(spec.name, by=by)
            await self._desired.wait_gone(spec.name, UNDEPLOY_S)
        done = await self._deploy(spec, by, begin)
        return Deployed(done.app, is_new=known is None and done.is_new, replaced=known is not None)

    async def _edit(self, spec: AppSpec, by: str, reset: Collection[str]) -> Deployed:
        """Give a running app another plan."""
        name = spec.name
        hint = "Deploy it again in a moment."
        await until_removed(self._view, self._clock, name, UNDEPLOY_S, hint)
        known = self._desired.get(name)
        before = known.value
        if before.held:
            raise MeshError(
                "MESH-A409",
                f'app "{name}" is being restored',
                hint="Deploy it again when it runs.",
            )
        number = before.edits + 1
        spec, made = await self._planner.edit(before.spec, spec, before.scaled, number, reset)
        conflict = MeshError(
            "MESH-A409",
            f'app "{name}" was changed by another user just now',
            hint="Look at it with 'mesh status', then deploy again if need be.",
        )
        with refusals(conflict):
            joined = {stream for streams in made.joins.values() for stream in streams}
            ends = await channels.ends(self._client.jetstream(), joined)
            await channels.ensure_channels(self._client, spec, self._settings.channels)
            record = replace(
                before,
                spec=made.begun(ends),
                edits=number,
                retired=still_retired(before.retired, made.retired, spec),
            )
            at_ms = self._clock.wall_ms()
            # The revision that the edit was computed from, not a newer one seen meanwhile.
            await self._desired.write_app(record, known.revision)
        summary = explain_changes(made.found).splitlines()[0].partition(": ")[2]
        cause = "; ".join(
            f"{group.group}: {', '.join(group.reasons)}"
            for group in made.found.groups
            if group.reasons
        )
        self._note(f"changed app {name}: {summary}", at_ms, by, app=name, cause=cause)
        return Deployed(name, is_new=False, edited=True, changes=changes_to_values(made.found))
