"""Delivery of an app: exactly once between its channels, and what each source and sink gives.

``@App:guarantee('exactly-once')`` refuses an app that has a weaker border.

Audit of guarantees: per channel, source, sink and state, the delivery through each failure.

    plan ─────────────────┐
    streams, as they are  ├─▶ audit(spec, facts) ─▶ rows: place, failure, what holds, why, remedy
    settings of the mesh ─┘

A row is what NATS' configuration allows, not what has happened: that is ``mesh verify``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from mesh.connect import registry
from mesh.connect.spec import Guarantee, Role
from mesh.errors import MeshError
from mesh.language.parser import parse_app
from mesh.language.syntax import find

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from mesh.language.syntax import Annotation, App
    from mesh.model.app import AppSpec, Channel, GroupSpec
    from mesh.plan.receivers import ConnectorGroup


_ANNOTATION: Final = "App:guarantee"
#: From the strongest to the weakest.
_BY_WORD: Final = {
    guarantee.value.partition(",")[0].replace(" ", "-"): guarantee
    for guarantee in (Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE)
}
_STRONGEST_FIRST: Final = tuple(Guarantee)


def check_guarantee(tree: App, connectors: Iterable[ConnectorGroup]) -> None:
    """Refuse sources and sinks that give less than the app demands.

    Raises:
        MeshError: MESH-P234 for a word that is no guarantee, MESH-P235 for a weaker border.
    """
    annotation = find(tree.annotations, _ANNOTATION)
    if annotation is None:
        return
    demanded = _demanded_by(annotation)
    if demanded is None:
        raise MeshError(
            "MESH-P234",
            f'@{annotation.name} is no guarantee: "{_word(annotation)}"',
            hint=f"Write one of {', '.join(_BY_WORD)}.",
            position=annotation.position,
        )
    for connector in connectors:
        guarantee = guarantee_of(connector.kind)
        if guarantee is None or _STRONGEST_FIRST.index(guarantee) >= _STRONGEST_FIRST.index(
            demanded
        ):
            continue
        role = "source" if connector.is_source else "sink"
        others = [
            name
            for name, spec in registry.of_role(Role(role)).items()
            if _STRONGEST_FIRST.index(spec.guarantee) >= _STRONGEST_FIRST.index(demanded)
        ]
        raise MeshError(
            "MESH-P235",
            f'{connector.kind} of stream "{connector.stream}" gives {guarantee.value}, '
            f"and the app demands {demanded.value}",
            hint=f"Types of a {role} that give it: {', '.join(sorted(others))}; or leave out "
            f"@{annotation.name}.",
            position=connector.annotation.position,
        )


def demanded_guarantee(text: str) -> Guarantee | None:
    """The guarantee that the text of an app demands; None for one without the annotation."""
    annotation = find(parse_app(text).annotations, _ANNOTATION)
    return None if annotation is None else _demanded_by(annotation)


def _word(annotation: Annotation) -> str:
    return (annotation.get() or "").strip().lower()


def _demanded_by(annotation: Annotation) -> Guarantee | None:
    return _BY_WORD.get(_word(annotation))


def guarantee_of(connector: str) -> Guarantee | None:
    """The guarantee of ``source http`` and the like; None for one that is not installed."""
    role, _, name = connector.partition(" ")
    spec = registry.find(Role(role), name)
    return spec.guarantee if spec is not None else None


def describe_delivery(spec: AppSpec) -> str:
    """One line: the delivery between channels, and the weakest borders."""
    borders: list[tuple[Guarantee, str]] = [
        (guarantee, group.name)
        for group in spec.groups
        for connector in group.connectors
        if (guarantee := guarantee_of(connector)) is not None
    ]
    inside = "exactly once between channels"
    weakest = min((guarantee for guarantee, _ in borders), key=_STRONGEST_FIRST.index, default=None)
    if weakest is None or weakest is Guarantee.EXACTLY_ONCE:
        return f"{inside}{', sources and sinks' if borders else ''}"
    where = some([name for guarantee, name in borders if guarantee is weakest])
    return f"{inside}; {weakest.value} in {where}"


#: ``holds`` of a place that loses or doubles events.
NOTHING: Final = "nothing"
_ORDER: Final = (NOTHING, *(one.value for one in Guarantee))
_EXACTLY: Final = Guarantee.EXACTLY_ONCE.value
_COPIES: Final = (
    "channels.replicas: 3 before the first start, or 'nats stream edit --replicas 3' for each "
    "stream and bucket"
)
_ON_DISK: Final = "a stream with storage file in its place, as mesh makes them"


class Failure(StrEnum):
    """A failure; the values are the headings of the table."""

    PROCESS = "a process killed"
    SERVER = "a server lost for good"
    POWER = "power lost on a server"
    POWERS = "power lost on a majority"
    READER = "a reader away past retention"


class AuditPlace(StrEnum):
    """Kind of a place that has guarantees."""

    CHANNEL = "channel"
    STATE = "state"
    SOURCE = "source"
    SINK = "sink"


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """The configuration of a JetStream stream, as it is or as mesh would make it."""

    name: str
    replicas: int = 1
    is_on_disk: bool = True
    allows_atomic: bool = True
    #: False with ``no_ack``: publishers hear nothing.
    acknowledges: bool = True
    #: ``limits``, ``interest`` or ``workqueue``.
    retention: str = "limits"
    #: 0 for no limit.
    max_age_s: float = 0.0
    max_bytes: int = 0
    max_messages: int = 0
    #: Whether a full stream refuses messages, and keeps the oldest.
    refuses_new: bool = False
    #: Time for which the server knows the ids of messages, seconds.
    window_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of a cluster that an audit needs."""

    #: JetStream streams of channels by name.
    streams: Mapping[str, StreamFacts]
    #: Streams of the buckets of records and snapshots.
    buckets: Sequence[StreamFacts] = ()
    #: ``channels.replicas``.
    replicas: int = 1
    #: ``channels.keep_unread``.
    keeps_unread: bool = True
    #: ``sync_interval`` of the servers, 0 for ``always``; None if the operator has not stated it.
    sync_s: float | None = None
    #: Time in which instances of a killed process run elsewhere, at most, seconds.
    failover_s: float = 60.0
    #: ``state.store``, if it is not JetStream.
    store: str = ""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """The guarantee of one place through one failure."""

    place: AuditPlace
    name: str
    failure: Failure
    #: The words of ``Guarantee``, or ``NOTHING``.
    holds: str
    reason: str
    #: Empty if there is nothing to change.
    remedy: str = ""


