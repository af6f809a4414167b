"""The options of the source and the sink: read, checked, defaulted.  Names are case-insensitive."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark_nats.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

_CONNECTION: Final = ("servers", "user", "password", "token", "timeoutS", "clientName")
_SOURCE: Final = (
    *_CONNECTION, "stream", "streams", "subject", "startingOffsets", "maxOffsetsPerTrigger",
    "failOnDataLoss", "format", "schema", "metadata", "corrupt", "eventTimeHeader", "blockSize",
    "blockIndex", "blockCount", "rangeMarkers", "wakeupPath", "idleWaitMs",
)  # fmt: skip
_SINK: Final = (
    *_CONNECTION, "stream", "subject", "epoch", "markerPrefix", "producer", "eventTimeHeader",
    "delivery",
)  # fmt: skip
#: What Spark itself passes along.
_SPARKS: Final = frozenset(
    ("path", "paths", "checkpointlocation", "queryname", "outputmode", "triggerinterval")
)

FORMATS: Final = ("raw", "json", "msgpack", "arrow", "auto")
METADATA: Final = (
    "_stream", "_sequence", "_index", "_timestamp_ms", "_event_time_ms", "_error", "_data",
)  # fmt: skip
CORRUPT: Final = ("fail", "drop", "column")
DELIVERY: Final = ("exactly-once", "at-least-once")


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Where NATS is and who we are there."""

    servers: tuple[str, ...]
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    #: How long to go without a server or a leader before giving up, seconds.
    timeout_s: float = 30.0
    client_name: str = "pyspark_nats"


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


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What ``df.write`` and ``df.writeStream`` were told."""

    connection: ConnectionOptions
    #: For rows without a ``stream``; "" to look the stream up by subject.
    stream: str
    #: For rows without a ``subject``.
    subject: str
    #: Grows whenever another writer takes over; a marker with a higher one fences this writer.
    epoch: int
    marker_prefix: str
    #: For rows without a ``producer``; "" for a name of the query.
    producer: str
    event_time_header: str
    delivery: str


def source_options(given: Mapping[str, str]) -> SourceOptions:
    """Check and read the options of a source.

    Raises:
        OptionError: an unknown name, a missing or a malformed value.
    """
    read = _Reader(given, _SOURCE, "source")
    partitions = _partitions(read)
    metadata = tuple(read.names("metadata"))
    for name in metadata:
        if name not in METADATA:
            raise OptionError(
                f'metadata column "{name}" is not known',
                detail=f"There are: {', '.join(METADATA)}.",
                hint=_nearest(name, METADATA),
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
        connection=_connection(read),
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


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Check and read the options of a sink; OptionError as ``source_options``."""
    read = _Reader(given, _SINK, "sink")
    return SinkOptions(
        connection=_connection(read),
        stream=read.text("stream"),
        subject=read.text("subject"),
        epoch=read.integer("epoch", 0, least=0),
        marker_prefix=read.text("markerPrefix", "mesh._marker"),
        producer=read.text("producer"),
        event_time_header=read.text("eventTimeHeader", "Mesh-Timestamp"),
        delivery=read.one_of("delivery", DELIVERY, "exactly-once"),
    )


def connection_options(given: Mapping[str, str]) -> ConnectionOptions:
    """Only the connection's part of any set of options."""
    return _connection(_Reader(given, (*_SOURCE, *_SINK), "connection"))


class _Reader:
    """Looks options up by name, whatever their case."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...], side: str) -> None:
        self._values = {str(name).lower(): str(value) for name, value in given.items()}
        lower = {name.lower() for name in known}
        for name in self._values:
            if name not in lower and name not in _SPARKS and not name.startswith(("__", "spark.")):
                raise OptionError(
                    f'option "{name}" of the nats {side} is not known', hint=_nearest(name, known)
                )

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name.lower(), default).strip()

    def names(self, name: str) -> list[str]:
        return [part.strip() for part in self.text(name).split(",") if part.strip()]

    def integer(self, name: str, default: int, *, least: int) -> int:
        text = self.text(name)
        if not text:
            return default
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise OptionError(f'option "{name}" is "{text}", not a whole number from {least} up')
        return value

    def number(self, name: str, default: float) -> float:
        text = self.text(name)
        try:
            value = float(text) if text else default
        except ValueError:
            value = -1.0
        if not value > 0:
            raise OptionError(f'option "{name}" is "{text}", not a number above 0')
        return value

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name, str(default)).lower()
        if text not in ("true", "false"):
            raise OptionError(f'option "{name}" is "{text}", neither "true" nor "false"')
        return text == "true"

    def one_of(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        text = self.text(name, default)
        if text not in allowed:
            raise OptionError(f'option "{name}" is "{text}"', hint=_nearest(text, allowed))
        return text


def _nearest(name: str, known: tuple[str, ...]) -> str:
    by_lower = {candidate.lower(): candidate for candidate in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    if found:
        return f'Did you mean "{by_lower[found[0]]}"?'
    return f"There are: {', '.join(sorted(set(known)))}."


def _connection(read: _Reader) -> ConnectionOptions:
    servers = tuple(
        server if "://" in server else f"nats://{server}" for server in read.names("servers")
    )
    if not servers:
        raise OptionError('option "servers" is missing', hint='Give "nats://host:4222".')
    return ConnectionOptions(
        servers=servers,
        user=read.text("user"),
        password=read.text("password"),
        token=read.text("token"),
        timeout_s=read.number("timeoutS", 30.0),
        client_name=read.text("clientName", "pyspark_nats"),
    )


def _partitions(read: _Reader) -> tuple[tuple[str, ...], ...]:
    flat, nested = read.names("stream"), read.text("streams")
    if bool(flat) == bool(nested):
        raise OptionError('exactly one of the options "stream" and "streams" is needed')
    groups: Any = [[name] for name in flat] if flat else _json("streams", nested)
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
    by_stream = _json("subject", text)
    if not all(isinstance(subject, str) for subject in by_stream.values()):
        raise OptionError('option "subject" is not a subject or a JSON object of subjects')
    return dict(by_stream)


def _starting(text: str) -> str | dict[str, Start]:
    if text in ("earliest", "latest"):
        return text
    if not text.startswith("{"):
        raise OptionError(
            f'option "startingOffsets" is "{text}"', hint=_nearest(text, ("earliest", "latest"))
        )
    try:
        return {
            stream: Start(int(place["sequence"]), int(place.get("time_ms", 0)))
            for stream, place in _json("startingOffsets", text).items()
        }
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise OptionError(
            'option "startingOffsets" is not of the form {"stream": {"sequence": 0, "time_ms": 0}}'
        ) from error


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(f'option "{name}" is not JSON', detail=f"{error}.") from error
