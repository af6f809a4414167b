"""Effect of a restore on an app's channels and snapshots, decided from the backup and the streams.

The snapshots of a backup were read one after the other while the app ran, so a reader's snapshot
may be older or newer than a writer's.  The cut makes them fit: the last sequence of each stream
just after all snapshots had been read, with the position of each producer there.  Up to the cut the
log is valid: a reader reads from it what its snapshot lacks.  A marker at the cut gives each writer
the position up to which it must not publish again.  Output of the app after the cut is void: the
writers publish it again at the end of the stream, and the readers skip the messages in between.

The cut between history and the live stream, decided; and the progress of a history in words.

past:   rows .......... ┐ cut                 the last sequence that history includes
stream:    ... 118  119 │ 120  121 ...        live groups read on after it
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import orjson

from mesh.errors import MeshError
from mesh.model.begin import StartPositionKind
from mesh.model.cluster import Retired, Skip

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mesh.control.snapshot import Revisioned
    from mesh.model.app import AppSpec
    from mesh.model.backup import Backup, BackupRecord
    from mesh.model.begin import StartPosition
    from mesh.model.cluster import AppRecord, GroupForm
    from mesh.model.history import HistoryReport
    from mesh.model.values import JsonObject


@dataclass(frozen=True, slots=True)
class JetStreamState:
    """State of a JetStream stream."""

    #: Milliseconds since 1970.
    created_ms: int
    #: Sequence of the first message that exists; one more than the last if there is none.
    first: int
    last: int


def choose(
    records: Sequence[BackupRecord], revision: str | None, before_ms: int | None
) -> BackupRecord | None:
    """The backup of a revision, or the newest one of at most a given time, or the newest."""
    matches = [
        record
        for record in records
        if revision in (None, record.revision) and (before_ms is None or record.at_ms <= before_ms)
    ]
    return max(matches, key=lambda record: record.revision, default=None)


def superseded(
    records: Sequence[BackupRecord], new_backup: BackupRecord, limit: int
) -> Sequence[BackupRecord]:
    """The backups to delete after one was made, oldest first.

    Revisions are times of managers' clocks.  One that is ahead must not cost the new backup.

    Args:
        records: all backups of the app, oldest first.
        new_backup: the new one.
        limit: how many to keep; 0 for all.
    """
    earlier = [record for record in records if record.revision != new_backup.revision]
    return earlier[: max(0, len(earlier) - limit + 1)] if limit else ()


def with_start_positions_of(
    record: AppRecord, written: Iterable[Revisioned[GroupForm]]
) -> AppRecord:
    """An app's record that begins where the revisions of its groups begin.

    A group that was scaled begins after the work of its earlier revisions, which a restored app
    doesn't know.

    Args:
        record: the desired app, which runs in that form.
        written: revisions of the groups of all apps.
    """
    starts = {
        form.value.group: form.value.start
        for form in written
        if (form.value.app, form.value.app_incarnation) == (record.spec.name, record.incarnation)
    }
    groups = (
        replace(group, starts={**group.starts, **starts.get(group.name, {})})
        for group in record.spec.groups
    )
    return replace(record, spec=replace(record.spec, groups=tuple(groups)))


def added_since_backup(before: AppSpec, restored: AppSpec) -> Retired:
    """Channels and groups of an app that its backup doesn't have.

    Args:
        before: the app before the restore.
        restored: the app after the restore.
    """
    there = {channel.js_stream() for channel in restored.channels}
    return Retired(
        tuple(channel for channel in before.channels if channel.js_stream() not in there),
        tuple(group.name for group in before.groups if restored.group(group.name) is None),
    )


def snapshot_positions(manifest: str) -> dict[str, int]:
    """Input position of a snapshot: JetStream stream to the last sequence that it includes."""
    values = orjson.loads(manifest)
    ahead = values.get("ahead") or {}
    return {s: max(sequence, ahead.get(s, 0)) for s, sequence, _ in values["position"]}


def gaps(backup: Backup, states: Mapping[str, JetStreamState]) -> list[str]:
    """Reasons why later messages can't be read again; empty if they can.

    Args:
        backup: the backup to restore.
        states: the existing streams of its channels, by name.
    """
    reasons = []
    times_ms = {cut.js_stream: cut.created_ms for cut in backup.cuts}
    for stream, created_ms in times_ms.items():
        state = states.get(stream)
        if state is None:
            reasons.append(f"{stream} is gone")
        elif state.created_ms != created_ms:
            reasons.append(f"{stream} was created again since")
    if reasons:
        return reasons
    for part in backup.parts:
        for stream, sequence in snapshot_positions(part.manifest).items():
            state = states.get(stream)
            if state is not None and state.first > sequence + 1:
                reasons.append(f"{stream} has lost messages {sequence + 1} to {state.first - 1}")
    return list(dict.fromkeys(reasons))


def skips(backup: Backup, states: Mapping[str, JetStreamState]) -> tuple[Skip, ...]:
    """Ranges to skip: in each channel that the app writes and reads, all messages after its cut.

    Args:
        backup: the backup to restore.
        states: the streams, after their writers have stopped.
    """
    spec = backup.record.spec
    written = {stream for group in spec.groups for c in group.outputs for stream in c.js_streams}
    read = {s for group in spec.groups for one in group.inputs for s in one.channel.js_streams}
    between = written & read
    ranges = [
        Skip(cut.js_stream, cut.sequence, states[cut.js_stream].last)
        for cut in backup.cuts
        if cut.js_stream in between and states[cut.js_stream].last > cut.sequence
    ]
    return (*backup.record.skips, *ranges)


def messages_to_replay(backup: Backup, states: Mapping[str, JetStreamState]) -> int:
    """Number of messages of the channels that will be read again."""
    least: dict[str, int] = {}
    for part in backup.parts:
        for stream, sequence in snapshot_positions(part.manifest).items():
            least[stream] = min(sequence, least.get(stream, sequence))
    passed = {skip.js_stream: skip.to - skip.after for skip in skips(backup, states)}
    return sum(
        max(0, states[stream].last - sequence - passed.get(stream, 0))
        for stream, sequence in least.items()
        if stream in states
    )


def manifest_at(
    manifest: str,
    lasts: Mapping[str, tuple[str, int]],
    texts: Mapping[str, str] | None = None,
) -> str:
    """A snapshot's manifest, with its state unchanged and another position.

    Args:
        manifest: JSON.
        lasts: JetStream stream to its replacement, and the last sequence of that which counts as
            read.
        texts: text of a group to its text in the target app.
    """
    values: JsonObject = orjson.loads(manifest)
    values["position"] = sorted(
        # A stream that was deleted is read from its beginning once it exists again.
        [*lasts.get(stream, (stream, 0)), time_ms]
        for stream, _, time_ms in values["position"]
    )
    values["ahead"] = {}
    # What a stream held at the time of the snapshot says nothing about its replacement.
    values["newest"] = {}
    values["text"] = (texts or {}).get(values.get("text", ""), values.get("text", ""))
    return orjson.dumps(values).decode()


def cuts(
    end: StartPosition,
    states: Mapping[str, JetStreamState],
    last_before: Mapping[str, int],
    now_ms: int,
) -> dict[str, int]:
    """By JetStream stream of the input: the last sequence that the past events include.

    Args:
        end: where they end: a sequence, which they include, or a time, which they don't.
        states: the streams.
        last_before: of a time: by stream, the last sequence stored before it.
        now_ms: the present time.

    Raises:
        MeshError: MESH-A410 if messages after the cut may be gone, MESH-A422 for an end that is
            none of the stream.
    """
    match end.kind:
        case StartPositionKind.SEQUENCE:
            if len(states) != 1:
                raise _no_end(
                    end, "The input is divided by key, and each part has sequences of its own."
                )
            sequences = dict.fromkeys(states, end.sequence)
        case StartPositionKind.TIME if end.time_ms > now_ms:
            raise _no_end(end, "Messages before a time of the future are still to come.")
        case StartPositionKind.TIME:
            sequences = {stream: last_before.get(stream, 0) for stream in states}
        case _:
            raise _no_end(end, "An end is a sequence or a time.")
    for stream, sequence in sequences.items():
        state = states[stream]
        if sequence > state.last:
            raise _no_end(end, f"The last message of {stream} is {state.last}.")
        is_gone = sequence + 1 < state.first
        # Of a time it is not known whether the messages that are gone were before it.
        is_doubtful = end.kind is StartPositionKind.TIME and 1 < state.first == sequence + 1
        if is_gone or is_doubtful:
            raise MeshError(
                "MESH-A410",
                "messages between the history and the live stream may be gone",
                detail=f"{stream} begins with message {state.first}; the history ends at {end}.",
                hint="Choose a later --until, up to which the files hold all events; a sequence "
                "says exactly where they end.",
            )
    return sequences


def progress(stream: str, report: HistoryReport) -> str:
    """The progress of a history, as the reason of an app that does not run yet."""
    # Of a stream the number of messages is known, which may have several rows.
    has_total = report.rows + report.later < report.of or report.rows == report.of
    rows = f"{report.rows:,} of {report.of:,} rows" if has_total else f"{report.rows:,} rows"
    rate = f"{report.rows_per_s:,.0f} rows/s"
    left = ""
    if has_total and report.rows_per_s:
        left = f", {max(0, report.of - report.rows - report.later) / report.rows_per_s:.0f} s left"
    done = "its history is stored: " if report.is_done else "its history is run: "
    return f"{done}{stream}, {rows}, {rate}{left}"


def _no_end(end: StartPosition, why: str) -> MeshError:
    return MeshError(
        "MESH-A422",
        f"the history can't end at {end}",
        detail=why,
        hint="--until is the last sequence that the files include, or the time before which their "
        "rows are read.",
    )
