"""A planned app: channels and groups, as they are stored, placed and run.

These records cross process borders as JSON (``mesh.model.codec``).  A group carries the SiddhiQL
text of its own part of the app rather than compiled operators: a person can read it, and a worker
of another version compiles it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from mesh.model import names
from mesh.model.types import StreamSchema


class Strategy(StrEnum):
    """A group's division of an input channel's events among its instances."""

    #: Every instance gets every event.
    ALL = "all"
    #: Each event goes to one instance, by blocks of sequence numbers.
    ROUND_ROBIN = "round-robin"
    #: Events with one key go to one instance, which owns the key's virtual partition.
    BY_KEY = "by-key"


class Format(StrEnum):
    """The format in which sinks write a channel; readers decide by ``Content-Type``."""

    #: One JSON object a message.
    JSON = "json"
    #: An Arrow IPC stream a message, many events.
    ARROW = "arrow"


class GroupKind(StrEnum):
    """Origin of a group: the text, or the planner."""

    QUERIES = "queries"
    #: Added by the planner in front of a keyed channel; copies events to their partition.
    PARTITIONER = "partitioner"
    #: Added by the planner for a user-given source.
    RECEIVER = "receiver"
    #: Added by the planner for a trigger; publishes an event at each of its times.
    TRIGGER = "trigger"
    #: Added by the planner for a sink; sends the events of a channel to the outside.
    SINK = "sink"


class GroupMode(StrEnum):
    """Kind of query in which a worker runs the instances of a group."""

    #: In the query that the worker's instances share, as messages come.
    REAL_TIME = "real-time"
    #: In a streaming query of its own, batch after batch.
    MICRO_BATCH = "micro-batch"


@dataclass(frozen=True, slots=True)
class Channel:
    """The wire of one stream: one JetStream stream, or one for each virtual partition."""

    app: str
    stream: StreamSchema
    #: Attributes whose values decide the partition; empty for an unkeyed channel.
    key: tuple[str, ...] = ()
    #: Virtual partitions; 1 for an unkeyed channel.
    partitions: int = 1
    format: Format = Format.JSON
    #: SiddhiQL of a computed key: an expression, or ranges with
    #: their labels.  ``key`` is empty then.
    computed: str = ""
    #: The key's name in subjects where it is not the names of ``key``, joined.
    label: str = ""
    #: The JetStream stream that a source of the app reads, which is not the mesh's; empty for a
    #: channel of its own.
    foreign: str = ""
    #: Of a foreign one: the subjects to read, with wildcards.
    reads: str = ""
    #: Whether its JSON is read by the mapper ``json``, as that of a foreign one may be.
    is_mapped: bool = False

    @property
    def is_keyed(self) -> bool:
        """Whether events are partitioned by a key."""
        return bool(self.key or self.computed)

    @property
    def key_name(self) -> str:
        """The key as part of a subject."""
        return self.label or "_".join(self.key)

    @property
    def key_text(self) -> str:
        """The key for people: its attributes, or what is computed; empty for an unkeyed channel."""
        return self.computed or ", ".join(self.key)

    @property
    def id(self) -> tuple[str, str]:
        """Identifier, unique among the channels of an app, those of its sources included."""
        return self.js_stream(), self.subject()

    def subject(self, partition: int = 0) -> str:
        """The subject of one partition; of a foreign stream the subjects that are read."""
        if self.foreign:
            return self.reads
        if not self.is_keyed:
            return names.subject(self.app, self.stream.name)
        return names.keyed_subject(self.app, self.stream.name, self.key_name, partition)

    def js_stream(self, partition: int = 0) -> str:
        """The JetStream stream of one partition."""
        if self.foreign:
            return self.foreign
        if not self.is_keyed:
            return names.js_stream(self.app, self.stream.name)
        return names.keyed_js_stream(self.app, self.stream.name, self.key_name, partition)

    @property
    def js_streams(self) -> tuple[str, ...]:
        """The JetStream streams of all partitions."""
        return tuple(map(self.js_stream, range(self.partitions)))


@dataclass(frozen=True, slots=True)
class GroupInput:
    """A channel that a group reads."""

    channel: Channel
    strategy: Strategy
    #: Whether this reader records the events that can't be read.  One reader of a channel does, so
    #: that an event is recorded once in the error stream however many groups read it.
    records_errors: bool = False


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """An execution group: the unit that is scaled, placed and moved."""

    app: str
    #: The execGroup's name; ``names.group_name`` and ``instance_name`` make the full ones.
    name: str
    #: Instances; at least 1.
    parallel: int
    #: SiddhiQL: the definitions and queries of this group, an app by itself.
    text: str
    inputs: tuple[GroupInput, ...]
    outputs: tuple[Channel, ...]
    #: Whether it keeps state between batches: then it has snapshots, and runs in the host.
    stateful: bool
    kind: GroupKind = GroupKind.QUERIES
    #: Streams whose user-given sources run in it; a group with any runs on receiver nodes.
    sources: tuple[str, ...] = ()
    #: Streams whose user-given sinks run in it.
    sinks: tuple[str, ...] = ()
    #: ``source http`` and the like: the connectors that it runs.  A group with any is one source
    #: or sink, and runs in a worker's connector host instead of Spark.
    connectors: tuple[str, ...] = ()
    #: ``host:port/path`` that its source binds; empty if it binds none, or any free port.
    address: str = ""
    #: Labels, ``key=value``, that a worker must have to run it.
    node: tuple[str, ...] = ()
    #: Standby workers of each instance, which hold its state ready: 0 or 1.
    standby: int = 0
    #: With ``spark.shared_query: false`` a worker runs all groups in micro-batches.
    mode: GroupMode = GroupMode.REAL_TIME
    #: The edit of the app at which its output positions began again; 0 for the first text.
    edit: int = 0
    #: Number of resets of its state.
    resets: int = 0
    #: By JetStream stream: the last sequence that it skips, since the events were stored before it
    #: began to read the stream.  Other streams are read from the beginning.
    starts: Mapping[str, int] = field(default_factory=dict, hash=False)
    #: JetStream streams of the mesh that are not its app's, and that the author of the text was
    #: allowed to read in it; None if it names none, and in records of earlier versions.
    reads: tuple[str, ...] | None = None

    @property
    def is_keyed(self) -> bool:
        """Whether it is divided by key, so that its virtual partitions have owners."""
        return any(one.strategy is Strategy.BY_KEY for one in self.inputs)

    @property
    def partition_count(self) -> int:
        """Number of its virtual partitions."""
        keyed = (i.channel for i in self.inputs if i.strategy is Strategy.BY_KEY)
        return max((channel.partitions for channel in keyed), default=1)

    def partitions_of(self, index: int) -> tuple[int, ...]:
        """The virtual partitions of instance ``index``, from 1; just 0 without a keyed input."""
        if not self.is_keyed:
            return (0,)
        return tuple(range(index - 1, self.partition_count, self.parallel))

    @property
    def instances(self) -> tuple[str, ...]:
        """The names of its instances, 1 to ``parallel``."""
        return tuple(
            names.instance_name(self.app, self.name, i) for i in range(1, self.parallel + 1)
        )


@dataclass(frozen=True, slots=True)
class ScaleBounds:
    """Numbers of a group's instances between which its load decides."""

    least: int
    most: int

    def nearest(self, parallel: int) -> int:
        """``parallel``, or the bound beyond which it is."""
        return min(self.most, max(self.least, parallel))

    def sizes(self, partitions: int) -> tuple[int, ...]:
        """The numbers that a group gains from, ascending.

        Of a group divided into partitions, those at which the busiest instance has fewer of them
        than with one instance less: 1, 2, 3, 4 and 8 of 8 partitions; the least is always one.

        Args:
            partitions: 0 for a group that is not divided by key.
        """
        if not partitions:
            return tuple(range(self.least, self.most + 1))
        return tuple(
            n
            for n in range(self.least, min(self.most, partitions) + 1)
            if n == self.least or -(-partitions // n) < -(-partitions // (n - 1))
        )

    def __str__(self) -> str:
        return f"{self.least} to {self.most}"


@dataclass(frozen=True, slots=True)
class AppSpec:
    """A deployed app: its text and its plan."""

    name: str
    text: str
    channels: tuple[Channel, ...]
    groups: tuple[GroupSpec, ...]
    #: False: the JetStream streams of its channels must be there already, and are left when it goes
    #: (``@App:transportChannelCreationEnabled('false')``).
    creates_channels: bool = True
    #: By execGroup name; a group without bounds keeps its number.
    bounds: Mapping[str, ScaleBounds] = field(default_factory=dict, hash=False)

    def group(self, name: str) -> GroupSpec | None:
        """The group with execGroup name ``name``."""
        return next((g for g in self.groups if g.name == name), None)

    @property
    def external_streams(self) -> tuple[str, ...]:
        """The JetStream streams that groups read and no group writes: input from outside."""
        filled = {c.id for g in self.groups for c in g.outputs}
        read = (i.channel for g in self.groups for i in g.inputs if i.channel.id not in filled)
        return tuple(dict.fromkeys(s for c in read for s in c.js_streams))

    def whole_channel(self, stream: str) -> Channel | None:
        """The channel that holds every event of ``stream``; None for one that is not on the wire.

        That is the channel without a key.  Where groups partition their output by key themselves
        there is none; then it is any keyed one, since events of clients are partitioned as well.
        """
        outputs = [
            channel
            for group in self.groups
            if group.kind is not GroupKind.PARTITIONER
            for channel in group.outputs
            if channel.stream.name == stream
        ]
        candidates = outputs or [c for c in self.channels if c.stream.name == stream]
        return next(
            (c for c in candidates if not c.is_keyed), candidates[0] if candidates else None
        )

    @property
    def computed_streams(self) -> set[str]:
        """The streams that its queries write to the wire."""
        queries = (g for g in self.groups if g.kind is GroupKind.QUERIES)
        return {c.stream.name for g in queries for c in g.outputs}

    @property
    def fingerprint(self) -> str:
        """Digest of the text: deploying an app with an equal digest changes nothing."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]
