"""Channels: the streams that cross the wire, their division, and their readers and writers.

A stream is internal if one group writes it and no other group reads it; it never crosses the wire.
Every other stream that is read or written is a channel.  A stream that a group reads by key has
two: the plain one, to which anyone may publish, and the keyed one, which a partitioner group fills
from it.  Groups and receivers whose events are read by key alone fill the keyed one themselves; a
stream that only they use has no plain one then.

A trigger that is read is a stream that a group of its own writes.

Number of virtual partitions of keyed channels.

Channels that one group reads by key have the same number, since an instance owns partition p of
each of them; and a channel has the same number for all readers.  So groups that are joined by
channels agree on one: ``@dist(partitions='n')`` of any of them, else the cluster's default.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError, not_supported
from mesh.model.app import Channel, Format, GroupInput, Strategy
from mesh.plan.dist import PARTITIONER_PREFIX, SINK_PREFIX, TRIGGER_PREFIX
from mesh.plan.loops import entrances_of
from mesh.plan.outside_objects import TEXTS
from mesh.plan.receivers import connect
from mesh.plan.strategies import input_partitioning

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from mesh.model.types import StreamSchema
    from mesh.plan.bound import BoundApp, BoundTrigger
    from mesh.plan.groups import Group
    from mesh.plan.receivers import Connections, ConnectorGroup, Receiver
    from mesh.plan.strategies import InputPartitioning, Key


#: Virtual partitions of a keyed channel.
PARTITIONS: Final = 8

#: A stream and its key.
_Channel = tuple[str, "frozenset[str] | str"]


@dataclass(frozen=True, slots=True)
class Partitioner:
    """A group to be added: it copies ``source`` to ``target``, each event to its partition."""

    source: Channel
    target: Channel

    @property
    def name(self) -> str:
        """``partition-{stream}-{key}``."""
        return f"{PARTITIONER_PREFIX}{self.source.stream.name}-{self.target.key_name}"


@dataclass(frozen=True, slots=True)
class ChannelLayout:
    """The channels of an app with their writers and readers."""

    channels: tuple[Channel, ...]
    partitioners: tuple[Partitioner, ...]
    #: Those that are read; ``trigger_group`` names the group of each.
    triggers: tuple[BoundTrigger, ...]
    connections: Connections
    #: By the names of groups, those that are added among them.
    inputs: dict[str, tuple[GroupInput, ...]]
    outputs: dict[str, tuple[Channel, ...]]


@dataclass(frozen=True, slots=True)
class _Ends:
    """Writers and readers of one stream, as far as it crosses the wire."""

    schema: StreamSchema
    writers: tuple[Group, ...]
    receiver: Receiver | None
    #: Ways in which groups that don't write it read it, with their names.
    outside: tuple[tuple[str, InputPartitioning], ...]

    #: Whether clients may publish to it: it is no inner matter of the app.
    is_open: bool
    #: Whether it has sources or sinks in the connector host, which use the plain channel.
    has_connectors: bool = False

    @property
    def is_filled_by_key(self) -> bool:
        """Whether groups and receivers that emit its events place them by key themselves.

        They do if all readers read by key.  A computed key needs the partitioner's text, and failed
        events originate inside a group.
        """
        return (
            not self.has_connectors
            and bool(self.writers or self.receiver)
            and bool(self.outside)
            and not self.schema.name.startswith("!")
            and all(share.key is not None for _, share in self.outside)
            and not (
                self.writers and any(s.key is not None and s.key.computed for _, s in self.outside)
            )
        )

    @property
    def has_plain(self) -> bool:
        """Whether it has a channel without a key."""
        return not self.is_filled_by_key or self.is_open


def layout_channels(
    bound: BoundApp,
    groups: Sequence[Group],
    partitions: int = PARTITIONS,
    defined: Collection[str] = (),
) -> ChannelLayout:
    """The channels between ``groups`` and to the world, in the order of the app's streams.

    Args:
        bound: the app.
        groups: the groups of the app.
        partitions: virtual partitions of a keyed channel without a number of its own.
        defined: the streams that the app defines, and does not only insert into: clients may
            publish to them.

    Raises:
        MeshError: MESH-P900 if a group writes a stream and would have to read it from its channel;
            MESH-P213 and P222 if instances and partitions don't fit; the errors of ``shares``.
    """
    assert partitions >= 1
    shared = {group.name: input_partitioning(group) for group in groups}
    counts = partition_counts(groups, shared, partitions)
    connections = connect(bound, groups)
    streams = _ends(bound, groups, shared, connections, defined)
    mapped = frozenset(name for name, one in bound.stream_annotations if one.name == TEXTS)
    layout = _Channels(mapped)
    for ends in streams:
        layout.add(bound.name, ends, counts)
    triggers = tuple(t for t in bound.triggers if t.schema.name in layout.plain)
    parallel = {g.name: g.parallel for g in groups}
    parallel |= {r.name: r.parallel for r in connections.receivers}
    reads = _reads(streams, layout, groups, connections)
    return ChannelLayout(
        channels=tuple(layout.all),
        partitioners=tuple(layout.partitioners),
        triggers=triggers,
        connections=connections,
        inputs=_with_recorders(_as_read(reads, shared), parallel),
        outputs=_outputs(layout, groups, connections, triggers),
    )


@dataclass(slots=True)
class _Channels:
    """The channels of an app's streams, as they are laid out stream by stream."""

    #: Streams whose messages of clients are read by the mapper ``json``.
    mapped: frozenset[str] = frozenset()
    #: By stream: the plain one, followed by the keyed ones.
    all: list[Channel] = field(default_factory=list)
    plain: dict[str, Channel] = field(default_factory=dict)
    #: By stream and identity of the key.
    keyed: dict[tuple[str, object], Channel] = field(default_factory=dict)
    partitioners: list[Partitioner] = field(default_factory=list)
    #: By stream: the channels that the groups which emit its events write to, and these groups.
    filled: dict[str, list[Channel]] = field(default_factory=dict)
    writers: dict[str, list[str]] = field(default_factory=dict)

    def add(self, app: str, ends: _Ends, counts: Mapping[str, int]) -> None:
        """Lay out the channels of one stream; ``counts`` has the partitions of each reader."""
        name = ends.schema.name
        self.writers[name] = [group.name for group in ends.writers]
        keyed: dict[tuple[str, object], Channel] = {}
        for group, share in ends.outside:
            if share.key is not None:
                channel = _keyed_channel(app, ends.schema, share.key, counts[group])
                keyed.setdefault((name, share.key.identity), channel)
        self.keyed |= keyed
        if ends.has_plain:
            is_fault = name.startswith("!")
            is_written = (
                bool(ends.writers or ends.receiver or is_fault) and not ends.is_filled_by_key
            )
            form = Format.ARROW if ends.outside and is_written else Format.JSON
            self.plain[name] = Channel(
                app, ends.schema, format=form, is_mapped=ends.schema.name in self.mapped
            )
            self.all.append(self.plain[name])
        by_key = list(keyed.values())
        self.all += by_key
        if ends.is_filled_by_key:
            self.filled[name] = by_key
        elif ends.receiver is not None and not ends.writers:
            self.filled[name] = [self.plain[name], *by_key]
        else:
            self.filled[name] = [self.plain[name]]
        if name in self.plain and self.filled[name] != [self.plain[name], *by_key]:
            self.partitioners += (Partitioner(self.plain[name], channel) for channel in by_key)


