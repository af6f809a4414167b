"""Beginning of a fork, decided from the app's log and backups; what of the log it needs copied.

A fork is exact from a place if the log is there from the place on, and it has the state of that
place: none, for groups without state; that of a backup at or before the place; or the one that it
computes itself from the beginning of a whole log.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import orjson

from mesh.control.restoring import snapshot_positions
from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from mesh.control.restoring import JetStreamState
    from mesh.model.app import AppSpec, GroupSpec
    from mesh.model.backup import Backup, PartBackup
    from mesh.model.values import JsonObject

_REVISION: Final = re.compile(r"[0-9]{8}T[0-9]{6}-[0-9]{3}\Z")
#: Above any sequence: the end of a skipped range that has none.
NO_END: Final = 2**62


class PlaceKind(StrEnum):
    """Kinds of places where a fork may begin."""

    #: The oldest message of the log.
    START = "start"
    #: A sequence or a time of the input.
    POSITION = "position"
    #: The newest backup, or one of a revision.
    BACKUP = "backup"


@dataclass(frozen=True, slots=True)
class ForkPlace:
    """A place as a user names it."""

    kind: PlaceKind
    #: Of a backup; empty for the newest.
    revision: str = ""
    #: Of a position: as the user wrote it.
    text: str = ""


def place_of(text: str) -> ForkPlace:
    """``start``, ``backup``, a backup's revision, or anything else as a sequence or a time."""
    if text == "start":
        return ForkPlace(PlaceKind.START)
    if text == "backup":
        return ForkPlace(PlaceKind.BACKUP)
    if _REVISION.match(text):
        return ForkPlace(PlaceKind.BACKUP, revision=text)
    return ForkPlace(PlaceKind.POSITION, text=text)


@dataclass(frozen=True, slots=True)
class ForkCandidate:
    """A backup with whose state the fork might begin."""

    revision: str
    #: By JetStream stream of the app's input: the last sequence that it may include.
    reached: Mapping[str, int]
    #: Reasons why its input can't be read on; empty if it can.
    gaps: tuple[str, ...] = ()
    #: Why its state does not fit the fork, as a sentence without its end; empty if it does.
    misfit: str = ""


@dataclass(frozen=True, slots=True)
class Beginning:
    """The beginning of a fork."""

    #: Revision of the backup whose state it takes; empty for none.
    backup: str = ""
    #: By JetStream stream: the last sequence that it does not read, without a backup.
    begins: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def decide(
    place: ForkPlace,
    *,
    logs: Mapping[str, JetStreamState],
    last_before: Mapping[str, int],
    reaches: Mapping[str, int],
    stateful: Collection[str],
    backups: Sequence[ForkCandidate],
) -> Beginning:
    """Choose where a fork begins.

    Args:
        place: where it is to begin.
        logs: the streams of its input without a backup.
        last_before: of a position: by stream of ``logs``, the last sequence before it.
        reaches: the same, by stream that snapshots of the app have positions in.
        stateful: its groups with state.
        backups: those that may serve, the newest first.

    Raises:
        MeshError: MESH-A404 for a backup that isn't there; MESH-A410 where retention has taken
            messages that it needs.
    """
    gone = {stream: log.first - 1 for stream, log in logs.items() if log.first > 1}
    match place.kind:
        case PlaceKind.START:
            return Beginning(notes=_from_oldest(gone, stateful))
        case PlaceKind.BACKUP:
            if not backups:
                raise MeshError(
                    "MESH-A404",
                    f"there is no backup {place.revision}".rstrip(),
                    hint="'mesh backups' lists those of an app, 'mesh backup' makes one.",
                )
            if backups[0].misfit:
                return _recomputed(gone, stateful, f"No state is taken: {backups[0].misfit}.")
            if backups[0].gaps:
                raise _gone(f"since backup {backups[0].revision}", backups[0].gaps)
            return Beginning(backups[0].revision)
        case PlaceKind.POSITION:
            lost = {s: n for s, n in gone.items() if last_before.get(s, 0) < n}
            if lost:
                raise _gone(f"from {place.text}", [_first_of(s, n) for s, n in lost.items()])
            if not stateful:
                return Beginning(begins={s: n for s, n in last_before.items() if n})
            return _before(place, gone, reaches, stateful, backups)


def _before(
    place: ForkPlace,
    gone: Mapping[str, int],
    reaches: Mapping[str, int],
    stateful: Collection[str],
    backups: Sequence[ForkCandidate],
) -> Beginning:
    """Begin a fork with state at or before a position."""
    before = [
        one
        for one in backups
        if all(n <= reaches.get(s, n) for s, n in one.reached.items()) and not one.gaps
    ]
    for one in before:
        if not one.misfit:
            note = f"It begins with the state of backup {one.revision}, the last one before "
            return Beginning(one.revision, notes=(f"{note}{place.text}.",))
    if before:
        return _recomputed(gone, stateful, f"No state is taken: {before[0].misfit}.")
    return _recomputed(gone, stateful, f"No backup holds the state before {place.text}.")