#: ``holds``, ``reason`` and ``remedy`` of a row.
_Outcome = tuple[str, str, str]


def audit(spec: AppSpec, facts: Facts) -> list[AuditRow]:
    """The rows of an app: channels, states, then sources and sinks."""
    written = {channel.id for group in spec.groups for channel in group.outputs}
    read = {i.channel.id: i.channel for group in spec.groups for i in group.inputs}
    channels = {channel.id: channel for channel in spec.channels} | read
    rows = []
    outcomes: dict[tuple[tuple[str, str], Failure], _Outcome] = {}
    for id_, channel in channels.items():
        for failure in Failure:
            outcome = _weakest(
                _of_stream(stream, failure, facts, id_ in written, _keeps(spec, channel, facts))
                for name in channel.js_streams
                if (stream := facts.streams.get(name)) is not None
            )
            outcomes[id_, failure] = outcome
            rows.append(AuditRow(AuditPlace.CHANNEL, channel.js_stream(), failure, *outcome))
    if any(group.stateful for group in spec.groups):
        rows += _of_states(facts)
    for group in spec.groups:
        rows += _of_borders(group, outcomes, facts)
    return rows


def refusal(
    app: str, rows: Sequence[AuditRow], demanded: Guarantee | None, replicas: int
) -> MeshError | None:
    """The error of an app whose channels or states give less than it demands.

    Only killed processes count, and with three replicas the loss of a server.  Weak sources and
    sinks are refused by the planner.
    """
    if demanded is None:
        return None
    counted = (Failure.PROCESS, Failure.SERVER) if replicas >= 3 else (Failure.PROCESS,)
    weak = [
        row
        for row in rows
        if row.place in (AuditPlace.CHANNEL, AuditPlace.STATE)
        and row.failure in counted
        and _rank(row.holds) < _rank(demanded.value)
    ]
    if not weak:
        return None
    first = weak[0]
    others = [row.name for row in weak if row.reason != first.reason]
    more = f"  Others: {some(others)}." if others else ""
    return MeshError(
        "MESH-C125",
        f'app "{app}" demands {demanded.value}, and {first.place} {first.name} gives '
        f"{first.holds} through {first.failure}",
        detail=f"The reason: {first.reason}.{more}",
        hint=f"Change that: {first.remedy}; or leave out @App:guarantee.",
    )


