"""Placement of user-defined sources and sinks in groups.

A source that is a JetStream stream and that one group of one instance reads runs in that group, and
its events never touch a channel; unless other groups write its stream too.  One that several groups
read, or one of several instances, gets a receiver group, which forwards the events.

Every other source and every sink is a group of its own, which a worker's connector host runs: a
source publishes to the plain channel of its stream, a sink reads that channel.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mesh.connect import registry
from mesh.connect.spec import Role
from mesh.errors import not_supported
from mesh.plan.connectors import connector_of
from mesh.plan.dist import RECEIVER_PREFIX, SINK_PREFIX, receiver_parallel
from mesh.plan.nats_source import foreign_channel

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from mesh.language.syntax import Annotation
    from mesh.model.app import Channel
    from mesh.plan.bound import BoundApp
    from mesh.plan.connectors import Connector
    from mesh.plan.dependencies import Uses
    from mesh.plan.groups import Group


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
class ConnectorGroup:
    """A group to be added: it runs one source or sink of ``stream`` in the connector host."""

    name: str
    stream: str
    annotation: Annotation
    #: ``source http`` and the like.
    kind: str
    parallel: int = 1
    #: Stream of its failed events, ``!S``; empty for none, then they go to the error stream.
    faults: str = ""

    @property
    def is_source(self) -> bool:
        """Whether it writes the channel of its stream; a sink reads it."""
        return self.kind.startswith(Role.SOURCE)


@dataclass(frozen=True, slots=True)
class Connections:
    """Receivers, and the streams whose sources run in each group, by its name."""

    receivers: tuple[Receiver, ...] = ()
    connectors: tuple[ConnectorGroup, ...] = ()
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: The foreign streams that groups of the app read themselves, by the groups' names.
    foreign: Mapping[str, tuple[Channel, ...]] = field(default_factory=dict)

    def receiver(self, stream: str) -> Receiver | None:
        """The receiver of ``stream``, if it has one."""
        return next((r for r in self.receivers if r.stream == stream), None)

    def connectors_of(self, stream: str, *, sources: bool) -> tuple[ConnectorGroup, ...]:
        """The groups of the sources, or of the sinks, of ``stream``."""
        return tuple(d for d in self.connectors if d.stream == stream and d.is_source is sources)


def connect(bound: BoundApp, groups: Sequence[Group]) -> Connections:
    """Assign the sources and sinks of ``bound`` to groups.

    Raises:
        MeshError: MESH-P203 or P205 for ``@dist`` in a source; MESH-P900 for several instances of a
            source that can't share its input.
    """
    receivers: list[Receiver] = []
    connectors: list[ConnectorGroup] = []
    sources: dict[str, list[str]] = {}
    foreign: dict[str, list[Channel]] = {}
    uses = {group.name: group.uses for group in groups}
    for schema in bound.streams:
        stream = schema.name
        annotations = [a for s, a in bound.stream_annotations if s == stream]
        declared = [a for a in annotations if a.name.lower() == "source"]
        # Beside other sources it is read in the connector host, as they are.
        native = [a for a in declared if len(declared) == 1 and connector_of(a).is_native]
        sinks = [a for a in annotations if a.name.lower() == "sink"]
        readers = [g for g in groups if stream in uses[g.name].reads]
        homes = [g.name for g in groups if stream in uses[g.name].writes]
        if native and (readers or sinks):
            parallel = receiver_parallel(native)
            channel = foreign_channel(bound.name, schema, native[0])
            is_read_once = len(readers) == 1 and not readers[0].is_shared
            # A group knows its inputs by their JetStream streams: another part of one that it
            # reads comes through a receiver.
            if channel is not None and is_read_once:
                others = foreign.get(readers[0].name, [])
                is_read_once = channel.foreign not in [one.foreign for one in others]
            if is_read_once and not sinks and not (channel and homes):
                home = readers[0].name
                foreign.setdefault(home, []).extend([channel] if channel else [])
            else:
                receivers.append(Receiver(stream, parallel, channel))
                home = receivers[-1].name
            sources.setdefault(home, []).append(stream)
        used = [a for a in declared if a not in native] if readers or sinks else []
        fault = _fault_stream(stream, uses.values())
        connectors += _connectors(stream, RECEIVER_PREFIX, used, fault)
        connectors += _connectors(stream, SINK_PREFIX, sinks, fault)
    return Connections(
        tuple(receivers),
        tuple(connectors),
        {name: tuple(streams) for name, streams in sources.items()},
        {name: tuple(channels) for name, channels in foreign.items()},
    )


def _fault_stream(stream: str, uses: Collection[Uses]) -> tuple[str, bool]:
    """Its fault stream, empty if nothing reads it; and whether its reader also writes it."""
    name = f"!{stream}"
    readers = [use for use in uses if name in use.reads]
    return name if readers else "", any(stream in use.reads for use in readers)


def _faults_of(connector: Connector, fault: tuple[str, bool]) -> str:
    """The fault stream that a source or sink writes; empty for none."""
    name, is_inner = fault
    options = {key.lower(): text.upper() for key, text in connector.options.items()}
    on_error = options.get("on.error", "")
    if on_error == "STREAM":
        return name
    # As in the reference engine, a refused event is one whatever the sink does while it waits.
    is_refusing = connector.role is Role.SINK and on_error != "STORE" and not is_inner
    return name if is_refusing else ""


def _connectors(
    stream: str, prefix: str, annotations: Sequence[Annotation], fault: tuple[str, bool]
) -> Iterator[ConnectorGroup]:
    """Groups ``sink-{stream}``, ``sink-{stream}-2`` and so on."""
    for number, annotation in enumerate(annotations, 1):
        connector = connector_of(annotation)
        parallel = receiver_parallel([annotation])
        spec = registry.find(connector.role, connector.type)
        if parallel > 1 and not (spec is not None and spec.is_shared):
            raise not_supported(
                f'several instances of {connector.role} "{connector.type}"',
                annotation.position,
                hint="Leave parallel out: one instance has one position.",
            )
        name = f"{prefix}{stream}" + (f"-{number}" if number > 1 else "")
        faults = _faults_of(connector, fault)
        yield ConnectorGroup(name, stream, annotation, connector.kind, parallel, faults)
