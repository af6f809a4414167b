"""Inputs and outputs of an instance, derived from its group.

Local state of one partition: files that a batch writes and the next one reads, in any process.

A directory holds pieces (Arrow files, never changed once written) and manifests, one for each of
the last few positions.  A manifest has an input position, the state there, and the names of its
pieces.  A batch loads the manifest of its start position, so a batch that Spark runs again finds
the earlier state.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import orjson
import pyarrow as pa
import pyarrow.ipc
from pyspark.sql import types as spark_types
from pyspark.sql.types import StructField, StructType

from mesh.errors import MeshError
from mesh.files.whole_files import replacing
from mesh.model import names
from mesh.model.app import GroupSpec, Strategy
from mesh.model.cluster import Assignment
from mesh.model.types import AttributeType
from mesh.model.values import JsonObject
from mesh.operators.base import State
from pyspark_nats.decode import decode_messages
from pyspark_nats.decode.result import EVENTS_CEILING, USUAL, MessageLimits
from pyspark_nats.source.ranges import Blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
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


#: Incremented when the meaning of a manifest or of a piece changes.
FORMAT_VERSION = 1
#: A batch may run again from the previous position; the uploader may be one position further back.
MANIFESTS_MAX = 4
#: File in the directory of a part that began without a state.
NEW = "new"


@dataclass(frozen=True, slots=True)
class InputPosition:
    """Input position of a partition, for each JetStream stream in name order."""

    #: (JetStream stream, last sequence read, broker's time in ms up to which it is complete).
    streams: tuple[tuple[str, int, int], ...]

    @classmethod
    def of(cls, offsets: Mapping[str, Mapping[str, int]], streams: Iterable[str]) -> InputPosition:
        """The part of a Spark offset for ``streams``."""
        return cls(
            tuple((s, offsets[s]["sequence"], offsets[s]["time_ms"]) for s in sorted(streams))
        )

    @property
    def offsets(self) -> dict[str, dict[str, int]]:
        """The position in the form of the source's offsets."""
        return {s: {"sequence": n, "time_ms": t} for s, n, t in self.streams}

    @property
    def name(self) -> str:
        """A file name for the position."""
        return hashlib.sha256(orjson.dumps(self.streams)).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The state at a position, with the names of its pieces instead of the pieces."""

    position: InputPosition
    #: Data of the host: the clock of each input stream.
    clocks: JsonObject
    scalars: JsonObject
    pieces: tuple[str, ...]
    #: SiddhiQL of the group that wrote the state; empty on the local disk, where it is the present
    #: one.
    text: str = ""
    #: Last sequence in the state, for JetStream streams in which it is ahead of ``position``: it
    #: was restored together with partitions that are not as far in them.
    ahead: Mapping[str, int] = field(default_factory=dict)
    #: Number of state resets of the group when it wrote this.
    resets: int = 0
    #: Last sequence and its time (ns) of each JetStream stream at that moment, as far as known: the
    #: source compares them (``pyspark_nats.source.ranges``).
    newest: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def position_of(self) -> InputPosition:
        """The sequences that the state really includes."""
        return InputPosition(
            tuple((s, max(n, self.ahead.get(s, 0)), t) for s, n, t in self.position.streams)
        )

    @property
    def starts(self) -> dict[str, dict[str, int]]:
        """The offsets from which the source continues."""
        offsets = self.position_of.offsets
        for stream in offsets.keys() & self.newest.keys():
            newest, newest_ns = self.newest[stream]
            offsets[stream] |= {"newest": newest, "newest_ns": newest_ns}
        return offsets

    def to_bytes(self) -> bytes:
        """JSON, with the format's version."""
        return orjson.dumps(
            {
                "version": FORMAT_VERSION,
                "position": self.position.streams,
                "clocks": self.clocks,
                "scalars": self.scalars,
                "pieces": self.pieces,
                "text": self.text,
                "ahead": self.ahead,
                "resets": self.resets,
                "newest": self.newest,
            },
            option=orjson.OPT_SERIALIZE_NUMPY,
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """A manifest from its JSON; MESH-S101 for another version."""
        values = orjson.loads(data)
        if values["version"] != FORMAT_VERSION:
            raise MeshError(
                "MESH-S101",
                f"snapshot has format {values['version']}, this version reads {FORMAT_VERSION}",
                hint="Run the version that wrote it, or undeploy and deploy the app.",
            )
        return cls(
            InputPosition(tuple((s, n, t) for s, n, t in values["position"])),
            values["clocks"],
            values["scalars"],
            tuple(values["pieces"]),
            values.get("text", ""),
            values.get("ahead", {}),
            values.get("resets", 0),
            {s: (n, t) for s, (n, t) in values.get("newest", {}).items()},
        )


def newest_of(offsets: Mapping[str, Mapping[str, int]]) -> dict[str, tuple[int, int]]:
    """``Manifest.newest`` by the source's offsets."""
    return {s: (at["newest"], at["newest_ns"]) for s, at in offsets.items() if "newest" in at}


class LocalState:
    """The state directory of one partition of one instance."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def save(
        self,
        position: InputPosition,
        clocks: JsonObject,
        state: State,
        ahead: Mapping[str, int] | None = None,
    ) -> None:
        """Write missing pieces, then the manifest; then remove old files."""
        self.put_pieces(state)
        pieces = tuple(state.pieces)
        manifest = Manifest(position, clocks, dict(state.scalars), pieces, ahead=ahead or {})
        self.put_manifest(manifest)
        self.drop_old()

    def put_pieces(self, state: State) -> None:
        """Write missing pieces."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for name, batch in state.pieces.items():
            path = self.piece_path(name)
            if not path.exists():
                _write_atomically(path, batch_bytes(batch))

    def put_manifest(self, manifest: Manifest) -> None:
        """Write a manifest whose pieces all exist."""
        self.directory.mkdir(parents=True, exist_ok=True)
        _write_atomically(self._manifest_path(manifest.position), manifest.to_bytes())

    def put_restored(self, manifest: Manifest) -> None:
        """Write the manifest of an uploaded snapshot whose pieces all exist."""
        self.directory.mkdir(parents=True, exist_ok=True)
        _write_atomically(self._restored_path, manifest.to_bytes())

    def put_new(self) -> None:
        """Record that there is no snapshot: the state is empty until a batch saves one."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / NEW).touch()

    def newest(self) -> Manifest | None:
        """The manifest that was written last, for readers; its pieces may be dropped meanwhile.

        Raises:
            FileNotFoundError: none yet, and the instance has not begun without a state.
        """
        manifests = [(path.stat().st_mtime_ns, path) for path in self.directory.glob("*.manifest")]
        if manifests:
            return Manifest.from_bytes(max(manifests)[1].read_bytes())
        (self.directory / NEW).stat()
        return None

    def restored(self, start: InputPosition) -> Manifest | None:
        """Manifest of the uploaded snapshot, if a batch from ``start`` reads all later input.

        The batch reads more than that if another partition of the instance is at a lower position
        in a stream that all of them read.
        """
        try:
            manifest = Manifest.from_bytes(self._restored_path.read_bytes())
        except FileNotFoundError:
            return None
        return restored_at(manifest, start)

    def manifest(self, position: InputPosition) -> Manifest | None:
        """The manifest of exactly this position."""
        try:
            return Manifest.from_bytes(self._manifest_path(position).read_bytes())
        except FileNotFoundError:
            return None

    def load(self, manifest: Manifest) -> State:
        """The state that a manifest describes; pieces are mapped, not read."""
        return State(
            {name: read_batch(self.piece_path(name)) for name in manifest.pieces}, manifest.scalars
        )

    def pieces_of(self, manifest: Manifest) -> dict[str, Path]:
        """The file of each piece of a manifest."""
        return {name: self.piece_path(name) for name in manifest.pieces}

    def is_empty(self) -> bool:
        """Whether no state has been saved here."""
        return next(self.directory.glob("*.manifest"), None) is None

    def has_run(self) -> bool:
        """Whether a batch has saved a state here."""
        return any(path != self._restored_path for path in self.directory.glob("*.manifest"))

    def piece_path(self, name: str) -> Path:
        """Path of the piece called ``name``."""
        return self.directory / f"{quote(name, safe='')}.arrow"

    @property
    def _restored_path(self) -> Path:
        return self.directory / "restored.manifest"

    def _manifest_path(self, position: InputPosition) -> Path:
        return self.directory / f"{position.name}.manifest"

    def drop_old(self) -> None:
        """Remove all but the last few manifests, and the pieces that none of them names."""
        newest_first = sorted(
            self.directory.glob("*.manifest"), key=lambda p: p.stat().st_mtime_ns, reverse=True
        )
        for path in newest_first[MANIFESTS_MAX:]:
            path.unlink(missing_ok=True)
        if len(newest_first) <= MANIFESTS_MAX:
            return
        used = {
            self.piece_path(name)
            for path in newest_first[:MANIFESTS_MAX]
            for name in Manifest.from_bytes(path.read_bytes()).pieces
        }
        for path in self.directory.glob("*.arrow"):
            if path not in used:
                path.unlink(missing_ok=True)


def _write_atomically(path: Path, data: bytes) -> None:
    with replacing(path, path.with_name(f"{path.name}.{os.getpid()}.tmp")) as file:
        file.write(data)


def restored_at(manifest: Manifest, start: InputPosition) -> Manifest | None:
    """``manifest`` for a batch from ``start``; None if that batch lacks input after it."""
    reached = {stream: sequence for stream, sequence, _ in manifest.position_of.streams}
    if any(sequence > reached.get(stream, -1) for stream, sequence, _ in start.streams):
        return None
    return replace(manifest, position=start, ahead=reached)


def batch_bytes(batch: pa.RecordBatch) -> bytes:
    """A piece as an Arrow file."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def read_batch(path: Path) -> pa.RecordBatch:
    """A piece from its file, which is mapped."""
    reader = pa.ipc.open_file(pa.memory_map(str(path)))
    return reader.get_batch(0)
