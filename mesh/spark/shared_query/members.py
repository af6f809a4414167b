"""Members of the shared query: the descriptions of its instances that the session sends to slots.

The shared query is one streaming query that runs many instances
(``mesh.spark.shared_query.query``).  Each instance is a *member*, with its input and its start
positions.  The input is divided into *parts* that are observed, read and computed independently:
the virtual partitions of a group with state, the inputs of one without.

Work items of a slot, and the outcomes that it reports to the session.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from pyspark.sql.types import NullType, StructField, StructType

from mesh.model import names
from mesh.spark.instance_io import BatchLimits, InstanceIO, source_options, typed_schema
from mesh.spark.shared_query import pacing
from pyspark_nats.decode.result import USUAL, MessageLimits
from pyspark_nats.sink.sink_options import SinkOptions, sink_options
from pyspark_nats.source import batches, rows
from pyspark_nats.source.source_options import SourceOptions
from pyspark_nats.source.source_options import source_options as parsed_options

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mesh.model.cluster import ElementCounts
    from mesh.spark.task_states import TaskStates
    from pyspark_nats.source.messages import Messages
    from pyspark_nats.source.ranges import StreamRange


_BYTES_MAX: Final = 8 << 20
#: Time that a task waits for one stream to answer, seconds: servers elect a leader in 4 to 9 s.
#: Other members wait as long.
_PATIENCE_S: Final = "20"

#: Position of a part: ``{js_stream: {"sequence": n, "time_ms": t, "created_ms": c}}``.
Offsets = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class InputPartition:
    """A part of a member's input."""

    #: The virtual partition's number, or the input's JetStream stream.
    key: str
    #: Distinguishes parts of a member in markers.
    number: int
    options: SourceOptions
    form: batches.RowLayout
    #: The subjects of its JetStream streams.
    subjects: dict[str, tuple[str, ...]]
    #: Start position; None for the first message of its streams.
    start: Offsets | None
    #: Whether a stream is not the mesh's: its messages may be published under other subjects.
    is_foreign: bool
    #: Whether its state was restored.
    is_restored: bool = False


@dataclass(frozen=True, slots=True)
class Member:
    """An instance in the shared query."""

    io: InstanceIO
    #: Directory of the state of this run.
    directory: str
    #: Grows each time the instance is admitted, so that outcomes of an earlier time are ignored.
    generation: int
    parts: tuple[InputPartition, ...]
    sink: SinkOptions
    #: The member leaves at these sequences, by JetStream stream, and reads no further in others;
    #: None for one that stays until it is released.
    until: Mapping[str, int] | None = None
    #: Place of its states, if they are not in the directory.
    states: TaskStates | None = None

    @property
    def name(self) -> str:
        """Name of the instance."""
        return self.io.assignment.instance

    @property
    def file_name(self) -> str:
        """Name of the member."""
        return file_name(self.name, self.generation)


def member(
    io: InstanceIO,
    generation: int,
    run: Path,
    *,
    nats: Mapping[str, str],
    starts: Mapping[str, Offsets],
    restored: frozenset[str],
    until: Mapping[str, int] | None = None,
    message: MessageLimits = USUAL,
    states: TaskStates | None = None,
) -> Member:
    """An instance as a member.

    Args:
        io: of the instance.
        generation: see ``Member``.
        run: directory of this run.
        nats: options of source and sink for the NATS connection.
        starts: start positions by key; parts not named start at their first message.
        restored: keys of parts with state in their directory.
        until: see ``Member``.
        message: limits of one message.
        states: see ``Member``.
    """
    patient = {"timeoutS": _PATIENCE_S, **nats}
    parts = tuple(
        InputPartition(
            key,
            number,
            *_source(io, key, patient, message),
            _subjects(io, key),
            starts.get(key),
            _is_foreign(io, key),
            key in restored,
        )
        for number, key in enumerate(partition_keys(io))
    )
    sink = sink_options(
        {**patient, "epoch": str(io.assignment.epoch), "markerPrefix": names.MARKERS}
    )
    return Member(io, str(run), generation, parts, sink, until, states)


