"""Conversion of events to rows for the sink: encoded, addressed and numbered."""

from __future__ import annotations

import hashlib
import itertools
import math
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson
import pyarrow as pa

from mesh.functions.objects import from_binary, python_value
from mesh.model import error_entry
from mesh.model.app import Format
from mesh.model.types import AttributeType
from mesh.spark.instance_io import POSITIONS_PER_MESSAGE
from pyspark_nats import encode
from pyspark_nats.arrow import FEW, constant, sizes_of
from pyspark_nats.few_rows import FewRows, as_batch
from pyspark_nats.sink import messages_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mesh.model.app import Channel
    from mesh.model.types import StreamSchema
    from mesh.operators.base import Longs
    from mesh.operators.executor import OutputRun
    from mesh.spark.instance_io import InstanceIO
    from pyspark_nats.source.rows import MessageRows

#: Maximum number of events in a message of an Arrow channel.
ROWS_PER_MESSAGE: Final = 1000
#: Most events that are messages of their own in an Arrow channel.
_SINGLE_MAX: Final = 4
#: Most characters of a text in such a message.
_SHORT_TEXT: Final = 10_000
#: Size above which a message of an Arrow channel is divided: NATS accepts 1 MB by default.
_MESSAGE_BYTES: Final = 512 << 10
JSON_TYPE: Final = "application/json"
ARROW_TYPE: Final = "application/vnd.apache.arrow.stream"
#: Columns of our Arrow messages besides the stream's own.
TIME_COLUMN: Final = "_event_time_ms"
POSITION_COLUMN: Final = "_position"
#: Column of rows for the sink, which the sink does not read: the number of events in the message.
EVENTS_COLUMN: Final = "events"

_SINK_COLUMNS: Final[dict[str, pa.DataType]] = {
    "stream": pa.string(),
    "subject": pa.string(),
    "data": pa.binary(),
    "content_type": pa.string(),
    "event_time_ms": pa.int64(),
    "producer": pa.string(),
    "position": pa.int64(),
    "first_position": pa.int64(),
    EVENTS_COLUMN: pa.int32(),
}
SINK_FIELDS: Final = pa.schema([pa.field(name, kind) for name, kind in _SINK_COLUMNS.items()])


def event_rows(
    channel: Channel,
    producer: str,
    rows: pa.RecordBatch,
    position: Longs,
    event_time_ms: Any | None,
    partition: int = 0,
) -> Iterator[pa.RecordBatch]:
    """Rows for the sink that carry ``rows`` to one partition of ``channel``.

    Args:
        channel: the target, which defines the format.
        producer: the name of the producer in markers.
        rows: n events.
        position: int64[n], growing.
        event_time_ms: int64[n], Arrow, or None if events have the broker's time.
        partition: of a keyed channel.
    """
    if not rows.num_rows:
        return
    if isinstance(rows, FewRows):
        if channel.format is Format.JSON or _are_single(rows, event_time_ms):
            yield _few_event_rows(channel, producer, rows, position, event_time_ms, partition)
            return
        rows = rows.whole()
    numbers: Any = pa.array(position)
    if channel.format is Format.JSON:
        times = event_time_ms if event_time_ms is not None else pa.nulls(len(position), pa.int64())
        yield _sink_rows(
            channel,
            producer,
            partition,
            JSON_TYPE,
            to_json(channel, rows),
            times,
            numbers,
            numbers,
            _ones(len(position)),
        )
        return
    # Each event has its position: a replay may divide messages differently, so a message may hold
    # events that are already published, which the sink drops.
    extended = rows.append_column(POSITION_COLUMN, numbers)
    if event_time_ms is not None:
        extended = extended.append_column(TIME_COLUMN, event_time_ms)
    messages, firsts = encode.to_arrow(extended, None, ROWS_PER_MESSAGE, _MESSAGE_BYTES)
    yield _sink_rows(
        channel,
        producer,
        partition,
        ARROW_TYPE,
        messages,
        pa.nulls(len(messages), pa.int64()),
        pa.array(position[firsts[1:] - 1]),
        pa.array(position[firsts[:-1]]),
        pa.array(np.diff(firsts), pa.int32()),
    )


def _are_single(rows: FewRows, event_time_ms: Any | None) -> bool:
    """Whether rows for an Arrow channel are JSON, each in a message of its own.

    An Arrow message takes longer to write and to read than a few of them.
    """
    if rows.num_rows > _SINGLE_MAX or event_time_ms is not None:
        return False
    return all(map(_is_short, itertools.chain.from_iterable(rows.lists.values())))


def _is_short(value: object) -> bool:
    """Whether JSON has the value, and not at six times its length as of control characters."""
    if type(value) is float:
        return math.isfinite(value)
    return type(value) is not str or len(value) <= _SHORT_TEXT


