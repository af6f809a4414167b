"""The options of the source: parsing, checks, defaults."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark_nats.decode.result import EVENTS_CEILING, USUAL, MessageLimits
from pyspark_nats.errors import OptionError
from pyspark_nats.options import OptionReader, nearest, parsed
from pyspark_nats.protocol import connection_options
from pyspark_nats.source.ranges import Blocks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_nats.protocol.connection_options import ConnectionOptions

NAMES: Final = (
    *connection_options.NAMES,
    "stream", "streams", "subject", "parallelBy", "startingOffsets", "startingTimestamp",
    "endingOffsets", "endingTimestamp", "maxOffsetsPerTrigger", "minOffsetsPerTrigger",
    "maxTriggerDelay", "maxBytesPerTrigger", "minPartitions", "maxRecordsPerPartition",
    "failOnDataLoss", "includeHeaders", "format", "schema", "metadata", "corrupt", "missing",
    "decoder", "eventTimeHeader", "blockSize", "blockIndex", "blockCount", "rangeMarkers",
    "wakeupPath", "haltPath", "idleWaitMs", "maxEventsPerMessage", "maxBytesPerMessage",
    "maxEventTimeAheadMs",
)  # fmt: skip

FORMATS: Final = ("raw", "json", "msgpack", "arrow", "auto")
METADATA: Final = (
    "_stream", "_sequence", "_index", "_subject", "_headers", "_timestamp", "_timestamp_ms",
    "_event_time_ms", "_error", "_data",
)  # fmt: skip
CORRUPT: Final = ("fail", "drop", "column")
MISSING: Final = ("error", "null")
PARALLEL: Final = ("stream", "subject")

#: Numbers of a stream in an offset of a checkpoint.
_POINT: Final = ("sequence", "time_ms", "created_ms", "newest", "newest_ns")
_DURATION: Final = re.compile(r"(\d{1,15}(?:\.\d+)?)\s*(ms|s|sec|m|min|h|d)?")
_UNIT_MS: Final = {
    None: 1, "ms": 1, "s": 1000, "sec": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000,
    "d": 86_400_000,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StreamPoint:
    """A point of a stream, as in an offset."""

    #: Last sequence that counts as read.
    sequence: int
    #: Broker time of that point, ms since 1970; 0 if unknown.
    time_ms: int = 0
    #: Creation time of the stream, ms since 1970; 0 if unknown.
    created_ms: int = 0
    #: Sequence and time (ns) of the stream's last message at that moment; 0 if unknown.
    newest: int = 0
    newest_ns: int = 0


@dataclass(frozen=True, slots=True)
class AtTime:
    """The point before the first message that is not older than ``time_ms`` (ms since 1970)."""

    time_ms: int


#: Start or end of a read: "earliest", "latest", a point, or a time.
Bound = str | StreamPoint | AtTime


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Size limits of one batch, over all streams together."""

    #: Most sequences; None for all.
    offsets_max: int | None = None
    #: Most bytes, estimated by each stream's average message; None for all.
    bytes_max: int | None = None
    #: Least number of sequences, except for a batch that waited ``delay_max_ms``.
    offsets_min: int = 0
    delay_max_ms: int = 0

    @property
    def are_none(self) -> bool:
        """Whether a batch reads all messages."""
        return self.offsets_max is None and self.bytes_max is None and not self.offsets_min


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Options of ``spark.read`` and ``spark.readStream``."""

    connection: ConnectionOptions
    #: The streams that each Spark partition reads, in order.
    partitions: tuple[tuple[str, ...], ...]
    #: Subjects to keep by stream, wildcards allowed; key "" means every other stream.
    subjects: Mapping[str, tuple[str, ...]]
    #: "stream", or "subject": each of ``subjects`` has its own Spark partition.
    parallel_by: str
    #: By stream; key "" means every other stream.
    starting: Mapping[str, Bound]
    ending: Mapping[str, Bound]
    limits: ReadLimits
    #: Bounds for splitting ranges into more Spark partitions.
    partitions_min: int
    partition_records_max: int | None
    fail_on_data_loss: bool
    include_headers: bool
    format: str
    #: DDL of the rows, "" if ``.schema`` gives it.
    schema: str
    metadata: tuple[str, ...]
    corrupt: str
    #: The meaning of a missing attribute.
    missing: str
    #: ``module:function`` that decodes messages in place of ``decode_messages``; "" for that.
    decoder: str
    event_time_header: str
    block_size: int
    block_index: int
    block_count: int
    range_markers: bool
    wakeup_path: str
    halt_path: str
    idle_wait_ms: int
    #: Limits of one message.
    message: MessageLimits = USUAL

    @property
    def streams(self) -> tuple[str, ...]:
        """Every stream, in the order of the partitions."""
        return tuple(stream for group in self.partitions for stream in group)

    @property
    def blocks(self) -> Blocks:
        """The sequences that this reader owns."""
        return Blocks(self.block_size, self.block_index, self.block_count)

    def subjects_of(self, stream: str) -> tuple[str, ...]:
        """The subjects to keep of ``stream``; empty for all of them."""
        return self.subjects.get(stream, self.subjects.get("", ()))


def source_options(options: Mapping[str, str]) -> SourceOptions:
    """Check and read the options of a source.

    Raises:
        OptionError: an unknown name, a missing or a malformed value, or two that contradict.
    """
    read = OptionReader(options, NAMES, "source")
    metadata = _metadata(read)
    chosen = read.one_of("format", FORMATS, "raw")
    corrupt = read.one_of("corrupt", CORRUPT, "column" if "_error" in metadata else "fail")
    block_count = read.integer("blockCount", 1, least=1)
    block_index = read.integer("blockIndex", 0, least=0)
    if block_index >= block_count:
        raise OptionError(f'option "blockIndex" is {block_index}, of {block_count} blocks')
    result = SourceOptions(
        connection=connection_options.read_connection(read),
        partitions=_partitions(read),
        subjects=_subjects(read.text("subject")),
        parallel_by=read.one_of("parallelBy", PARALLEL, "stream"),
        starting=_bounds(read, "starting", "earliest"),
        ending=_bounds(read, "ending", "latest"),
        limits=_limits(read),
        partitions_min=read.integer("minPartitions", 0, least=1),
        partition_records_max=_optional(read, "maxRecordsPerPartition"),
        fail_on_data_loss=read.flag("failOnDataLoss", True),
        include_headers=read.flag("includeHeaders", not read.flag("rangeMarkers", False)),
        format=chosen,
        schema=read.text("schema"),
        metadata=metadata,
        corrupt=corrupt,
        missing=read.one_of("missing", MISSING, "null"),
        decoder=read.text("decoder"),
        event_time_header=read.text("eventTimeHeader"),
        block_size=read.integer("blockSize", 256, least=1),
        block_index=block_index,
        block_count=block_count,
        range_markers=read.flag("rangeMarkers", False),
        wakeup_path=read.text("wakeupPath"),
        halt_path=read.text("haltPath"),
        idle_wait_ms=read.integer("idleWaitMs", 500, least=0),
        message=_message_limits(read),
    )
    _check_together(result)
    return result


def check_streaming(options: Mapping[str, str]) -> None:
    """OptionError for options of batch reads only: a streaming query has no end."""
    for name in options:
        if name.lower() in ("endingoffsets", "endingtimestamp"):
            raise OptionError(
                f'option "{name}" does not go with a streaming query',
                hint="Use spark.read, or the trigger AvailableNow to end at the current end.",
            )


def _check_together(options: SourceOptions) -> None:
    splits = options.partitions_min or options.partition_records_max is not None
    if options.range_markers:
        if options.format != "raw":
            raise OptionError('option "rangeMarkers" needs the format "raw"')
        if splits or options.parallel_by != "stream":
            raise OptionError(
                'option "rangeMarkers" needs each stream in one Spark partition',
                hint='Leave out "minPartitions", "maxRecordsPerPartition" and "parallelBy".',
            )
    if options.parallel_by == "subject":
        for stream in options.streams:
            if not options.subjects_of(stream):
                raise OptionError(
                    f'option "parallelBy" is "subject", but no "subject" is given for "{stream}"'
                )
    for name in {*options.subjects, *options.starting, *options.ending} - {""}:
        if name not in options.streams:
            raise OptionError(
                f'stream "{name}" is not among those that are read',
                hint=nearest(name, options.streams),
            )
    for stream in options.streams:
        if options.starting.get(stream, options.starting.get("")) == "latest" and (
            options.ending != {"": "latest"}
        ):
            raise OptionError(f'no message of stream "{stream}" is between "latest" and its end')


def _metadata(read: OptionReader) -> tuple[str, ...]:
    names = tuple(read.names("metadata"))
    for name in names:
        if name not in METADATA:
            raise OptionError(
                f'metadata column "{name}" is not known',
                detail=f"There are: {', '.join(METADATA)}.",
                hint=nearest(name, METADATA),
            )
    return names


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
    for name in names:
        if re.search(r"[\s.*>/\\]", name):
            raise OptionError(
                f'"{name}" is no name of a stream',
                hint='Subjects go into option "subject", streams into "stream".',
            )
    return tuple(tuple(group) for group in groups)


def _subjects(text: str) -> dict[str, tuple[str, ...]]:
    """A comma list of subjects for all streams, or a JSON object of them."""
    by_stream = parsed("subject", text) if text.startswith("{") else {"": text} if text else {}
    subjects: dict[str, tuple[str, ...]] = {}
    for stream, value in by_stream.items():
        listed = value.split(",") if isinstance(value, str) else value
        if not (isinstance(listed, list) and all(isinstance(one, str) for one in listed)):
            raise OptionError(
                f'option "subject" has {json.dumps(value)} for stream "{stream}"',
                hint='Give a subject, or a list of them; "" or ">" for all messages.',
            )
        subjects[stream] = tuple(one.strip() for one in listed if one.strip())
        for subject in subjects[stream]:
            _check_subject(subject)
    return subjects


def _check_subject(subject: str) -> None:
    tokens = subject.split(".")
    wrong = re.search(r"\s", subject) or "" in tokens or ">" in tokens[:-1]
    if wrong:
        raise OptionError(
            f'option "subject": "{subject}" is no subject',
            hint='A subject is tokens with dots between; "*" stands for one, ">" for the rest.',
        )


def _bounds(read: OptionReader, side: str, default: str) -> dict[str, Bound]:
    """The bounds by ``{side}Offsets`` or ``{side}Timestamp``."""
    offsets, timestamp = read.text(f"{side}Offsets"), read.text(f"{side}Timestamp")
    if offsets and timestamp:
        raise OptionError(f'options "{side}Offsets" and "{side}Timestamp" say the same thing twice')
    if timestamp:
        name = f"{side}Timestamp"
        by_stream = parsed(name, timestamp) if timestamp.startswith("{") else {"": timestamp}
        times = {stream: AtTime(_time_ms(name, str(text))) for stream, text in by_stream.items()}
        return {"": default, **times}
    name = f"{side}Offsets"
    text = offsets or default
    if text.startswith("{"):
        bounds: dict[str, Bound] = {"": default}
        bounds.update({s: _bound(name, value) for s, value in parsed(name, text).items()})
        return bounds
    return {"": _word(name, text)}


def _bound(name: str, value: Any) -> Bound:
    if isinstance(value, str):
        return _word(name, value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        # As in Spark's Kafka source: the first to read, or the first not to read any more.
        return StreamPoint(value - 1)
    if isinstance(value, dict) and "sequence" in value:
        point = [value.get(key, 0) for key in _POINT]
        if all(type(number) is int and number >= 0 for number in point):
            return StreamPoint(*point)
    raise OptionError(
        f'option "{name}" is not of the form {{"STREAM": 7}}',
        detail='A stream may have "earliest", "latest", the first sequence to read, or an '
        'offset of a checkpoint, {"sequence": 6, "time_ms": 0}: 6 counts as read.',
    )


def _word(name: str, text: str) -> str:
    words = ("earliest", "latest") if name == "startingOffsets" else ("latest",)
    if text not in words:
        raise OptionError(f'option "{name}" is "{text}"', hint=nearest(text, words))
    return text


def _time_ms(name: str, text: str) -> int:
    """Milliseconds since 1970, from a number or an ISO 8601 time; UTC without a zone."""
    if re.fullmatch(r"\d+", text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        # No message is older, and not every zone has a time before the year 1.
        return max(0, int(aware.timestamp() * 1000))
    except ValueError as error:
        raise OptionError(
            f'option "{name}" is "{text}", not a time',
            hint='Give ms since 1970, or a time like "2026-11-21T09:30:00Z".',
        ) from error


def _message_limits(read: OptionReader) -> MessageLimits:
    events_max = read.integer("maxEventsPerMessage", USUAL.events_max, least=1)
    if events_max > EVENTS_CEILING:
        raise OptionError(f'option "maxEventsPerMessage" is {events_max}, above {EVENTS_CEILING}')
    return MessageLimits(
        events_max,
        read.integer("maxBytesPerMessage", USUAL.bytes_max, least=1),
        read.integer("maxEventTimeAheadMs", 0, least=0)
        if read.text("maxEventTimeAheadMs")
        else None,
    )


def _limits(read: OptionReader) -> ReadLimits:
    least = read.integer("minOffsetsPerTrigger", 0, least=1)
    most = _optional(read, "maxOffsetsPerTrigger")
    if most is not None and least > most:
        raise OptionError(
            f'option "minOffsetsPerTrigger" is {least}, above "maxOffsetsPerTrigger", {most}'
        )
    text = read.text("maxTriggerDelay", "15m")
    match = _DURATION.fullmatch(text)
    if match is None:
        raise OptionError(
            f'option "maxTriggerDelay" is "{text}", not a duration', hint='Give "500ms" or "15m".'
        )
    return ReadLimits(
        offsets_max=most,
        bytes_max=_optional(read, "maxBytesPerTrigger"),
        offsets_min=least,
        delay_max_ms=int(float(match[1]) * _UNIT_MS[match[2]]),
    )


def _optional(read: OptionReader, name: str) -> int | None:
    return read.integer(name, 0, least=1) or None
