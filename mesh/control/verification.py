"""Comparison of an app's records with what NATS stores: gaps, forged or lost markers, lost state.

    AppRecord, epochs ─┐
    streams           ─┼─▶ findings(evidence) ─▶ faults, risks
    markers           ─┤
    snapshots         ─┘

A fault means that something was lost, or that what is stored contradicts itself.  A risk means that
the next failure, or time alone, loses something.  In a healthy cluster there is neither.

Evidence is read while the app runs, one thing after another: a reader's position before the stream
that it is compared with, so that progress in between never looks like a fault.

Retention that follows readers: an app's messages stay until its groups have processed them.

    oldest message not processed, older than half of max_age ──▶ max_age = twice its age
    oldest message not processed, younger again              ──▶ max_age as it was

So an app that is paused, or fails for longer than ``channels.max_age_s``, continues without a gap.
``max_bytes`` of a stream bounds its size all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mesh.model.app import AppSpec, GroupSpec
    from mesh.model.cluster import AppRecord


#: Retention that a failover, a deploy and a night without people can outlast, seconds.
RETENTION_MIN_S: Final = 3600.0
#: Part of the retention after which an unread message is about to go.
RETENTION_USED: Final = 0.5
#: Part of a stream's bound in bytes that unread messages may use.
BYTES_USED: Final = 0.8
#: Operations by which a replica may be behind.
LAG_MAX: Final = 10_000
#: Deleted sequences that a finding names.
_NAMED: Final = 3


class Severity(StrEnum):
    """Weight of a finding."""

    #: Something is lost, or contradicts itself.
    FAULT = "fault"
    #: The next failure, or time, may lose something.
    RISK = "risk"


@dataclass(frozen=True, slots=True)
class Finding:
    """One contradiction or risk."""

    severity: Severity
    #: A stable word for programs: ``messages-deleted``.
    kind: str
    app: str
    #: The JetStream stream, group or snapshot.
    where: str
    text: str
    remedy: str


@dataclass(frozen=True, slots=True)
class StreamEvidence:
    """A JetStream stream of the app as its leader has it."""

    name: str
    subjects: tuple[str, ...] = ()
    replicas: int = 1
    is_on_disk: bool = True
    allows_rollups: bool = False
    allows_atomic: bool = True
    #: 0 for no limit.
    max_age_s: float = 0.0
    #: Before a manager extended it, 0 if none has; see ``mesh.control.verification``.
    max_age_before_s: float = 0.0
    max_bytes: int = 0
    bytes: int = 0
    messages: int = 0
    first: int = 1
    last: int = 0
    #: Age of the first message, seconds.
    first_age_s: float = 0.0
    #: Sequences between first and last that were deleted, the first of them, and their number.
    deleted: tuple[int, ...] = ()
    deleted_count: int = 0
    #: Servers with a copy that are away, and the greatest lag of another.
    away: tuple[str, ...] = ()
    lag: int = 0


@dataclass(frozen=True, slots=True)
class MarkerEvidence:
    """The newest marker of a producer of this incarnation."""

    js_stream: str
    producer: str
    #: The last message of its input that is done, or the last of the rows that it counts; -1: none.
    position: int
    epoch: int


@dataclass(frozen=True, slots=True)
class SnapshotEvidence:
    """The newest snapshot of a part of a group."""

    group: str
    part: str
    epoch: int
    #: By JetStream stream: the last sequence that it includes.
    positions: Mapping[str, int] = field(hash=False)
    #: Names of pieces that the store does not have.
    missing: tuple[str, ...] = ()
    #: The reason why its manifest can't be read; empty if it can.
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class Producer:
    """A writer that the plan has, and where its positions come from."""

    group: str
    #: JetStream streams whose sequences are its positions; empty if it counts rows itself.
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that is compared, of one app."""

    record: AppRecord
    #: By name; None for one that is not there.
    streams: Mapping[str, StreamEvidence | None]
    markers: Sequence[MarkerEvidence]
    snapshots: Sequence[SnapshotEvidence]
    #: By group: the highest epoch that was given out.
    epochs: Mapping[str, int]
    #: By stream and name: the producers of the plan, in every revision that may run.
    producers: Mapping[tuple[str, str], Producer]
    #: By group and stream: what its readers have taken, the least of them; of groups that run.
    read: Mapping[tuple[str, str], int]
    #: ``channels.replicas``.
    replicas: int = 1


