"""Backups and restores of apps, as any manager serves them.

A restore stops the app, stores the state of the backup for a new incarnation, and starts it.  The
app reads the input since the backup again, and emits its output since then again.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import anyio

from mesh.control import restoring
from mesh.control.cluster_state import cluster_state_of
from mesh.control.journal import JournalEntry
from mesh.errors import MeshError
from mesh.jetstream import backups, channels, kv, snapshots, stream_positions
from mesh.jetstream.connection import refusals
from mesh.manager.desired_state import until, until_removed
from mesh.model import names
from mesh.model.backup import RestoreResult
from mesh.plan.edits import still_retired

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from nats.aio.client import Client

    from mesh.clock import Clock
    from mesh.control.restoring import JetStreamState
    from mesh.control.snapshot import Revisioned
    from mesh.jetstream.blob_store import BlobStore
    from mesh.jetstream.watch import ClusterView
    from mesh.manager.desired_state import DesiredState
    from mesh.manager.planning import Planner
    from mesh.model.app import AppSpec, GroupSpec
    from mesh.model.backup import Backup, BackupRecord
    from mesh.model.cluster import AppRecord
    from mesh.settings import Settings

#: Time for the instances of an app to stop for a restore.
STOP_S: Final = 60.0
#: Time for the return to the app as it was, when a restore fails or is cancelled.
UNDO_S: Final = 10.0


@dataclass(eq=False, repr=False)
class Backups:
    """Calls on backups; MESH-A404 for an app or a backup that is not there."""

    _client: Client
    _view: ClusterView
    _desired: DesiredState
    _pieces: BlobStore
    _settings: Settings
    _clock: Clock
    _note: Callable[[JournalEntry], None]
    _planner: Planner

    async def make(self, app: str, *, by: str = "") -> BackupRecord:
        """Back ``app`` up while it runs; older backups than are kept are deleted."""
        current = await self._settled(app)

        def is_unchanged() -> bool:
            now = self._view.snapshot().app(app)
            return now is not None and now.revision == current.revision

        record = restoring.with_start_positions_of(current.value, self._view.snapshot().forms)
        conflict = MeshError("MESH-A409", f'app "{app}" is being backed up by another user')
        with refusals(conflict):
            js, replicas = self._client.jetstream(), self._settings.channels.replicas
            await kv.ensure_bucket(js, names.BACKUPS_BUCKET, replicas)
            backup = await backups.make(
                self._client, self._pieces, record, self._clock.wall_ms(), by, is_unchanged
            )
            limit = self._settings.state.backups_kept
            existing = await backups.list_backups(self._client, app) if limit else []
            for old in restoring.superseded(existing, backup, limit):
                await backups.delete(self._client, self._pieces, old)
                text = f"deleted backup {old.revision} of app {app}"
                cause = f"state.backups_kept is {limit}"
                self._note(JournalEntry(text, cause, app=app))
        self._note(JournalEntry(f"backed app {app} up as {backup.revision}", by=_user(by), app=app))
        return backup

    async def list_all(self, app: str) -> Sequence[BackupRecord]:
        """The backups of ``app``, oldest first, also after it was undeployed."""
        with refusals():
            records = await backups.list_backups(self._client, app)
        if not records and self._desired.record(app) is None:
            raise _not_deployed(app)
        return records

    async def delete(self, app: str, revision: str | None, *, by: str = "") -> int:
        """Delete one backup, or all with None; how many there were.  MESH-A404."""
        records = await self.list_all(app)
        chosen = [one for one in records if revision in (None, one.revision)]
        if revision is not None and not chosen:
            raise _no_backup(app, records)
        with refusals():
            for one in chosen:
                await backups.delete(self._client, self._pieces, one)
                text = f"deleted backup {one.revision} of app {app}"
                self._note(JournalEntry(text, by=_user(by), app=app))
        return len(chosen)

    async def restore(
        self,
        app: str,
        *,
        revision: str | None = None,
        before_ms: int | None = None,
        other: str | None = None,
        replay: bool = True,
        by: str = "",
    ) -> RestoreResult:
        """Restore the state of a backup.

        Args:
            app: the app that was backed up.
            revision: of the backup; None for the newest.
            before_ms: the newest made at or before this time, milliseconds since 1970.
            other: the name of a new app that gets the state, with channels of its own; nothing is
                replayed into it.
            replay: whether ``app`` reads the input since the backup again; otherwise it skips it.
            by: the user.

        Raises:
            MeshError: MESH-A404 for a backup or an app that is not there, MESH-A409 for a name that
                is taken, MESH-A410 when the input since the backup has been deleted.
        """
        records = await self.list_all(app)
        chosen = restoring.choose(records, revision, before_ms)
        if chosen is None:
            raise _no_backup(app, records)
        conflict = MeshError(
            "MESH-A409", f'app "{other or app}" was changed by another user meanwhile'
        )
        with refusals(conflict):
            backup = await backups.read(self._pieces, chosen)
            if other is not None and other != app:
                done = await self._into_other(backup, other, by)
            else:
                spec = await self._planner.restored(backup.record.spec)
                backup = replace(backup, record=replace(backup.record, spec=spec))
                done = await self._in_place(backup, replay, by)
        text = f"restored app {done.app} from revision {done.revision}"
        self._note(
            JournalEntry(text, "" if replay else "nothing is replayed", _user(by), app=done.app)
        )
        return done

    async def _into_other(self, backup: Backup, other: str, by: str) -> RestoreResult:
        # The revision of what is looked at: the app may be deployed while its state is stored.
        revision = self._desired.revision(other)
        if self._desired.record(other) is not None:
            raise MeshError(
                "MESH-A409",
                f'app "{other}" is there already',
                hint="Choose another name, or undeploy it first.",
            )
        spec = await self._planner.renamed(backup.record.spec, other)
        return await self._anew(backup, spec, by, revision)

    async def _in_place(self, backup: Backup, replay: bool, by: str) -> RestoreResult:
        app = backup.record.spec.name
        hint = "Restore it in a moment."
        await until_removed(self._view, self._clock, app, STOP_S, hint)
        revision, before = self._desired.revision(app), self._desired.record(app)
        if before is not None and before.deleting:
            raise MeshError("MESH-A409", f'app "{app}" is being undeployed')
        if replay:
            gaps = restoring.gaps(backup, await self._states(backup, backup.record.spec))
            if gaps:
                raise MeshError(
                    "MESH-A410",
                    f"what was published since revision {backup.revision} no longer exists",
                    detail=f"{'; '.join(gaps[:5])}.",
                    hint="With --no-replay (?replay=false) the state is put back, and the app goes "
                    "on with what comes next.",
                )
        if before is None:
            return await self._anew(backup, backup.record.spec, by, revision)
        groups = self._view.snapshot().groups_of(before)
        reason = f"it is restored from revision {backup.revision}"
        # Each write replaces the one before it, and nothing that another user has written since.
        revision = await self._desired.write_app(replace(before, held=reason), revision)
        incarnation = secrets.token_hex(8)
        try:
            await self._wait_stopped(app)
            await self._stage(backup, incarnation, replay)
        except BaseException:
            with anyio.move_on_after(UNDO_S, shield=True):
                await self._drop(incarnation)
                with contextlib.suppress(kv.RevisionConflict):
                    await self._desired.write_app(before, revision)
            raise
        # From here on the old incarnation can't continue: if this fails, the app stays held.
        streams = [*channels.js_streams(before.spec), *channels.js_streams(backup.record.spec)]
        await _end_producers(self._client, before, groups, {stream for stream, _ in streams})
        record, done = await self._commit(backup, before, incarnation, replay, by)
        try:
            await self._desired.write_app(record, revision)
        except kv.RevisionConflict:
            await self._drop(incarnation)
            raise
        await self._drop(before.incarnation)
        return done

    async def _drop(self, incarnation: str) -> None:
        """Delete the snapshots of an incarnation that no record has."""
        await snapshots.purge(self._client.jetstream(), self._pieces, incarnation)

    async def _stage(self, backup: Backup, incarnation: str, replay: bool) -> None:
        """Store the backup's snapshots as those of the new incarnation."""
        spec = backup.record.spec
        await channels.ensure_channels(self._client, spec, self._settings.channels)
        states = await self._states(backup, spec)
        lasts = {js_stream: (js_stream, states[js_stream].last) for js_stream in states}
        manifests = [
            part.manifest if replay else restoring.manifest_at(part.manifest, lasts)
            for part in backup.parts
        ]
        await backups.restore_snapshots(self._client, self._pieces, backup, incarnation, manifests)

    async def _commit(
        self, backup: Backup, before: AppRecord, incarnation: str, replay: bool, by: str
    ) -> tuple[AppRecord, RestoreResult]:
        """Begin the producers of the new incarnation; its record."""
        spec = backup.record.spec
        if replay:
            for cut in backup.cuts:
                await stream_positions.begin_producers(self._client, cut, incarnation)
        states = await self._states(backup, spec)
        record = replace(
            backup.record,
            incarnation=incarnation,
            deployed_at_ms=before.deployed_at_ms,
            deployed_by=by or before.deployed_by,
            deleting=False,
            held="",
            paused=False,
            skips=restoring.skips(backup, states) if replay else (),
            # Channels and groups that a later edit has added.
            retired=still_retired(
                before.retired, restoring.added_since_backup(before.spec, spec), spec
            ),
        )
        behind = restoring.messages_to_replay(backup, states) if replay else 0
        return record, RestoreResult(spec.name, backup.revision, replay, behind, len(backup.parts))

    async def _anew(self, backup: Backup, spec: AppSpec, by: str, revision: int) -> RestoreResult:
        """Deploy ``spec`` with the state of the backup and empty channels.

        Args:
            backup: the backup.
            spec: the app.
            by: the user.
            revision: what the last revision of the app's record must be.
        """
        await channels.ensure_channels(self._client, spec, self._settings.channels)
        old = [stream for stream, _ in channels.js_streams(backup.record.spec)]
        new = [stream for stream, _ in channels.js_streams(spec)]
        states = await self._states(backup, spec)
        lasts = {s: (s, states[s].last) for s in states}
        lasts |= {a: (b, states[b].last) for a, b in zip(old, new, strict=True)}
        texts = {
            a.text: b.text for a, b in zip(backup.record.spec.groups, spec.groups, strict=True)
        }
        incarnation = secrets.token_hex(8)
        manifests = [restoring.manifest_at(part.manifest, lasts, texts) for part in backup.parts]
        await backups.restore_snapshots(self._client, self._pieces, backup, incarnation, manifests)
        record = replace(
            backup.record,
            spec=spec,
            incarnation=incarnation,
            deployed_at_ms=self._clock.wall_ms(),
            deployed_by=by,
            deleting=False,
            held="",
            paused=False,
            skips=(),
            retired=None,
        )
        try:
            await self._desired.write_app(record, revision)
        except (kv.RevisionConflict, MeshError):
            await self._drop(incarnation)
            raise
        return RestoreResult(spec.name, backup.revision, False, 0, len(backup.parts))

    async def _states(self, backup: Backup, spec: AppSpec) -> dict[str, JetStreamState]:
        """The streams of an app's channels, and those of others that its backup reads."""
        app_streams = {stream for stream, _ in channels.js_streams(backup.record.spec)}
        others = {cut.js_stream for cut in backup.cuts} - app_streams
        streams = [*(stream for stream, _ in channels.js_streams(spec)), *sorted(others)]
        return await stream_positions.states(self._client, streams)

    async def _wait_stopped(self, app: str) -> None:
        def has_stopped() -> bool:
            return all(a.value.app != app for a in self._view.snapshot().assignments)

        if not await until(self._view, self._clock, STOP_S, has_stopped):
            raise MeshError(
                "MESH-A409",
                f'app "{app}" has not stopped within {STOP_S:g} s',
                hint="It continues unchanged.  Does a manager lead?  See 'mesh nodes'.",
            )

    async def _settled(self, app: str) -> Revisioned[AppRecord]:
        """The app, when none of its groups is just changing; MESH-A404, MESH-A409."""

        def is_settled() -> bool:
            cluster = cluster_state_of(self._view.snapshot(), self._settings)
            return all(name != app for name, _ in cluster.changes)

        if not await until(self._view, self._clock, STOP_S, is_settled):
            raise MeshError(
                "MESH-A409",
                f'app "{app}" is changing',
                detail="The states of a group are consistent before it is scaled or edited and "
                "after, not in between.",
                hint="'mesh status' shows what it waits for.  Try again when it runs.",
            )
        current = self._view.snapshot().app(app)
        if current is None or current.value.deleting:
            raise _not_deployed(app)
        if current.value.held:
            raise MeshError("MESH-A409", f'app "{app}" is being restored')
        return current


