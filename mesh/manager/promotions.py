"""Promotion: a fork's text becomes that of its app, at an exact sequence.

A promotion is an edit of the running app.  Groups that change drain at a sequence and continue
there with the fork's text, so readers of the app's outputs miss nothing and see nothing twice.
Groups whose state is another one in the fork get the fork's.

An app takes over states of a fork with the fork's text, at the sequence of the edit.

    copy the fork's ──▶ edit: groups drain, and wait ──▶ run on to there, store ──▶ groups begin

The fork's states are copied first, at a place that the app has passed, and run on to its last
snapshots while it still runs.  After the edit whatever ends leaves a group that waits for its
state, and the same promotion again continues.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import orjson

from mesh.control.cluster_state import cluster_state_of
from mesh.control.journal import JournalEntry
from mesh.errors import MeshError
from mesh.files import scratch
from mesh.jetstream import stream_positions
from mesh.jetstream.forks import AdoptedStates
from mesh.manager.desired_state import until
from mesh.model import names
from mesh.model.cluster import Promoted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from nats.aio.client import Client

    from mesh.clock import Clock
    from mesh.jetstream.blob_store import BlobStore
    from mesh.jetstream.watch import ClusterView
    from mesh.manager.deployments import Deployments
    from mesh.manager.desired_state import DesiredState
    from mesh.manager.past import PastQuestions
    from mesh.manager.planning import Planner
    from mesh.model.app import AppSpec, GroupSpec
    from mesh.model.cluster import AppRecord, ForkOrigin
    from mesh.settings import Settings


#: Longest wait for the app to pass the fork's places, and for its groups to drain, seconds.
WAIT_S: Final = 60.0
_LOOK_S: Final = 0.2


@dataclass(slots=True)
class Adoptions:
    """Takes over states of forks."""

    client: Client
    view: ClusterView
    desired: DesiredState
    past: PastQuestions
    pieces: BlobStore
    settings: Settings
    clock: Clock

    async def prepare(
        self, app: AppRecord, fork: AppRecord, after: AppSpec, groups: Sequence[str]
    ) -> None:
        """Keep the fork's states, and wait until the app has passed their places.

        Of a group that reads copies by key of the fork's own, the state is computed from the app's.

        Args:
            app: the record of the app.
            fork: that of the fork.
            after: the plan of the fork's text under the app's name.
            groups: those whose state is to be the fork's.

        Raises:
            MeshError: MESH-C154 for a state that can't be had at a place of the app; MESH-A409 if
                the app does not come there in time.
        """
        new = replace(app, spec=after)
        for name in groups:
            mine, other = app.spec.group(name), fork.spec.group(name)
            assert mine is not None, "the plan has found it"
            assert other is not None, "the fork has the text that has it"
            of = self._of(app, name)
            is_shared = _streams(mine) == _streams(other)
            if not is_shared:
                await self._check_whole(app, fork, mine)
            for part in _parts(mine):
                await of.drop(part)
                if is_shared:
                    with scratch.directory("adopted") as directory:
                        await of.copy(fork.incarnation, part, directory)
            await self._pass(of, mine)
            for number, part in enumerate(_parts(mine)):
                await self._bring_forward(of, new, name, number, part)

    async def _bring_forward(
        self, of: AdoptedStates, record: AppRecord, group: str, number: int, part: str
    ) -> None:
        """Run the kept state on to the app's stored one, so that little is left to run later.

        The process of the past has started by then, too, which takes longer than a group drains.
        """
        stored = await of.stored(part)
        if stored is None:
            return
        with scratch.directory("adopted") as directory:
            base = await of.base(part, directory)
            state = await self.past.adopt(
                record, group, number, base.manifest if base is not None else "", stored.manifest,
                str(directory),
            )  # fmt: skip
            await of.keep(part, state, directory)

    async def _check_whole(self, app: AppRecord, fork: AppRecord, group: GroupSpec) -> None:
        """Refuse a fork whose state can't be computed from the streams of the app."""
        origin = fork.fork
        assert origin is not None, "it is a fork"
        if origin.backup or origin.begins or any(g.starts for g in app.spec.groups):
            raise _refused_record(fork, f"group {group.name} began in the middle of a stream")
        for js_stream in _streams(group):
            state = await stream_positions.state(self.client, js_stream)
            if state is not None and state.first > 1:
                raise _refused_record(
                    fork, f"group {group.name} has read messages of {js_stream} that are gone"
                )

    async def _pass(self, of: AdoptedStates, group: GroupSpec) -> None:
        """Wait until the app's stored states are not before those of the fork."""
        ends_s = self.clock.monotonic_s() + WAIT_S
        for part in _parts(group):
            with scratch.directory("adopted") as directory:
                base = await of.base(part, directory)
            while base is not None and not _has_passed(base.manifest, await of.stored(part)):
                if self.clock.monotonic_s() > ends_s:
                    raise MeshError(
                        "MESH-A409",
                        f'group "{group.name}" of the app has read less than that of the fork',
                        hint="Promote it again when the app has read its input: 'mesh status'.",
                    )
                await asyncio.sleep(_LOOK_S)

    async def finish(self, app: str) -> None:
        """Give the groups that wait their states, and let them begin.

        Raises:
            MeshError: MESH-A409 if they have not drained in time.
        """
        record = self.desired.get(app).value
        keys = {(app, group) for group in record.adopting}

        def have_drained() -> bool:
            changes = cluster_state_of(self.view.snapshot(), self.settings).changes
            return all(one in changes and changes[one].has_drained for one in keys)

        if not await until(self.view, self.clock, WAIT_S, have_drained):
            raise MeshError(
                "MESH-A409",
                f'the groups of app "{app}" have not drained yet',
                hint="'mesh status' shows why; the same promotion again continues it.",
            )
        for name in record.adopting:
            group = record.spec.group(name)
            assert group is not None, "it is desired"
            for number, part in enumerate(_parts(group)):
                await self._adopt(record, name, number, part)

        def begun() -> AppRecord | None:
            current = self.desired.get(app).value
            return replace(current, adopting=()) if current.adopting else None

        await self.desired.change(names.app_key(app), begun, WAIT_S)

    async def _adopt(self, record: AppRecord, group: str, number: int, part: str) -> None:
        of = self._of(record, group)
        stored = await of.stored(part)
        spec = record.spec.group(group)
        if stored is None or (spec is not None and _is_of(stored.manifest, spec)):
            # It has read nothing so far, or an interrupted promotion has stored it.
            return
        with scratch.directory("adopted") as directory:
            base = await of.base(part, directory)
            manifest = await self.past.adopt(
                record, group, number, base.manifest if base is not None else "", stored.manifest,
                str(directory),
            )  # fmt: skip
            await of.replace(stored, part, manifest, directory)
        await of.drop(part)

    def _of(self, record: AppRecord, group: str) -> AdoptedStates:
        js = self.client.jetstream()
        return AdoptedStates(js, self.pieces, record.incarnation, group)