#: Of each kind of finding: its weight, and the remedy.
KINDS: Final[Mapping[str, tuple[Severity, str]]] = {
    "stream-missing": (
        Severity.FAULT,
        "restore a backup ('mesh backups {app}'), or undeploy and deploy the app",
    ),
    "subject-missing": (Severity.FAULT, "give the stream its subjects again: 'nats stream edit'"),
    "atomic-off": (Severity.FAULT, "switch atomic batches on: 'nats stream edit'"),
    "rollup-allowed": (Severity.RISK, "restart a manager, which forbids them"),
    "in-memory": (Severity.RISK, "undeploy and deploy the app: its channels are on the disk"),
    "retention-short": (Severity.RISK, "raise channels.max_age_s, or 'nats stream edit --max-age'"),
    "retention-near": (Severity.RISK, "'mesh scale {app} GROUP N', or a longer --max-age"),
    "size-near": (Severity.RISK, "'mesh scale {app} GROUP N', or a larger --max-bytes"),
    "copies-few": (Severity.RISK, "'nats stream edit --replicas'"),
    "copy-away": (Severity.RISK, "start that server"),
    "copy-behind": (Severity.RISK, "look at the disk and the network of its server"),
    "messages-expired": (Severity.FAULT, "a longer retention, or more instances"),
    "messages-deleted": (Severity.FAULT, "publish them again"),
    "marker-unknown": (Severity.FAULT, "see who may publish to mesh._marker: 'mesh nats-config'"),
    "marker-ahead": (Severity.FAULT, "restore a backup: 'mesh backups {app}'"),
    "marker-beyond-input": (Severity.FAULT, "restore a backup: 'mesh backups {app}'"),
    "state-incomplete": (
        Severity.FAULT,
        "is state.store the same for all? otherwise restore a backup",
    ),
    "state-unreadable": (Severity.FAULT, "restore a backup: 'mesh backups {app}'"),
    "state-ahead": (Severity.FAULT, "restore a backup: 'mesh backups {app}'"),
    "input-lost": (Severity.FAULT, "restore a backup: 'mesh backups {app}'"),
    "state-lost": (Severity.FAULT, "restore a backup: 'mesh backups {app}'"),
}

#: Kind, place, text.
_Findings = Iterator[tuple[str, str, str]]


def findings(evidence: Evidence) -> list[Finding]:
    """All faults and risks of an app, faults first."""
    app = evidence.record.spec.name
    results = []
    for finder in (_of_streams, _of_readers, _of_markers, _of_snapshots):
        for kind, where, text in finder(evidence):
            severity, remedy = KINDS[kind]
            results.append(Finding(severity, kind, app, where, text, remedy.format(app=app)))
    return sorted(results, key=lambda one: (one.severity, one.kind, one.where))


def app_streams(spec: AppSpec) -> Mapping[str, tuple[str, bool]]:
    """By JetStream stream of the app: the subject of its events, and whether groups write it."""
    written = {c.id for g in spec.groups for c in g.outputs}
    return {
        channel.js_stream(p): (channel.subject(p), channel.id in written)
        for channel in spec.channels
        if not channel.foreign
        for p in range(channel.partitions)
    }


def _of_streams(evidence: Evidence) -> _Findings:
    """Configuration and copies."""
    for name, (subject, is_written) in app_streams(evidence.record.spec).items():
        stream = evidence.streams.get(name)
        if stream is None:
            yield "stream-missing", name, "the stream is not there, nor are its events"
            continue
        if subject not in stream.subjects:
            yield "subject-missing", name, f"it does not store {subject}: events are lost"
        if is_written and not stream.allows_atomic:
            yield "atomic-off", name, "it takes no atomic batches, so its writers fail"
        if stream.allows_rollups:
            yield "rollup-allowed", name, "any publisher can delete its events by a header"
        if not stream.is_on_disk:
            yield "in-memory", name, "a restart of NATS loses its events"
        if 0 < stream.max_age_s < RETENTION_MIN_S:
            limit = f"{stream.max_age_s:.0f} s"
            yield "retention-short", name, f"an app that fails for {limit} loses events"
        if stream.replicas < evidence.replicas:
            setting = f"channels.replicas says {evidence.replicas}"
            yield "copies-few", name, f"it has {stream.replicas} copies, {setting}"
        if stream.away:
            yield "copy-away", name, f"copies on {', '.join(stream.away)} are away"
        elif stream.lag > LAG_MAX:
            yield "copy-behind", name, f"a copy is {stream.lag:,} operations behind"