def summary(rows: Sequence[AuditRow], *, is_short: bool = False) -> list[str]:
    """A line of what holds, then one for each thing that does not.

    Args:
        rows: of ``audit``.
        is_short: without the names of what all have in common, and without remedies.
    """
    inside = [row for row in rows if row.place in (AuditPlace.CHANNEL, AuditPlace.STATE)]
    weak = [row for row in inside if _rank(row.holds) < _rank(_EXACTLY)]
    broken = {row.failure for row in weak}
    held = [failure for failure in Failure if failure not in broken]
    through = f"through {', '.join(held)}" if held else "through no failure"
    lines = [f"{_EXACTLY} between channels {through}"]
    causes: dict[tuple[str, str], list[AuditRow]] = {}
    for row in weak:
        causes.setdefault((row.reason, row.remedy), []).append(row)
    for (reason, remedy), ones in causes.items():
        failures = ", ".join(dict.fromkeys(row.failure.value for row in ones))
        named = dict.fromkeys(row.name for row in ones)
        is_common = is_short and len(named) == len({row.name for row in inside})
        names = "" if is_common else f" ({some([*named])})"
        change = f"; to change it: {remedy}" if remedy and not is_short else ""
        lines.append(f"not through {failures}: {reason}{names}{change}")
    for row in rows:
        is_border = (
            row.place in (AuditPlace.SOURCE, AuditPlace.SINK) and row.failure is Failure.PROCESS
        )
        if is_border and _rank(NOTHING) < _rank(row.holds) < _rank(_EXACTLY):
            lines.append(f"{row.holds} in {row.place} {row.name}: {row.reason}")
    return lines