def _parts(group: GroupSpec) -> Iterator[str]:
    """The names of the snapshots of a group with state."""
    yield from map(str, range(group.partition_count))


def _streams(group: GroupSpec) -> set[str]:
    return {stream for one in group.inputs for stream in one.channel.js_streams}


def _has_passed(base: str, stored: Any) -> bool:
    """Whether a state of the fork is at or before the app's own in all streams."""
    reached = {} if stored is None else _reached(stored.manifest)
    return all(n <= reached.get(stream, 0) for stream, n in _reached(base).items())


def _is_of(manifest: str, group: GroupSpec) -> bool:
    """Whether a state is of the present text of a group."""
    values = orjson.loads(manifest)
    return bool(values.get("text") == group.text and values.get("resets", 0) == group.resets)


def _reached(manifest: str) -> Mapping[str, int]:
    values = orjson.loads(manifest)
    ahead = values.get("ahead") or {}
    return {stream: max(n, ahead.get(stream, 0)) for stream, n, _ in values["position"]}


def _refused_record(fork: AppRecord, why: str) -> MeshError:
    return MeshError(
        "MESH-C154",
        f'"{fork.spec.name}" can\'t be promoted: {why}',
        hint="'mesh deploy' with its text edits an app, with the app's states.",
    )


@dataclass(eq=False, repr=False)
class Promotions:
    """Promotes forks."""

    _desired: DesiredState
    _deployments: Deployments
    _planner: Planner
    #: Removes the app of a name for the user ``by``.
    _undeploy: Callable[..., Awaitable[None]]
    _note: Callable[[JournalEntry], None]
    _adoptions: Adoptions

    def app_of(self, fork: str) -> str:
        """The app that a fork comes from; MESH-A404, or MESH-C154 for an app that is no fork."""
        return self._origin(fork).app

    async def promote(self, fork: str, *, replaces: str | None = None, by: str = "") -> Promoted:
        """Give the app of a fork the fork's text, and remove the fork.

        Args:
            fork: its name.
            replaces: the app that is to have the text; None for the one it was forked from.
            by: the user.

        Raises:
            MeshError: MESH-A404 for an app that is not there; MESH-C154 where the app would not be
                the fork; as ``Deployments.update`` for the edit.
        """
        origin = self._origin(fork)
        app = self._desired.get(origin.app).value
        if replaces not in (None, origin.app):
            raise _refused(fork, f'it is a fork of "{origin.app}", not of "{replaces}"')
        if app.incarnation != origin.incarnation:
            raise _refused(fork, f'app "{origin.app}" was restored or deployed again since')
        if origin.until:
            raise _refused(fork, "it has an end (--until)")
        changes = None
        if not app.adopting:
            changes = await self._edit(fork, app, origin, by)
        if self._desired.get(origin.app).value.adopting:
            await self._adoptions.finish(origin.app)
        await self._undeploy(fork, by=by)
        message = f"promoted fork {fork}: app {origin.app} has its text"
        self._note(JournalEntry(message, by=by and f"user {by}", app=origin.app))
        return Promoted(origin.app, fork, changes)

    async def _edit(self, fork: str, app: AppRecord, origin: ForkOrigin, by: str) -> Any:
        """Give the app the fork's text; groups whose state is to be the fork's wait for it."""
        text, groups, reasons = await self._planner.promotion(
            app.spec, origin.text or app.spec.text
        )
        if reasons:
            raise MeshError(
                "MESH-C154",
                f'fork "{fork}" can\'t be promoted with its state',
                detail=f"A state of the fork has no place in the app: {'; '.join(reasons)}.",
                hint="'mesh deploy' with its text edits the app, with the app's states; "
                "'mesh diff' shows which are kept.",
            )
        if groups:
            after = await self._planner.plan(text)
            await self._adoptions.prepare(app, self._desired.get(fork).value, after, groups)
        done = await self._deployments.update(
            text, undeploy=self._undeploy, by=by, reset=groups, adopting=groups
        )
        return done.changes

    def _origin(self, fork: str) -> ForkOrigin:
        origin = self._desired.get(fork).value.fork
        if origin is None:
            raise _refused(fork, "it is no fork")
        return origin


def _refused(fork: str, why: str) -> MeshError:
    return MeshError(
        "MESH-C154",
        f'"{fork}" can\'t be promoted: {why}',
        hint="'mesh deploy' with its text edits an app.",
    )