def _reads(
    streams: Sequence[_Ends],
    layout: _Channels,
    groups: Sequence[Group],
    connections: Connections,
) -> dict[str, list[tuple[Channel, Strategy]]]:
    """The channels that each group reads, added ones too, and how its instances share them."""
    reads: dict[str, list[tuple[Channel, Strategy]]] = {group.name: [] for group in groups}
    for ends in streams:
        for group, share in ends.outside:
            name, key = share.stream, share.key
            channel = layout.plain[name] if key is None else layout.keyed[name, key.identity]
            reads[group].append((channel, share.strategy))
    # One instance keeps the order of events with one key.
    reads |= {p.name: [(p.source, Strategy.ALL)] for p in layout.partitioners}
    for name, channels in connections.foreign.items():
        reads[name] += [(channel, Strategy.ALL) for channel in channels]
    for r in connections.receivers:
        how = Strategy.ROUND_ROBIN if r.parallel > 1 else Strategy.ALL
        reads[r.name] = [(r.channel, how)] if r.channel is not None else []
    for connector in connections.connectors:
        reads[connector.name] = (
            [] if connector.is_source else [(layout.plain[connector.stream], Strategy.ALL)]
        )
    return reads


def _outputs(
    layout: _Channels,
    groups: Sequence[Group],
    connections: Connections,
    triggers: Sequence[BoundTrigger],
) -> dict[str, tuple[Channel, ...]]:
    """The channels that each group writes, added ones too."""
    outputs = {r.name: tuple(layout.filled[r.stream]) for r in connections.receivers}
    for writer in groups:
        written = (
            layout.filled[s] for s in writer.uses.writes if writer.name in layout.writers.get(s, ())
        )
        outputs[writer.name] = tuple(channel for channels in written for channel in channels)
    outputs |= {p.name: (p.target,) for p in layout.partitioners}
    for connector in connections.connectors:
        written_to = (connector.stream if connector.is_source else "", connector.faults)
        outputs[connector.name] = tuple(layout.plain[stream] for stream in written_to if stream)
    return outputs | {trigger_group(t): (layout.plain[t.schema.name],) for t in triggers}