def _of_readers(evidence: Evidence) -> _Findings:
    """Messages that readers have not read, and those that were deleted before they did."""
    written = {
        name for name, (_, is_written) in app_streams(evidence.record.spec).items() if is_written
    }
    for (group, name), taken in evidence.read.items():
        stream = evidence.streams.get(name)
        if stream is None:
            continue
        if stream.first > taken + 1:
            gone = f"messages {taken + 1:,} to {stream.first - 1:,}"
            yield "messages-expired", name, f"{gone} went before group {group} had them"
        # In a stream that groups write, markers that were replaced are deleted.
        unread = [one for one in stream.deleted if one > taken] if name not in written else []
        if unread:
            some = ", ".join(f"{one:,}" for one in unread[:_NAMED])
            more = " and others" if len(unread) > _NAMED else ""
            text = f"messages {some}{more} were deleted before group {group} had them"
            yield "messages-deleted", name, text
        if stream.first <= taken + 1 <= stream.last:
            yield from _of_unread(stream, group, taken)


def _of_unread(stream: StreamEvidence, group: str, taken: int) -> _Findings:
    """Unread messages that the stream's bounds delete next."""
    age_s, most_s = stream.first_age_s, stream.max_age_s
    if stream.first == taken + 1 and most_s and age_s > RETENTION_USED * most_s:
        text = f"messages of {age_s:.0f} s ago wait for group {group}, and go after {most_s:.0f} s"
        yield "retention-near", stream.name, text
    unread = stream.bytes * (stream.last - taken) / max(1, stream.messages)
    if stream.max_bytes and unread > BYTES_USED * stream.max_bytes:
        text = f"messages that wait for group {group} fill its {stream.max_bytes:,} bytes"
        yield "size-near", stream.name, text


def _of_markers(evidence: Evidence) -> _Findings:
    """Positions of writers, beside the plan and their input."""
    for marker in evidence.markers:
        producer = evidence.producers.get((marker.js_stream, marker.producer))
        where = f"{marker.js_stream} {marker.producer}"
        if producer is None:
            if not _is_of_former(marker.producer, evidence):
                yield "marker-unknown", where, "no writer of the app has this name"
            continue
        newest = evidence.epochs.get(producer.group, 0)
        if marker.epoch > newest:
            yield "marker-ahead", where, _unknown_epoch(marker.epoch, newest)
        inputs = map(evidence.streams.get, producer.inputs)
        last = max((stream.last for stream in inputs if stream is not None), default=None)
        if last is not None and marker.position > last:
            done = f"message {marker.position:,} is said to be done, and the input ends at {last:,}"
            yield "marker-beyond-input", where, f"{done}: events up to there will be skipped"


def _unknown_epoch(epoch: int, newest: int) -> str:
    return (
        f"epoch {epoch} was never given out, the highest is {newest}: the bucket mesh_control was "
        "restored from a copy, or this was forged"
    )


def _is_of_former(producer: str, evidence: Evidence) -> bool:
    """Whether a writer outside of the plan may be one of a source, or of an earlier text."""
    record = evidence.record
    sources = [f"{record.incarnation}-{g.name}-" for g in record.spec.groups if g.connectors]
    return bool(record.edits or record.scaled) or producer.startswith(tuple(sources))


def _of_snapshots(evidence: Evidence) -> _Findings:
    """States, beside the streams and the writers' positions."""
    stored = {(one.group, one.part) for one in evidence.snapshots}
    for one in evidence.snapshots:
        where = f"{one.group}.{one.part}"
        if one.unreadable:
            yield "state-unreadable", where, f"its manifest can't be read: {one.unreadable}"
            continue
        if one.missing:
            text = f"the store has no {one.missing[0]}: the instance cannot start elsewhere"
            yield "state-incomplete", where, text
        newest = evidence.epochs.get(one.group, 0)
        if one.epoch > newest:
            yield "state-ahead", where, _unknown_epoch(one.epoch, newest)
        for name, sequence in one.positions.items():
            stream = evidence.streams.get(name)
            if stream is not None and sequence > stream.last:
                text = f"it includes message {sequence:,} of {name}, which ends at {stream.last:,}"
                yield "input-lost", where, text
    for group in evidence.record.spec.groups:
        if group.stateful:
            yield from _without_state(group, stored, evidence)