def _recomputed(gone: Mapping[str, int], stateful: Collection[str], why: str) -> Beginning:
    """Begin with the oldest message, which is exact if there is nothing before it."""
    if gone and stateful:
        missing = "; ".join(_first_of(s, n) for s, n in gone.items())
        raise MeshError(
            "MESH-A410",
            "the state of the fork can't be computed: messages of its input are gone",
            detail=f"{why} {missing}.",
            hint="--from start begins with what there is, and an empty state; a backup made "
            "earlier would do.",
        )
    return Beginning(notes=(why, "It begins with the first message of the log."))


def _from_oldest(gone: Mapping[str, int], stateful: Collection[str]) -> tuple[str, ...]:
    state = ", with an empty state" if stateful else ""
    return tuple(
        f"Retention has taken {_first_of(s, n)}: it begins after them{state}."
        for s, n in gone.items()
    )


def _first_of(stream: str, count: int) -> str:
    return f"messages 1 to {count} of {stream}"


def _gone(what: str, reasons: Collection[str]) -> MeshError:
    return MeshError(
        "MESH-A410",
        f"the input {what} no longer exists",
        detail=f"{'; '.join(list(reasons)[:5])}.",
        hint="--from start begins with the oldest message that exists.",
    )


def candidate_of(
    backup: Backup, inputs: Collection[str], gaps: Sequence[str], misfit: str
) -> ForkCandidate:
    """A backup as ``decide`` sees it; ``inputs`` are the streams of the app's input."""
    reached = {c.js_stream: c.sequence for c in backup.cuts if c.js_stream in inputs}
    return ForkCandidate(backup.revision, reached, tuple(gaps), misfit)


@dataclass(frozen=True, slots=True)
class Copy:
    """A range of an inner channel of the app that its fork needs, with the same sequences."""

    source: str
    target: str
    subject: str
    #: Last sequence before it, and last one of it.
    after: int
    to: int


def copies(backup: Backup, spec: AppSpec, changed: Collection[str]) -> list[Copy]:
    """The ranges to copy from channels between the app's groups to those of its fork.

    Args:
        backup: the backup whose state the fork takes.
        spec: the fork.
        changed: groups whose output begins again; see ``mesh.plan.fork.StateFit``.
    """
    cuts = {cut.js_stream: cut.sequence for cut in backup.cuts}
    ranges = []
    for channel in spec.channels:
        writers = [g for g in spec.groups if channel in g.outputs]
        readers = [g for g in spec.groups if any(i.channel == channel for i in g.inputs)]
        if not readers or not writers or any(g.name in changed for g in writers):
            continue
        for partition in range(channel.partitions):
            target = channel.js_stream(partition)
            source = _renamed(target, spec.name, backup.record.spec.name)
            if source not in cuts:
                continue
            places = [_reached(backup, group, source, target) for group in readers]
            after = min(places, default=0)
            subject = channel.subject(partition)
            ranges.append(Copy(source, target, subject, min(after, cuts[source]), cuts[source]))
    return ranges


def _reached(backup: Backup, group: GroupSpec, source: str, target: str) -> int:
    """The lowest position of a group's snapshots in a stream; where it begins without one."""
    sequences = [
        positions[source]
        for part in backup.parts
        if part.group == group.name and source in (positions := snapshot_positions(part.manifest))
    ]
    return min(sequences, default=group.starts.get(target, 0))


def manifest_of_fork(
    part: PartBackup,
    backup: Backup,
    spec: AppSpec,
    changed: Collection[str],
    copied: Collection[str],
) -> str | None:
    """The manifest of a backup's part as a snapshot of the fork; None if the fork has no use of it.

    Args:
        part: one of ``backup``.
        backup: of the app.
        spec: the fork.
        changed: as ``copies``.
        copied: targets of the copies.
    """
    group, was = spec.group(part.group), backup.record.spec.group(part.group)
    if group is None or was is None or group.kind is not was.kind:
        return None
    values: JsonObject = orjson.loads(part.manifest)
    reads = {stream for i in group.inputs for stream in i.channel.js_streams}
    js_streams = {stream for channel in spec.channels for stream in channel.js_streams}
    names = {}
    for stream in (s for s, _, _ in values["position"]):
        name = stream if stream in reads else _renamed(stream, was.app, spec.name)
        # A channel without a copy is read from its first message.
        if name in reads and (name not in js_streams or name in copied):
            names[stream] = name
    if not names:
        return None
    values["position"] = sorted(
        # A stream that was made after the time of a position is not the one that was read.
        [names[s], n, t if names[s] == s else 0]
        for s, n, t in values["position"]
        if s in names
    )
    ahead = values.get("ahead") or {}
    values["ahead"] = {names[s]: n for s, n in ahead.items() if s in names}
    values["newest"] = {}
    if group.name not in changed:
        # The texts differ in the app's name alone.  Another text migrates the state.
        values["text"] = group.text
    return orjson.dumps(values).decode()


def _renamed(js_stream: str, app: str, other: str) -> str:
    """The name of a stream of ``app`` as one of ``other``."""
    start = f"mesh-{app}-"
    return f"mesh-{other}-{js_stream.removeprefix(start)}" if js_stream.startswith(start) else ""