def trigger_group(trigger: BoundTrigger) -> str:
    """``trigger-{trigger}``: the name of the group that is added for a trigger."""
    return f"{TRIGGER_PREFIX}{trigger.schema.name}"


def _ends(
    bound: BoundApp,
    groups: Sequence[Group],
    shared: Mapping[str, Sequence[InputPartitioning]],
    connections: Connections,
    defined: Collection[str],
) -> list[_Ends]:
    """The streams that cross the wire, in the order of the app's streams."""
    uses = {group.name: group.uses for group in groups}
    loops = {group.name: group.loops for group in groups}
    ends = []
    for schema in bound.streams:
        entered = [g for g in groups if schema.name in entrances_of(loops[g.name], defined)]
        writers = [g for g in groups if schema.name in uses[g.name].writes and g not in entered]
        readers = [g for g in groups if schema.name in uses[g.name].reads]
        receiver = connections.receiver(schema.name)
        source_at = [g for g in groups if schema.name in connections.sources.get(g.name, ())]
        entrances = connections.connectors_of(schema.name, sources=True)
        exits = connections.connectors_of(schema.name, sources=False)
        failing = tuple(d for d in connections.connectors if d.faults == schema.name)
        has_connectors = bool(entrances or exits or failing)
        is_used = writers or readers or has_connectors
        is_result = any(schema.name in loop.results for g in writers for loop in loops[g.name])
        is_internal = not is_result and _is_internal(writers, readers, source_at)
        if (is_internal and not has_connectors) or not is_used:
            continue
        _refuse_sinks_of_entrance(schema.name, entered, exits)
        _refuse_shared_writing(schema.name, writers, readers, (*entrances, *failing))
        outside = tuple(
            (g.name, share)
            for g in readers
            if g not in writers
            for share in shared[g.name]
            if share.stream == schema.name
        )
        # Where the app has sources of its own, clients publish to those.
        is_open = receiver is None and (schema.name in defined or not (writers or failing))
        ends.append(_Ends(schema, tuple(writers), receiver, outside, is_open, has_connectors))
    return ends


def _keyed_channel(app: str, schema: StreamSchema, key: Key, partitions: int) -> Channel:
    label = key.label(schema)
    return Channel(
        app,
        schema,
        key.attributes,
        partitions,
        Format.ARROW,
        key.computed,
        label if label != "_".join(key.attributes) else "",
    )


def _as_read(
    reads: dict[str, list[tuple[Channel, Strategy]]],
    shared: Mapping[str, Sequence[InputPartitioning]],
) -> dict[str, list[tuple[Channel, Strategy]]]:
    """Inputs in the order in which the queries of each group mention them."""
    order = {name: [share.stream for share in shares] for name, shares in shared.items()}
    return {
        name: sorted(inputs, key=lambda i: order[name].index(i[0].stream.name))
        if name in order
        else inputs
        for name, inputs in reads.items()
    }


def _is_internal(
    writers: Sequence[Group], readers: Sequence[Group], source_at: Sequence[Group]
) -> bool:
    """Whether a single group writes the stream's events and reads them."""
    makers = {group.name for group in (*writers, *source_at)}
    return len(makers) == 1 and {group.name for group in readers} == makers


