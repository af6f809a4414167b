"""Inputs and outputs of an instance, derived from its group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson
from pyspark.sql import types as spark_types
from pyspark.sql.types import StructField, StructType

from mesh.model import names
from mesh.model.app import GroupSpec, Strategy
from mesh.model.cluster import Assignment
from mesh.model.types import AttributeType
from pyspark_nats.decode import decode_messages
from pyspark_nats.decode.limits import EVENTS_CEILING, USUAL, MessageLimits
from pyspark_nats.source.ranges import Blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from mesh.model.app import Channel, GroupInput
    from mesh.model.types import StreamSchema
    from pyspark_nats.decode.result import DecodeResult

#: Sequences in a block when instances share a channel round robin.
ROUND_ROBIN_BLOCK: Final = 256
#: Events of one message get consecutive positions, all lower than those of the next message.
POSITIONS_PER_MESSAGE: Final = EVENTS_CEILING + 1

_SPARK_TYPES: Final = {
    AttributeType.STRING: spark_types.StringType(),
    AttributeType.INT: spark_types.IntegerType(),
    AttributeType.LONG: spark_types.LongType(),
    AttributeType.FLOAT: spark_types.FloatType(),
    AttributeType.DOUBLE: spark_types.DoubleType(),
    AttributeType.BOOL: spark_types.BooleanType(),
    AttributeType.OBJECT: spark_types.BinaryType(),
}
_METADATA_TYPES: Final = {
    "_sequence": spark_types.LongType(),
    "_index": spark_types.LongType(),
    "_timestamp_ms": spark_types.LongType(),
    "_event_time_ms": spark_types.LongType(),
    "_error": spark_types.StringType(),
    "_data": spark_types.BinaryType(),
}
#: Columns that the source adds to a stream's own in a group without state.
METADATA: Final = tuple(_METADATA_TYPES)

#: What ``decoder_of`` gives for a source with a mapper, as option of the source.
_MAPPED: Final = "mesh.mapping.json_source:decode_mapped"

#: Columns of the sink's input: see ``pyspark_nats.sink.writer``.
SINK_SCHEMA: Final = (
    "stream string, subject string, data binary, content_type string, event_time_ms long, "
    "producer string, position long, first_position long"
)


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """A message that an instance leaves out and records: it fails at it."""

    js_stream: str
    sequence: int
    reason: str


@dataclass(frozen=True, slots=True)
class InstanceIO:
    """An instance with its group: names its partitions, producers and JetStream streams."""

    group: GroupSpec
    assignment: Assignment
    #: See ``mesh.spark.repeated_failures``.
    refused: tuple[RefusedMessage, ...] = ()

    @property
    def is_keyed(self) -> bool:
        """Whether the group is divided by key, so that partitions have owners."""
        return self.group.is_keyed

    @property
    def partitions(self) -> tuple[int, ...]:
        """The virtual partitions that this instance owns; just 0 without a keyed input."""
        return self.group.partitions_of(self.assignment.index)

    @property
    def partition_count(self) -> int:
        """Number of virtual partitions of the whole group."""
        return self.group.partition_count

    def input_streams(self, partition: int) -> dict[str, GroupInput]:
        """JetStream streams that ``partition`` reads, each with its input."""
        return {js_stream_of(i, partition): i for i in self.group.inputs}

    def part(self, partition: int) -> str:
        """Name of the snapshots of ``partition``.

        A partition's name doesn't depend on its owner.  Instances that read a channel round robin
        have one position each, which is void when their number changes.
        """
        if self.group.parallel == 1 or self.is_keyed:
            return str(partition)
        return f"{self.assignment.index}of{self.group.parallel}"

    def producer(self, part: str) -> str:
        """Name of the markers of ``part`` of this group."""
        return names.producer(
            self.assignment.app_incarnation, self.group.name, self.group.edit, part
        )

    def blocks(self, js_stream: str) -> Blocks:
        """The messages of a JetStream stream that are this instance's."""
        strategies = {
            s.strategy for p in self.partitions if (s := self.input_streams(p).get(js_stream))
        }
        if (
            Strategy.ROUND_ROBIN in strategies
            and not self.group.stateful
            and self.group.parallel > 1
        ):
            return Blocks(ROUND_ROBIN_BLOCK, self.assignment.index - 1, self.group.parallel)
        return Blocks()

    def skips(self, js_stream: str) -> tuple[tuple[int, int], ...]:
        """Ranges of an input, each as (after, to), whose messages are skipped."""
        return tuple(
            (skip.after, skip.to) for skip in self.assignment.skips if skip.js_stream == js_stream
        )

    def refusals(self, js_stream: str) -> dict[int, str]:
        """The messages of an input that are recorded instead of processed, each with the reason."""
        return {one.sequence: one.reason for one in self.refused if one.js_stream == js_stream}

    def outputs(self, stream: str) -> tuple[Channel, ...]:
        """The channels for events inserted into ``stream``; none for an internal stream."""
        return tuple(c for c in self.group.outputs if c.stream.name == stream)

    @property
    def errors(self) -> tuple[str, str]:
        """JetStream stream and subject for unreadable events."""
        return names.error_js_stream(self.group.app), names.error_subject(self.group.app)