def partition_keys(io: InstanceIO) -> dict[str, tuple[str, ...]]:
    """Keys of an instance's parts, each with the JetStream streams that it reads."""
    if io.group.stateful:
        return {str(p): tuple(io.input_streams(p)) for p in io.partitions}
    return {stream: (stream,) for stream in io.input_streams(0)}


def _subjects(io: InstanceIO, key: str) -> dict[str, tuple[str, ...]]:
    """Subjects of events and of the markers that end their atomic batches.

    The events of a batch are stored only with its marker.
    """
    partition = int(key) if io.group.stateful else 0
    return {
        stream: (
            group_input.channel.subject(partition if group_input.channel.is_keyed else 0),
            f"{names.marker_subject(stream)}.>",
        )
        for stream, group_input in io.input_streams(partition).items()
        if io.group.stateful or stream == key
    }


def _is_foreign(io: InstanceIO, key: str) -> bool:
    partition = int(key) if io.group.stateful else 0
    inputs = io.input_streams(partition)
    return any(inputs[stream].channel.foreign for stream in partition_keys(io)[key])


def _source(
    io: InstanceIO, key: str, nats: Mapping[str, str], message: MessageLimits
) -> tuple[SourceOptions, batches.RowLayout]:
    """Options and row layout of the source that reads one part."""
    limits = BatchLimits(pacing.ROWS_MAX, _BYTES_MAX, message)
    options = parsed_options(source_options(io, (key,), nats, limits))
    if io.group.stateful:
        # For a stream with a schema of its own, only the names count.
        fields = [StructField(name, NullType()) for name in rows.MARKED.names]
        return options, batches.row_layout(options, StructType(fields))
    schema = typed_schema(io.input_streams(0)[key].channel.stream)
    return options, batches.row_layout(options, schema)


@lru_cache(maxsize=1024)
def file_name(instance: str, generation: int) -> str:
    """A name for a member that no other one of the session has."""
    return f"{quote(instance, safe='')}.{generation}"


#: Kinds of work items and outcomes: input of a part, or the report that a part was admitted, that a
#: member was removed, or that it failed.
WORK: Final = "work"
ADMITTED: Final = "admitted"
REMOVED: Final = "removed"
FAILED: Final = "failed"

#: Prefix of a failure because a member's stream does not answer, though the server does.
UNANSWERED: Final = "no answer from a stream"


@dataclass(frozen=True, slots=True)
class WorkItem:
    """A range of a part's input to process now, or a change of the membership to report."""

    kind: str
    member: Member
    #: None if the item concerns the whole member.
    part: InputPartition | None = None
    ranges: tuple[StreamRange, ...] = ()
    #: The position of the part afterwards.
    ends: Offsets | None = None
    #: Messages that are known to wait after that.
    behind: int = 0
    #: The messages of the range, if they have been read.
    messages: Messages | None = None
    #: The server's clock when the part was admitted, ms since 1970.
    began_ms: int | None = None
    #: Failure of an item that failed before there was work.
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Report on a part, or on a member, since the last one.

    The state of a part with state is stored in its directory at ``ends``, and the output of all
    input up to ``ends`` is published.
    """

    kind: str
    instance: str
    generation: int
    part: str = ""
    ends: Offsets | None = None
    #: Messages read, their events, events published and recorded as errors since the last report.
    messages: int = 0
    events_in: int = 0
    events_out: int = 0
    errors: int = 0
    #: The last sequence that has come of each stream, whether or not it was the part's.
    read: Mapping[str, int] = field(default_factory=dict)
    #: Runs since the last report, and the time that they took together, milliseconds.
    runs: int = 0
    took_ms: float = 0.0
    #: The runs by duration, and the events by latency (``mesh.model.histogram``), since then.
    batches: tuple[int, ...] = ()
    latencies: tuple[int, ...] = ()
    latencies_sum_s: float = 0.0
    #: Of the part's elements; events since the last report, rows now.
    elements: tuple[ElementCounts, ...] = ()
    failure: str | None = None