def _refuse_sinks_of_entrance(
    stream: str, entered: Sequence[Group], exits: Sequence[ConnectorGroup]
) -> None:
    """Refuse a sink that would miss the events which a loop inserts into its own input."""
    if entered and exits:
        raise not_supported(
            f'a sink of stream "{stream}", by which events enter a loop of group '
            f'"{entered[0].name}"',
            exits[0].annotation.position,
            hint=f"Give the sink to another stream: from {stream} select * insert into Other;",
        )


def _refuse_shared_writing(
    stream: str,
    writers: Sequence[Group],
    readers: Sequence[Group],
    entrances: Sequence[ConnectorGroup],
) -> None:
    """Refuse a stream that a group writes and reads while another group writes it too."""
    both = [group for group in readers if group in writers]
    if not both or len(writers) + len(entrances) < 2:
        return
    group = both[0]
    others = [
        *(g.name for g in writers if g is not group),
        *(connector.name for connector in entrances),
    ]
    positions = (t.input.position for t, query in group.queries if stream in query.input_streams)
    raise not_supported(
        f'stream "{stream}" read in group "{group.name}" and written there and in "{others[0]}"',
        next(positions, group.elements[0].tree.position),
        hint="Put the query that reads it into a group of its own.",
    )


def _with_recorders(
    reads: dict[str, list[tuple[Channel, Strategy]]], parallel: dict[str, int]
) -> dict[str, tuple[GroupInput, ...]]:
    """Inputs of groups, with one reader of each channel that records events that can't be read.

    Preferably a reader that reads everything with one instance, because its view has no gaps.  The
    others see each event once as well, so the first of them is sufficient.
    """
    recorder: dict[tuple[str, str], str] = {}
    # A stable sort: groups keep their order within a rank.  A sink may wait for its destination.
    ranked = sorted(
        reads, key=lambda name: (name.startswith(SINK_PREFIX), parallel.get(name, 1) > 1)
    )
    for name in ranked:
        for channel, _ in reads[name]:
            recorder.setdefault(channel.id, name)
    return {
        name: tuple(
            GroupInput(channel, strategy, recorder[channel.id] == name)
            for channel, strategy in inputs
        )
        for name, inputs in reads.items()
    }


def partition_counts(
    groups: Sequence[Group], shared: Mapping[str, Sequence[InputPartitioning]], default: int
) -> dict[str, int]:
    """Number of partitions of the keyed channels of each group that reads by key, by its name.

    Raises:
        MeshError: MESH-P222 if two groups that share a channel have different numbers; MESH-P213 if
            a group has more instances than partitions.
    """
    keyed = {
        g.name: {(s.stream, s.key.identity) for s in shared[g.name] if s.key is not None}
        for g in groups
    }
    counts: dict[str, int] = {}
    for group in groups:
        if group.name in counts or not keyed[group.name]:
            continue
        together = _together(group, groups, keyed)
        count = _agreed(together, default)
        for one in together:
            _refuse_idle_instances(one, count)
            counts[one.name] = count
    return counts


def _together(
    first: Group, groups: Sequence[Group], keyed: Mapping[str, set[_Channel]]
) -> list[Group]:
    """``first`` and all groups that channels join to it, in their order."""
    names, channels = {first.name}, set(keyed[first.name])
    while True:
        members = {g.name for g in groups if keyed[g.name] & channels}
        if members <= names:
            return [g for g in groups if g.name in names]
        names |= members
        channels |= {channel for name in members for channel in keyed[name]}


def _agreed(groups: Sequence[Group], default: int) -> int:
    said = [(group, group.partitions) for group in groups if group.partitions is not None]
    for group, count in said:
        first, other = said[0]
        if count != other:
            raise MeshError(
                "MESH-P222",
                f'groups "{first.name}" and "{group.name}" share a keyed channel, and say two '
                "numbers of partitions",
                detail=f"They are {other} and {count}.",
                hint="Say the same, or say it for one of them.",
                position=group.elements[0].tree.position,
            )
    return said[0][1] if said else default


def _refuse_idle_instances(group: Group, count: int) -> None:
    if group.most > count:
        raise MeshError(
            "MESH-P213",
            f'group "{group.name}" has parallelism {group.most}, more than its partitions',
            detail=f"A keyed channel has {count} partitions, and each has one instance.",
            hint=f"Set {'parallel' if group.bounds is None else 'max'}='{count}' or less, or "
            f"@dist(partitions='{group.most}').",
            position=group.elements[0].tree.position,
        )