def _few_event_rows(
    channel: Channel,
    producer: str,
    rows: FewRows,
    position: Longs,
    event_time_ms: Any | None,
    partition: int,
) -> FewRows:
    """``event_rows`` of few rows, one in a message, without attributes that are objects."""
    count, positions = rows.num_rows, position.tolist()
    lists = {
        "stream": [channel.js_stream(partition)] * count,
        "subject": [channel.subject(partition)] * count,
        "data": encode.few_to_json(rows),
        "content_type": [JSON_TYPE] * count,
        "event_time_ms": [None] * count if event_time_ms is None else event_time_ms.tolist(),
        "producer": [producer] * count,
        "position": positions,
        "first_position": positions,
        EVENTS_COLUMN: [1] * count,
    }
    return FewRows(SINK_FIELDS, lists, count)


def _ones(count: int) -> Any:
    return _few_ones().slice(0, count) if count <= FEW else pa.array(np.ones(count, np.int32))


@cache
def _few_ones() -> Any:
    return pa.array(np.ones(FEW, np.int32))


def event_count(rows: pa.RecordBatch) -> int:
    """The number of events in rows for the sink."""
    if isinstance(rows, FewRows):
        return sum(rows.lists[EVENTS_COLUMN])
    return int(rows.column(EVENTS_COLUMN).to_numpy().sum())