def some(names: Sequence[str]) -> str:
    """The first names, and the number of the others."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _rank(holds: str) -> int:
    return _ORDER.index(holds)


def _weakest(outcomes: Iterator[_Outcome]) -> _Outcome:
    unknown: _Outcome = (NOTHING, "its stream is not there", _ON_DISK)
    return min(outcomes, key=lambda one: _rank(one[0]), default=unknown)


def _keeps(spec: AppSpec, channel: Channel, facts: Facts) -> bool:
    """Whether managers extend the retention of a channel for its readers."""
    return facts.keeps_unread and spec.creates_channels and not channel.foreign


def _of_stream(
    stream: StreamFacts, failure: Failure, facts: Facts, is_written: bool, keeps: bool
) -> _Outcome:
    defect = _defect(stream, facts, is_written)
    if defect is not None:
        return defect
    match failure:
        case Failure.READER:
            return _of_reader(stream, keeps)
        case Failure.SERVER if stream.replicas < 2:
            return NOTHING, "its events are on one server only", _COPIES
        case Failure.SERVER if stream.replicas == 2:
            return _EXACTLY, "the other copy has them; NATS waits until a server replaces it", ""
        case Failure.PROCESS if stream.is_on_disk:
            return _EXACTLY, "acknowledged events are with the kernel, positions beside them", ""
        case Failure.PROCESS | Failure.POWER | Failure.SERVER if stream.replicas > 1:
            return _EXACTLY, f"another of the {stream.replicas} copies has the events", ""
        case _ if not stream.is_on_disk:
            return NOTHING, "its events are in memory", _ON_DISK
        case _:
            return _of_power(facts)


def _defect(stream: StreamFacts, facts: Facts, is_written: bool) -> _Outcome | None:
    """The setting with which a stream has no guarantee, whatever fails."""
    edit = f"'nats stream edit {stream.name}'"
    if is_written and not stream.allows_atomic:
        reason = "it takes no atomic batches, so positions are not stored with the events"
        return NOTHING, reason, f"allow_atomic by {edit}"
    if not stream.acknowledges:
        return Guarantee.AT_MOST_ONCE.value, "it acknowledges nothing", f"--ack by {edit}"
    if stream.retention != "limits":
        reason = f"retention {stream.retention} deletes events before mesh has read them"
        return NOTHING, reason, f"a stream with retention limits in the place of {stream.name}"
    if 0 < stream.max_age_s < facts.failover_s:
        reason = (
            f"events go after {stream.max_age_s:g} s, and a failover may take "
            f"{facts.failover_s:g} s"
        )
        return NOTHING, reason, f"channels.max_age_s for new streams, or --max-age by {edit}"
    return None


def _of_reader(stream: StreamFacts, keeps: bool) -> _Outcome:
    if (stream.max_bytes or stream.max_messages) and not stream.refuses_new:
        unit = f"{stream.max_bytes:,} bytes" if stream.max_bytes else f"{stream.max_messages:,}"
        limit = "channels.max_bytes: rate times the longest outage, or --max-bytes"
        return NOTHING, f"the oldest events go when there are more than {unit}", limit
    if not stream.max_age_s:
        return _EXACTLY, "no event goes by its age", ""
    if keeps:
        return _EXACTLY, "managers keep events until the app's groups have processed them", ""
    return (
        NOTHING,
        f"events go after {stream.max_age_s:,.0f} s, read or not; the reader reports DATA-LOSS",
        "channels.keep_unread: true for channels of mesh, or a longer --max-age",
    )


def _of_power(facts: Facts) -> _Outcome:
    """Copies on disks of servers without power at once, or a single one."""
    remedy = "sync_interval: always in the servers' jetstream block; channels.sync_interval_s: 0"
    if facts.sync_s is None:
        reason = (
            "writes of up to 120 s may be lost: channels.sync_interval_s does not state the "
            "servers' sync_interval, and its default is 2 minutes"
        )
        return NOTHING, reason, remedy
    if facts.sync_s > 0:
        return NOTHING, f"writes of the last {facts.sync_s:g} s may be lost", remedy
    return _EXACTLY, "servers sync each write to the disk, as channels.sync_interval_s states", ""


def _of_states(facts: Facts) -> Iterator[AuditRow]:
    """The records and snapshots that an instance starts from."""
    for failure in Failure:
        if failure is Failure.READER:
            continue
        outcome = _weakest(
            _of_stream(bucket, failure, facts, is_written=False, keeps=True)
            for bucket in facts.buckets
        )
        if facts.store and outcome[0] == _EXACTLY:
            outcome = _EXACTLY, f"{outcome[1]}; if {facts.store} outlasts it as well", ""
        yield AuditRow(AuditPlace.STATE, "snapshots and records", failure, *outcome)


def _of_borders(
    group: GroupSpec, outcomes: Mapping[tuple[tuple[str, str], Failure], _Outcome], facts: Facts
) -> Iterator[AuditRow]:
    """Sources and sinks: the connector's guarantee, or the weaker one of a channel beside it."""
    for connector in group.connectors:
        role, _, type_ = connector.partition(" ")
        declared = registry.find(Role(role), type_)
        if declared is None:
            continue
        place = AuditPlace(role)
        beside = group.outputs if place is AuditPlace.SOURCE else [i.channel for i in group.inputs]
        reason = declared.condition.rstrip(".") or f"as {connector} gives it"
        if place is AuditPlace.SOURCE and declared.guarantee is Guarantee.AT_LEAST_ONCE_WITH_KEY:
            reason += f" ({_window(beside, facts):g} s)"
        for failure in Failure:
            # A source that is away reads later what its origin keeps.
            if place is AuditPlace.SOURCE and failure is Failure.READER:
                continue
            outcome: _Outcome = (declared.guarantee.value, reason, "")
            weaker = [outcomes[one.id, failure] for one in beside if (one.id, failure) in outcomes]
            yield AuditRow(
                place, f"{group.name} ({type_})", failure, *_weakest(iter((outcome, *weaker)))
            )


def _window(channels: Collection[Channel], facts: Facts) -> float:
    """The shortest duplicate window of channels."""
    streams = (facts.streams.get(name) for channel in channels for name in channel.js_streams)
    return min((one.window_s for one in streams if one is not None), default=0.0)
