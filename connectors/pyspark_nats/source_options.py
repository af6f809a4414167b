"""The options of the source: read, checked, defaulted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark_nats import connection_options
from pyspark_nats.errors import OptionError
from pyspark_nats.options import OptionReader, nearest, parsed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_nats.connection_options import ConnectionOptions

NAMES: Final = (
    *connection_options.NAMES,
    "stream", "streams", "subject", "startingOffsets", "maxOffsetsPerTrigger",
    "failOnDataLoss", "format", "schema", "metadata", "corrupt", "eventTimeHeader", "blockSize",
    "blockIndex", "blockCount", "rangeMarkers", "wakeupPath", "idleWaitMs",
)  # fmt: skip

FORMATS: Final = ("raw", "json", "msgpack", "arrow", "auto")
METADATA: Final = (
    "_stream", "_sequence", "_index", "_timestamp_ms", "_event_time_ms", "_error", "_data",
)  # fmt: skip
CORRUPT: Final = ("fail", "drop", "column")


@dataclass(frozen=True, slots=True)
class Start:
    """Where a stream's reading starts."""

    #: Last sequence that counts as read.
    sequence: int
    #: Broker time of that point, ms since 1970; 0 when unknown.
    time_ms: int


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What ``spark.read`` and ``spark.readStream`` were told."""

    connection: ConnectionOptions
    #: The streams that each Spark partition reads, in order.
    partitions: tuple[tuple[str, ...], ...]
    #: Exact subject to keep by stream; key "" stands for every other stream.
    subjects: Mapping[str, str]
    #: "earliest", "latest", or a place for each stream.
    starting: str | Mapping[str, Start]
    #: Sequences a stream and batch at most; None for all.
    offsets_per_trigger_max: int | None
    fail_on_data_loss: bool
    format: str
    #: DDL of the rows, "" when ``.schema`` gives it.
    schema: str
    metadata: tuple[str, ...]
    corrupt: str
    event_time_header: str
    block_size: int
    block_index: int
    block_count: int
    range_markers: bool
    wakeup_path: str
    idle_wait_ms: int

    @property
    def streams(self) -> tuple[str, ...]:
        """Every stream, in the order of the partitions."""
        return tuple(stream for group in self.partitions for stream in group)

    def subject_of(self, stream: str) -> str:
        """The subject that is kept of ``stream``; "" for all of them."""
        return self.subjects.get(stream, self.subjects.get("", ""))


def source_options(given: Mapping[str, str]) -> SourceOptions:
    """Check and read the options of a source.

    Raises:
        OptionError: an unknown name, a missing or a malformed value.
    """
    read = OptionReader(given, NAMES, "source")
    partitions = _partitions(read)
    metadata = tuple(read.names("metadata"))
    for name in metadata:
        if name not in METADATA:
            raise OptionError(
                f'metadata column "{name}" is not known',
                detail=f"There are: {', '.join(METADATA)}.",
                hint=nearest(name, METADATA),
            )
    chosen = read.one_of("format", FORMATS, "raw")
    corrupt = read.one_of("corrupt", CORRUPT, "column" if "_error" in metadata else "fail")
    if corrupt == "column" and "_error" not in metadata:
        raise OptionError('option "corrupt" is "column" but "metadata" does not name "_error"')
    markers = read.flag("rangeMarkers", False)
    if markers and chosen != "raw":
        raise OptionError('option "rangeMarkers" needs the format "raw"')
    block_count = read.integer("blockCount", 1, least=1)
    block_index = read.integer("blockIndex", 0, least=0)
    if block_index >= block_count:
        raise OptionError(f'option "blockIndex" is {block_index}, of {block_count} blocks')
    limit = read.text("maxOffsetsPerTrigger")
    return SourceOptions(
        connection=connection_options.read_connection(read),
        partitions=partitions,
        subjects=_subjects(read.text("subject")),
        starting=_starting(read.text("startingOffsets", "earliest")),
        offsets_per_trigger_max=read.integer("maxOffsetsPerTrigger", 0, least=1) if limit else None,
        fail_on_data_loss=read.flag("failOnDataLoss", True),
        format=chosen,
        schema=read.text("schema"),
        metadata=metadata,
        corrupt=corrupt,
        event_time_header=read.text("eventTimeHeader"),
        block_size=read.integer("blockSize", 256, least=1),
        block_index=block_index,
        block_count=block_count,
        range_markers=markers,
        wakeup_path=read.text("wakeupPath"),
        idle_wait_ms=read.integer("idleWaitMs", 500, least=0),
    )


def _partitions(read: OptionReader) -> tuple[tuple[str, ...], ...]:
    flat, nested = read.names("stream"), read.text("streams")
    if bool(flat) == bool(nested):
        raise OptionError('exactly one of the options "stream" and "streams" is needed')
    groups: Any = [[name] for name in flat] if flat else parsed("streams", nested)
    well_formed = isinstance(groups, list) and all(
        isinstance(group, list) and group and all(isinstance(n, str) and n for n in group)
        for group in groups
    )
    if not well_formed or not groups:
        raise OptionError('option "streams" is not a JSON list of lists of names', detail=nested)
    names = [name for group in groups for name in group]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise OptionError(f'stream "{twice[0]}" is named twice')
    return tuple(tuple(group) for group in groups)


def _subjects(text: str) -> dict[str, str]:
    """One subject for all streams, or a JSON object of them."""
    if not text.startswith("{"):
        return {"": text} if text else {}
    by_stream = parsed("subject", text)
    if not all(isinstance(subject, str) for subject in by_stream.values()):
        raise OptionError('option "subject" is not a subject or a JSON object of subjects')
    return dict(by_stream)


def _starting(text: str) -> str | dict[str, Start]:
    if text in ("earliest", "latest"):
        return text
    if not text.startswith("{"):
        raise OptionError(
            f'option "startingOffsets" is "{text}"', hint=nearest(text, ("earliest", "latest"))
        )
    try:
        return {
            stream: Start(int(place["sequence"]), int(place.get("time_ms", 0)))
            for stream, place in parsed("startingOffsets", text).items()
        }
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise OptionError(
            'option "startingOffsets" is not of the form {"stream": {"sequence": 0, "time_ms": 0}}'
        ) from error