def js_stream_of(group_input: GroupInput, partition: int) -> str:
    """The JetStream stream that ``partition`` reads of an input."""
    keyed = group_input.strategy is Strategy.BY_KEY
    return group_input.channel.js_stream(partition if keyed else 0)


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Upper bounds of one micro-batch."""

    #: Messages of each JetStream stream.
    rows_max: int
    bytes_max: int
    #: Of one message.
    message: MessageLimits = USUAL


def decoder_of(channel: Channel) -> Callable[..., DecodeResult]:
    """The decoder of a channel's messages, as ``decode_messages``."""
    if not channel.is_mapped:
        return decode_messages
    # Mappers load libraries that few groups need.
    from mesh.mapping.json_source import decode_mapped

    return decode_mapped


def source_options(
    io: InstanceIO,
    parts: Sequence[str],
    nats: Mapping[str, str],
    limits: BatchLimits,
    wakeup: Path | None = None,
) -> dict[str, str]:
    """Options of the source that reads parts of an instance's input.

    Args:
        io: of the instance.
        parts: for a group with state, numbers of virtual partitions, each of which becomes one
            Spark partition; for one without, the JetStream stream of one input.
        nats: options of the NATS connection.
        limits: bounds of a batch.
        wakeup: directory of the files with the times of partitions' next timers; None for a
            caller that knows these times.
    """
    common = {
        **nats,
        "eventTimeHeader": names.EVENT_TIME_HEADER,
        "maxBytesPerTrigger": str(limits.bytes_max),
        **message_options(limits.message),
    }
    if io.group.stateful:
        streams = [list(io.input_streams(int(part))) for part in parts]
        # The source's limit applies to all of its streams together.
        rows_max = limits.rows_max * sum(len(read) for read in streams)
        return {
            **common,
            "streams": orjson.dumps(streams).decode(),
            "maxOffsetsPerTrigger": str(rows_max),
            "rangeMarkers": "true",
            "wakeupPath": str(wakeup or ""),
        }
    (js_stream,) = parts
    group_input = io.input_streams(0)[js_stream]
    options = {
        **common,
        "stream": js_stream,
        "maxOffsetsPerTrigger": str(limits.rows_max),
        "subject": group_input.channel.subject(),
        "format": "auto",
        "missing": "error",
        "metadata": ",".join(METADATA),
    }
    if group_input.channel.is_mapped:
        options["decoder"] = _MAPPED
    if (blocks := io.blocks(js_stream)).count > 1:
        options |= {
            "blockSize": str(blocks.size),
            "blockIndex": str(blocks.index),
            "blockCount": str(blocks.count),
        }
    return options


def message_options(limits: MessageLimits) -> dict[str, str]:
    """Options of the source with the limits of one message."""
    options = {
        "maxEventsPerMessage": str(limits.events_max),
        "maxBytesPerMessage": str(limits.bytes_max),
    }
    if limits.event_time_ahead_ms is not None:
        options["maxEventTimeAheadMs"] = str(limits.event_time_ahead_ms)
    return options


def typed_schema(stream: StreamSchema) -> StructType:
    """Columns of the source's typed form: the stream's attributes, then ``METADATA``."""
    columns = [StructField(a.name, _SPARK_TYPES[a.type]) for a in stream.attributes]
    return StructType([*columns, *(StructField(n, kind) for n, kind in _METADATA_TYPES.items())])