def for_sink(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows as the sink takes them: without the counts."""
    return rows.drop_columns([EVENTS_COLUMN])


def has_objects(stream: StreamSchema) -> bool:
    """Whether an attribute is an object, which only Python can write as JSON."""
    return any(attribute.type is AttributeType.OBJECT for attribute in stream.attributes)


def to_json(channel: Channel, rows: pa.RecordBatch) -> Any:
    """pa.RecordBatch as JSON objects; an object is converted to the nearest JSON."""
    if not has_objects(channel.stream):
        return encode.to_json(rows)
    plain = [a.name for a in channel.stream.attributes if a.type is not AttributeType.OBJECT]
    events: list[dict[str, Any]] = rows.select(plain).to_pylist()
    for attribute in channel.stream.attributes:
        if attribute.type is AttributeType.OBJECT:
            values = from_binary(rows.column(attribute.name))
            for event, value in zip(events, values, strict=True):
                event[attribute.name] = python_value(value)
    names = channel.stream.names
    texts = [orjson.dumps({n: e[n] for n in names}, default=str) for e in events]
    return pa.array(texts, pa.binary())


def _sink_rows(
    channel: Channel,
    producer: str,
    partition: int,
    content_type: str,
    data: Any,
    event_time_ms: Any,
    position: Any,
    first_position: Any,
    events: Any,
) -> pa.RecordBatch:
    n = len(data)
    return pa.RecordBatch.from_arrays(
        [
            constant(channel.js_stream(partition), n),
            constant(channel.subject(partition), n),
            data,
            constant(content_type, n),
            event_time_ms,
            constant(producer, n),
            position,
            first_position,
            events,
        ],
        schema=SINK_FIELDS,
    )


def error_rows(
    io: InstanceIO,
    stream: str,
    messages: pa.RecordBatch | MessageRows,
    errors: Sequence[tuple[int, int, str]],
    part: str,
    queries: Sequence[str | None] | None = None,
) -> pa.RecordBatch:
    """Rows for the sink that record events of messages, with the reason.

    Of several events of a message each is recorded with its own text, or only the first of them
    with the message, so that the records are not larger than the message many times.

    Args:
        io: of the instance that read them.
        stream: the app's stream of these messages.
        messages: the source's raw rows: sequence, time_ms, data, event_time_ms; null for data that
            is not known.
        errors: (row in ``messages``, index of the event in its message, reason).
        part: the part of the group that read them.  It names a producer, whose rows are in one
            Spark partition, ordered by sequence.
        queries: for each error the query that failed, None for an unreadable event.
    """
    sequences = messages.column("sequence")
    positions = [sequences[row].as_py() * POSITIONS_PER_MESSAGE + index for row, index, _ in errors]
    data = [
        error_entry.of_unreadable(
            stream,
            sequences[row].as_py(),
            index,
            messages.column("time_ms")[row].as_py(),
            messages.column("event_time_ms")[row].as_py(),
            io.group.name,
            reason,
            *shown,
            query=query or "",
        )
        for (row, index, reason), shown, query in zip(
            errors, _data_of(messages, errors), queries or [None] * len(errors), strict=True
        )
    ]
    return _recorded(io, f"errors-{stream}-{part}", data, pa.array(positions, pa.int64()))


def refused_messages(
    io: InstanceIO,
    stream: str,
    messages: pa.RecordBatch | MessageRows,
    errors: Sequence[tuple[int, int, str]],
    part: str,
) -> pa.RecordBatch:
    """Rows for the sink that record messages at which the instance fails, see ``error_rows``.

    Each group that fails at one records it, with a producer of its own.
    """
    return error_rows(io, stream, messages, errors, f"{part}-refused-{io.group.name}")


def _data_of(
    messages: pa.RecordBatch | MessageRows, errors: Sequence[tuple[int, int, str]]
) -> Iterator[tuple[bytes | None, bool]]:
    """For each error the data to record, and whether it is one event of several."""
    indexes: dict[int, list[int]] = {}
    for row, index, _ in errors:
        indexes.setdefault(row, []).append(index)
    events: dict[int, list[bytes]] = {}
    for row, index, _ in errors:
        whole = messages.column("data")[row].as_py()
        is_first = row not in events
        if is_first:
            events[row] = error_entry.events_of(whole) if whole and indexes[row] != [0] else []
        if index < len(events[row]):
            yield events[row][index], True
        else:
            yield (whole if is_first else None), False


def failed_rows(io: InstanceIO, partition: int, run: OutputRun, by_events: bool) -> pa.RecordBatch:
    """Rows for the sink that record events on which queries of a stateful group failed.

    Args:
        io: of the instance.
        partition: the virtual partition whose operators they failed in.
        run: n events as reported by ``mesh.operators.failures``.
        by_events: whether their times are their own, not the broker's.
    """
    data = _failed_entries(io, run, by_events)
    return _recorded(io, f"failed-p{partition}", data, pa.array(run.position, pa.int64()))


def refused_rows(io: InstanceIO, partition: int, table: str, run: OutputRun) -> pa.RecordBatch:
    """Rows for the sink that record rows which the database of a table has refused.

    They leave later than the output of their run, so each table has positions of its own.
    """
    data = _failed_entries(io, run, by_events=False)
    part = f"refused-p{partition}-{hashlib.sha256(table.encode()).hexdigest()[:16]}"
    return _recorded(io, part, data, pa.array(run.position, pa.int64()))


def _failed_entries(io: InstanceIO, run: OutputRun, by_events: bool) -> list[bytes]:
    events: list[dict[str, str]] = run.rows.to_pylist()
    return [
        error_entry.of_failed(
            one["stream"],
            one["query"],
            time_ms,
            time_ms if by_events else None,
            io.group.name,
            one["reason"],
            one["event"],
        )
        for one, time_ms in zip(events, run.time_ms.tolist(), strict=True)
    ]


def within_size(
    io: InstanceIO, batches: Iterable[pa.RecordBatch], bytes_max: int
) -> Iterator[pa.RecordBatch]:
    """Rows for the sink, with entries of the error stream for those larger than NATS accepts.

    A refused row would be refused in each replay.

    Args:
        io: of the instance.
        batches: rows for the sink.
        bytes_max: most bytes of a payload.
    """
    for rows in batches:
        if messages_out.largest_size(rows) <= bytes_max:
            yield rows
            continue
        batch = as_batch(rows)
        sizes = sizes_of(batch.column("data"))
        outputs = io.group.outputs
        streams = {c.js_stream(n): c.stream.name for c in outputs for n in range(c.partitions)}
        is_large = sizes > bytes_max
        yield batch.filter(pa.array(~is_large))
        for row in batch.filter(pa.array(is_large)).to_pylist():
            reason = f"the event is a message of {len(row['data'])} bytes, more than {bytes_max}"
            stream, time_ms = streams.get(row["stream"], row["stream"]), row["event_time_ms"]
            entry = error_entry.of_failed(
                stream, "", time_ms or 0, time_ms, io.group.name, reason, row["data"]
            )
            # A producer has positions of its own in each stream.
            producer = f"{row['producer']}-large-{row['stream']}"
            yield _entries(io, producer, [entry], pa.array([row["position"]], pa.int64()))


def _recorded(io: InstanceIO, part: str, data: list[bytes], position: Any) -> pa.RecordBatch:
    return _entries(io, io.producer(part), data, position)


def _entries(io: InstanceIO, producer: str, data: list[bytes], position: Any) -> pa.RecordBatch:
    js_stream, subject = io.errors
    n = len(data)
    return pa.RecordBatch.from_arrays(
        [
            constant(js_stream, n),
            constant(subject, n),
            pa.array(data, pa.binary()),
            constant(JSON_TYPE, n),
            pa.nulls(n, pa.int64()),
            constant(producer, n),
            position,
            position,
            _ones(n),
        ],
        schema=SINK_FIELDS,
    )
