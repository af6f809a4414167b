"""Forks of apps, as any manager makes them: another app over the same input, from the past."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from nats.js.errors import NotFoundError

from mesh.control import forking, restoring
from mesh.control.forking import Beginning, PlaceKind
from mesh.control.journal import JournalEntry
from mesh.errors import MeshError
from mesh.jetstream import backups, channels, forks, snapshots, stream_positions
from mesh.jetstream.connection import refusals
from mesh.manager.deployments import MAKING
from mesh.model.backup import StreamCut
from mesh.model.begin import StartPosition, StartPositionKind, parse_start_position
from mesh.model.cluster import AppRecord, Forked, ForkOrigin, Skip
from mesh.plan.edits import with_start_positions
from mesh.plan.fork import read_streams

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nats.aio.client import Client
    from nats.js.api import RawStreamMsg

    from mesh.clock import Clock
    from mesh.control.forking import Copy, ForkCandidate, ForkPlace
    from mesh.control.restoring import JetStreamState
    from mesh.jetstream.blob_store import BlobStore
    from mesh.manager.deployments import Deployments
    from mesh.manager.desired_state import DesiredState
    from mesh.manager.planning import Planner
    from mesh.model.app import AppSpec
    from mesh.model.backup import Backup
    from mesh.plan.fork import StateFit
    from mesh.settings import Settings

#: Messages between the groups of an app that a fork copies at most.
COPIED_MAX: Final = 100_000
#: Backups that are looked at for a position, the newest first.
EXAMINED_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class _ForkRequest:
    """A fork as it was asked for."""

    of: AppRecord
    other: str
    text: str | None
    sinks: bool
    by: str


@dataclass(frozen=True, slots=True)
class _BackupOption:
    """A backup whose state the fork may take."""

    backup: Backup
    fit: StateFit
    candidate: ForkCandidate


@dataclass(eq=False, repr=False)
class Forks:
    """Makes forks of apps."""

    _client: Client
    _desired: DesiredState
    _deployments: Deployments
    _pieces: BlobStore
    _settings: Settings
    _clock: Clock
    _note: Callable[[JournalEntry], None]
    _planner: Planner

    async def fork(
        self,
        app: str,
        other: str,
        *,
        text: str | None = None,
        begin: str = "start",
        until: str | None = None,
        sinks: bool = False,
        by: str = "",
    ) -> Forked:
        """Make app ``other`` over the input of ``app``.

        Args:
            app: the first app, which is not changed.
            other: the name of the fork.
            text: SiddhiQL of the fork; None for that of ``app``.
            begin: ``start``, a sequence, a time, ``backup`` or a backup's revision.
            until: the last sequence to read, or the time before which messages are read.
            sinks: whether its sinks run.
            by: the user.

        Raises:
            MeshError: MESH-A404 for an app or a backup that is not there, MESH-A409 for a name that
                is taken, MESH-A410 where retention has taken what it needs, MESH-A422 for an end
                that can't be kept; as ``mesh.plan.fork.fork_app`` for its text.
        """
        record = self._desired.get(app).value
        revision = self._desired.revision(other)
        self._check_names(record, other)
        request = _ForkRequest(record, other, text, sinks, by)
        place = forking.place_of(begin)
        spec = await self._planner.fork(record.spec, text, other, record.scaled, sinks=sinks)
        with refusals(_conflict(other)):
            beginning, options = await self._beginning(request, spec, place)
            chosen = next((k for k in options if k.candidate.revision == beginning.backup), None)
            spec = chosen.fit.spec if chosen is not None and chosen.fit.spec is not None else spec
            ends = await self._ends(spec, until)
            origin = ForkOrigin(
                app, record.incarnation, beginning.backup, dict(beginning.begins), ends, text or ""
            )
            copied = await self._make(request, spec, origin, chosen, revision)
        message = f"forked app {app} as {other}"
        cause = f"from backup {origin.backup}" if origin.backup else f"from {begin}"
        self._note(JournalEntry(message, cause, by=by and f"user {by}", app=other))
        return Forked(other, app, origin.backup, origin.begins, ends, copied, beginning.notes)

    def _check_names(self, record: AppRecord, other: str) -> None:
        if record.deleting or record.making:
            raise MeshError("MESH-A409", f'app "{record.spec.name}" does not run now')
        if self._desired.record(other) is not None:
            raise MeshError(
                "MESH-A409",
                f'app "{other}" is there already',
                hint="Choose another name, or undeploy it first.",
            )

    async def _beginning(
        self, request: _ForkRequest, spec: AppSpec, place: ForkPlace
    ) -> tuple[Beginning, list[_BackupOption]]:
        """The beginning of a fork, and the backups that were looked at."""
        logs = await stream_positions.states(self._client, sorted(_input_streams(spec)))
        last_before: dict[str, int] = {}
        reaches: dict[str, int] = {}
        stateful = [group.name for group in spec.groups if group.stateful]
        options: list[_BackupOption] = []
        if place.kind is PlaceKind.POSITION:
            position = parse_start_position(place.text)
            last_before = await self._last_before(position, logs)
            if stateful:
                options = await self._options(request, None)
                reaches = await self._reaches(position, last_before, options)
        elif place.kind is PlaceKind.BACKUP:
            options = await self._options(request, place.revision, 1)
        beginning = forking.decide(
            place,
            logs=logs,
            last_before=last_before,
            reaches=reaches,
            stateful=stateful,
            backups=[one.candidate for one in options],
        )
        return beginning, options

    async def _last_before(
        self, position: StartPosition, logs: Mapping[str, JetStreamState]
    ) -> dict[str, int]:
        """By stream the last sequence before a position; 0 where that may be gone."""
        sequences = await stream_positions.skipped_positions(self._client, logs, position)
        for stream, log in logs.items():
            is_oldest = sequences.get(stream, 0) <= log.first - 1
            exact = position.kind is StartPositionKind.SEQUENCE and position.sequence >= log.first
            if is_oldest and not exact:
                sequences[stream] = 0
        return sequences

    async def _options(
        self, request: _ForkRequest, revision: str | None, most: int = EXAMINED_MAX
    ) -> list[_BackupOption]:
        """Backups of the app, the newest first, with their fit."""
        app = request.of.spec.name
        records = await backups.list_backups(self._client, app)
        chosen = [r for r in reversed(records) if not revision or r.revision == revision][:most]
        options = []
        for one in chosen:
            backup = await backups.read(self._pieces, one)
            was = backup.record
            fit = await self._planner.fork_with_state(
                request.of.spec,
                was.spec,
                request.text,
                request.other,
                was.scaled,
                max(was.edits, request.of.edits) + 1,
                sinks=request.sinks,
            )
            streams = sorted({cut.js_stream for cut in backup.cuts})
            states = await stream_positions.states(self._client, streams)
            gaps = restoring.gaps(backup, states)
            inputs = _input_streams(fit.spec) if fit.spec is not None else set(states)
            candidate = forking.candidate_of(backup, inputs, gaps, fit.reason)
            options.append(_BackupOption(backup, fit, candidate))
        return options

    async def _reaches(
        self,
        position: StartPosition,
        last_before: Mapping[str, int],
        options: Sequence[_BackupOption],
    ) -> dict[str, int]:
        """By stream of backups' cuts, the last sequence that surely is before a position.

        Keyed copies of a stream have sequences of their own, and are stored after the original.
        """
        streams = {s for one in options for s in one.candidate.reached} - set(last_before)
        if position.kind is StartPositionKind.SEQUENCE:
            times = [
                message.time.timestamp()
                for stream in last_before
                if (message := await self._message(stream, position.sequence)) is not None
                and message.time is not None
            ]
            if not times:
                return dict(last_before)
            time_ms = int(min(times) * 1000)
            position = StartPosition(StartPositionKind.TIME, time_ms=time_ms)
        others = await stream_positions.skipped_positions(self._client, streams, position)
        return {**dict.fromkeys(streams, 0), **others, **last_before}

    async def _message(self, stream: str, sequence: int) -> RawStreamMsg | None:
        try:
            return await self._client.jetstream().get_msg(stream, sequence)
        except NotFoundError:
            return None

    async def _ends(self, spec: AppSpec, until: str | None) -> dict[str, int]:
        """By stream of a fork's input the last sequence that it reads."""
        if until is None:
            return {}
        keyed = [
            i.channel.stream.name
            for g in spec.groups
            for i in g.inputs
            if i.channel.is_keyed and i.channel.app != spec.name
        ]
        position = parse_start_position(until)
        if keyed or position.kind not in (StartPositionKind.SEQUENCE, StartPositionKind.TIME):
            raise MeshError(
                "MESH-A422",
                f"the fork can't end at {until}",
                detail=f'It reads keyed copies of stream "{keyed[0]}", whose sequences differ.'
                if keyed
                else "An end is a sequence or a time.",
                hint="Leave --until out, and undeploy the fork when it has come far enough.",
            )
        streams = _input_streams(spec)
        if position.kind is StartPositionKind.SEQUENCE:
            return dict.fromkeys(streams, position.sequence)
        sequences = await stream_positions.skipped_positions(self._client, streams, position)
        return {stream: sequences.get(stream, 0) for stream in streams}

    async def _make(
        self,
        request: _ForkRequest,
        spec: AppSpec,
        origin: ForkOrigin,
        chosen: _BackupOption | None,
        revision: int,
    ) -> int:
        """Deploy the fork; the number of messages that were copied for it."""
        copied = 0
        taken = [] if chosen is None else self._copies(chosen, spec)
        spec = with_start_positions(spec, origin.begins) if chosen is None else spec
        record = AppRecord(
            spec,
            secrets.token_hex(8),
            self._clock.wall_ms(),
            request.by,
            held=MAKING,
            skips=_skips(origin, chosen, taken),
            edits=0 if chosen is None else max(request.of.edits, chosen.backup.record.edits) + 1,
            scaled=request.of.scaled,
            making=True,
            statistics=request.of.statistics,
            fork=origin,
        )

        async def fill(_: object) -> AppRecord:
            nonlocal copied
            for one in taken:
                copied += await forks.copy(self._client, one, self._settings.channels)
            await channels.ensure_channels(self._client, spec, self._settings.channels)
            if chosen is not None:
                await self._begin_with(chosen, record, taken)
            return record

        try:
            await self._deployments.make(record, revision, fill)
        except BaseException:
            if chosen is not None:
                await snapshots.purge(self._client.jetstream(), self._pieces, record.incarnation)
            raise
        return copied

    def _copies(self, chosen: _BackupOption, spec: AppSpec) -> list[Copy]:
        copies = forking.copies(chosen.backup, spec, chosen.fit.changed)
        count = sum(one.to - one.after for one in copies)
        if count > COPIED_MAX:
            raise MeshError(
                "MESH-A413",
                f"the fork would copy {count} messages between the app's groups",
                detail=f"At most {COPIED_MAX} are copied: a group of the backup is far behind.",
                hint="Back the app up when its groups have caught up, or fork it --from start.",
            )
        return copies

    async def _begin_with(
        self, chosen: _BackupOption, record: AppRecord, taken: Sequence[Copy]
    ) -> None:
        """Store the snapshots and markers with which the groups of a fork begin."""
        backup, changed = chosen.backup, chosen.fit.changed
        parts, manifests = [], []
        targets = {one.target for one in taken}
        for part in backup.parts:
            manifest = forking.manifest_of_fork(part, backup, record.spec, changed, targets)
            if manifest is not None:
                parts.append(part)
                manifests.append(manifest)
        cuts = {cut.js_stream: cut for cut in backup.cuts}
        for one in taken:
            cut = StreamCut(one.target, 0, one.to, cuts[one.source].markers)
            await stream_positions.begin_producers(self._client, cut, record.incarnation)
        await backups.restore_snapshots(
            self._client,
            self._pieces,
            replace(backup, parts=tuple(parts)),
            record.incarnation,
            manifests,
        )


def _input_streams(spec: AppSpec) -> set[str]:
    """The JetStream streams that a fork reads and that are not its own."""
    fork_streams = {stream for channel in spec.channels for stream in channel.js_streams}
    return set(read_streams(spec.groups)) - fork_streams


def _skips(
    origin: ForkOrigin, chosen: _BackupOption | None, taken: Sequence[Copy]
) -> tuple[Skip, ...]:
    """The ranges that a fork's groups skip: after its end, and those of the app in its copies."""
    ends = tuple(Skip(s, n, forking.NO_END) for s, n in sorted(origin.until.items()))
    if chosen is None:
        return ends
    names = {one.source: one.target for one in taken}
    before = chosen.backup.record.skips
    return (
        *ends,
        *(replace(s, js_stream=names[s.js_stream]) for s in before if s.js_stream in names),
    )


def _conflict(other: str) -> MeshError:
    return MeshError(
        "MESH-A409",
        f'app "{other}" was deployed by another user just now',
        hint="Look at it with 'mesh status'.",
    )