def _user(by: str) -> str:
    return by and f"user {by}"


def _not_deployed(app: str) -> MeshError:
    return MeshError("MESH-A404", f'app "{app}" is not deployed')


def _no_backup(app: str, records: Sequence[BackupRecord]) -> MeshError:
    reason = ", ".join(one.revision for one in records[-5:]) or "none"
    return MeshError(
        "MESH-A404",
        f'app "{app}" has no such backup',
        detail=f"The newest are: {reason}.",
        hint="'mesh backups' lists all of them.",
    )


async def _end_producers(
    client: Client, app: AppRecord, groups: Collection[GroupSpec], js_streams: Collection[str]
) -> None:
    """End the writers of an incarnation, so that none of them is accepted any more.

    They are those that have written, and those that have not yet.

    Args:
        client: the connection.
        app: the incarnation.
        groups: its groups, in each revision that may still run.
        js_streams: the streams that it may have written; those that are gone are left out.
    """
    # Only here: it brings Spark's Python along.
    from mesh.spark.producers import producers

    pairs = await asyncio.to_thread(producers, groups, app.incarnation)
    for js_stream in sorted(js_streams):
        writers = [producer for stream, producer in pairs if stream == js_stream]
        if await stream_positions.state(client, js_stream) is not None:
            await stream_positions.end_producers(client, js_stream, app.incarnation, writers)
