"""Placement of user-defined sources and sinks in groups.

A source that one group of one instance reads runs in that group, and its events never touch a
channel; unless it is a JetStream stream and other groups write its stream too.  A source that
several groups read, or one of several instances, gets a receiver group, which forwards the events.
A sink runs where the events of its stream originate: in each group that writes it, and where its
source is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mesh.errors import not_supported
from mesh.model.app import Strategy
from mesh.plan.dist import RECEIVER_PREFIX, receiver_parallel
from mesh.plan.nats_source import foreign_channel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.language.syntax import Annotation
    from mesh.model.app import Channel
    from mesh.plan.bound import BoundApp
    from mesh.plan.groups import Group
    from mesh.plan.strategies import InputPartitioning


@dataclass(frozen=True, slots=True)
class Receiver:
    """A group to be added: it forwards the events of the sources of ``stream``."""

    stream: str
    parallel: int
    #: Its input if the source is a JetStream stream; a source of another kind has no input here.
    channel: Channel | None = None

    @property
    def name(self) -> str:
        """``receiver-{stream}``."""
        return f"{RECEIVER_PREFIX}{self.stream}"


@dataclass(frozen=True, slots=True)
class Connections:
    """Receivers, and the streams whose sources and sinks run in each group, by its name."""

    receivers: tuple[Receiver, ...] = ()
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sinks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: The foreign streams that groups of the app read themselves, by the groups' names.
    foreign: Mapping[str, tuple[Channel, ...]] = field(default_factory=dict)

    def receiver(self, stream: str) -> Receiver | None:
        """The receiver of ``stream``, if it has one."""
        return next((r for r in self.receivers if r.stream == stream), None)


def connect(
    bound: BoundApp, groups: Sequence[Group], shared: Mapping[str, Sequence[InputPartitioning]]
) -> Connections:
    """Assign the sources and sinks of ``bound`` to groups.

    Raises:
        MeshError: MESH-P900 for a sink of a stream without a writer that each of several instances
            reads as a whole; MESH-P203 or P205 for ``@dist`` in a source.
    """
    receivers: list[Receiver] = []
    sources: dict[str, list[str]] = {}
    sinks: dict[str, list[str]] = {}
    foreign: dict[str, list[Channel]] = {}
    uses = {group.name: group.uses for group in groups}
    for schema in bound.streams:
        stream = schema.name
        given = _called(bound, stream, "source")
        sink = _called(bound, stream, "sink")
        readers = [g for g in groups if stream in uses[g.name].reads]
        homes = [g.name for g in groups if stream in uses[g.name].writes]
        if given and (readers or sink):
            parallel = receiver_parallel(given)
            channel = foreign_channel(bound.name, schema, given[0])
            if len(readers) == 1 and not readers[0].is_shared and not (channel and homes):
                home = readers[0].name
                foreign.setdefault(home, []).extend([channel] if channel else [])
            else:
                receivers.append(Receiver(stream, parallel, channel))
                home = receivers[-1].name
            sources.setdefault(home, []).append(stream)
            homes.append(home)
        if sink and not homes and readers:
            homes.append(_reader_for(sink[0], stream, readers, shared))
        if sink:
            for home in dict.fromkeys(homes):
                sinks.setdefault(home, []).append(stream)
    return Connections(
        tuple(receivers),
        {name: tuple(streams) for name, streams in sources.items()},
        {name: tuple(streams) for name, streams in sinks.items()},
        {name: tuple(channels) for name, channels in foreign.items()},
    )


def _called(bound: BoundApp, stream: str, name: str) -> list[Annotation]:
    return [a for s, a in bound.stream_annotations if s == stream and a.name.lower() == name]


def _reader_for(
    sink: Annotation,
    stream: str,
    readers: Sequence[Group],
    shared: Mapping[str, Sequence[InputPartitioning]],
) -> str:
    """The reader that sees each event of a stream from outside once."""
    for group in sorted(readers, key=lambda group: group.is_shared):
        strategies = [s.strategy for s in shared[group.name] if s.stream == stream]
        if not group.is_shared or Strategy.ALL not in strategies:
            return group.name
    raise not_supported(
        f'@sink of stream "{stream}", which every instance of its readers reads as a whole',
        sink.position,
        hint="Insert its events into another stream, and give that one the sink.",
    )