def _without_state(group: GroupSpec, stored: set[tuple[str, str]], evidence: Evidence) -> _Findings:
    """Parts with output and without a snapshot, whose input of that time is gone."""
    rows: dict[str, int] = {}
    for marker in evidence.markers:
        producer = evidence.producers.get((marker.js_stream, marker.producer))
        if producer is not None and producer.group == group.name and marker.position >= 0:
            part = marker.producer.rpartition("-")[2]
            rows[part] = max(rows.get(part, 0), marker.position + 1)
    for part, count in rows.items():
        if (group.name, part) in stored:
            continue
        names = (i.channel.js_stream(int(part) if i.channel.is_keyed else 0) for i in group.inputs)
        streams = (evidence.streams.get(name) for name in names)
        cut = next((one for one in streams if one is not None and one.first > 1), None)
        if cut is not None:
            text = f"it has emitted {count:,} rows, has no snapshot, and {cut.name} begins at "
            yield "state-lost", f"{group.name}.{part}", f"{text}{cut.first:,}"


#: A new retention, as a multiple of the age of the oldest message that is needed.
_TIMES: Final = 2.0


@dataclass(frozen=True, slots=True)
class Retention:
    """A change of a stream's retention."""

    js_stream: str
    max_age_s: float
    #: The group that has not processed the oldest message; empty for the end of an extension.
    group: str = ""


def retentions(evidence: Evidence, ages_s: Mapping[str, float]) -> list[Retention]:
    """The streams of an app whose retention is to change.

    Args:
        evidence: about the app.
        ages_s: by stream that was extended: the age of the first message that a group needs, 0 if
            none waits.
    """
    if not evidence.record.spec.creates_channels:
        return []
    return [retention for one in _read_streams(evidence) for retention in _change(*one, ages_s)]


def needed(evidence: Evidence) -> dict[str, int]:
    """By stream that was extended: the first sequence that a group needs."""
    return {
        stream.name: taken + 1
        for stream, _, taken in _read_streams(evidence)
        if stream.max_age_before_s
    }


def _read_streams(evidence: Evidence) -> Iterator[tuple[StreamEvidence, str, int]]:
    """Streams of the app with a reader: the group that is last, and the last it has processed."""
    taken: dict[str, tuple[int, str]] = {}
    for (group, name), sequence in (_by_markers(evidence) | dict(evidence.read)).items():
        taken[name] = min((sequence, group), taken.get(name, (sequence, group)))
    for name in app_streams(evidence.record.spec):
        stream = evidence.streams.get(name)
        if stream is not None and name in taken:
            sequence, group = taken[name]
            yield stream, group, sequence


def _by_markers(evidence: Evidence) -> dict[tuple[str, str], int]:
    """By group without state and input: the least position of its output.

    Reports of groups that run are better: a group may emit nothing for what it has processed.
    """
    positions: dict[tuple[str, str], int] = {}
    for marker in evidence.markers:
        producer = evidence.producers.get((marker.js_stream, marker.producer))
        if producer is None:
            continue
        for name in producer.inputs:
            place = producer.group, name
            positions[place] = min(marker.position, positions.get(place, marker.position))
    return positions


def _change(
    stream: StreamEvidence, group: str, taken: int, ages_s: Mapping[str, float]
) -> Iterator[Retention]:
    most_s, age_s = stream.max_age_s, stream.first_age_s
    is_needed = stream.messages > 0 and taken < stream.first
    if is_needed and most_s and age_s > RETENTION_USED * most_s:
        yield Retention(stream.name, round(_TIMES * age_s), group)
        return
    # A message that is still old needs the extension until it is processed.
    is_young = ages_s.get(stream.name, 0.0) < RETENTION_USED * stream.max_age_before_s
    if stream.max_age_before_s and is_young and not is_needed:
        yield Retention(stream.name, stream.max_age_before_s)
