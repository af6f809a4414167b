"""Mapping of DataFrame rows to messages: subject, payload, producer and position of each.

A message holds one row, or ``rowsPerMessage`` rows of one subject.  Messages of many rows are cut
by the row's number in the task and never at the ends of Arrow batches.  So a task that is run again
makes the same messages.

A position orders the rows of a producer.  Its origin is the first of these that exists:

* the columns ``producer`` and ``position`` (raw form);
* the source's ``_stream``, ``_sequence`` and ``_index``: one producer for each source stream.  Rows
  that are already published are dropped before the rest becomes messages, so batches may be cut
  anywhere;
* the batch and the number of the message in its task: one producer for each Spark partition.

Check of the values that are written: those that no reader gets back are refused.

JSON has no NaN and no infinities.  No format has times before year 1 or after year 9999: readers
refuse them, as ISO 8601 texts of four digits and Python's ``datetime`` do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pyspark_nats import encode
from pyspark_nats.arrow import arrow, concat_batches, kernels, rows_at
from pyspark_nats.decode import EVENT_TIME
from pyspark_nats.decode.values import DAYS_MAX, DAYS_MIN, TIMES_MAX, TIMES_MIN
from pyspark_nats.encode import columns, msgpack_rows
from pyspark_nats.errors import OrderError, SchemaError
from pyspark_nats.sink import messages_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from pyspark_nats.arrow import Array
    from pyspark_nats.encode.columns import ColumnRoles
    from pyspark_nats.sink.sink_options import SinkOptions

    Ints = npt.NDArray[np.int64]


#: Maximum number of events of one message if positions come from the source.
INDEX_BITS: Final = 20
#: Rows that are sorted by subject together, at least one message's; and their bytes.
_BLOCK_ROWS: Final = 1 << 16
_BLOCK_BYTES: Final = 16 << 20
#: Messages of a block from a source, which are published together.
_BLOCK_MESSAGES: Final = 900
#: Estimated size of a value of an array, a map or a struct, bytes.
_NESTED_BYTES: Final = 256

_CONTENT_TYPE: Final = {
    "json": "application/json",
    "msgpack": "application/msgpack",
    "arrow": "application/vnd.apache.arrow.stream",
}
_LINES_TYPE: Final = "application/x-ndjson"

#: Columns added to rows within a block.
_SUBJECT: Final = "\0subject"
_POSITION: Final = "\0position"


@dataclass(frozen=True, slots=True)
class Task:
    """The task that the rows belong to."""

    #: Prefix of the producers' names: a name of the query, or one from the user.
    base: str
    partition: int
    batch_id: int
    #: Name of this run of the batch; "" if unknown.
    run: str = ""


@dataclass
class RowMapper:
    """Maps the rows of one task to messages."""

    options: SinkOptions
    columns: ColumnRoles
    task: Task
    #: The JetStream stream that captures a subject.
    stream_of: Callable[[str], str]
    #: The position up to which a (stream, producer) is published, given that of its next row.
    out: Callable[[tuple[str, str], int], int]
    #: Most rows and bytes that are mapped together.
    block_rows: int = field(default=_BLOCK_ROWS, kw_only=True)
    block_bytes: int = field(default=_BLOCK_BYTES, kw_only=True)
    _count: int = 0
    _stream: str = ""
    _waiting: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    _last: dict[str, int] = field(default_factory=dict)

    @property
    def counted_producer(self) -> str:
        """The producer of rows with counted positions."""
        return f"{self.task.base}-{self.task.partition}"

    @property
    def only_stream(self) -> str:
        """The stream of all rows of the counted producer, also without rows; "" for none.

        It is unknown without rows if the rows name their streams.
        """
        said = self.columns.parts
        if "stream" in said:
            return ""
        if self.options.stream or self._stream:
            return self.options.stream or self._stream
        subject = self.options.subject
        is_fixed = subject.text and not subject.columns and "subject" not in said
        return self.stream_of(subject.text) if is_fixed else ""

    def push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Accept rows; gives messages, columns as ``messages_out.SCHEMA``."""
        if batch.num_rows == 0:
            return
        if self.options.rows_per_message == 1:
            yield self._singly(batch)
            return
        rows = self._extended(batch)
        for source in _values_of(rows, columns.STREAM) if self.columns.has_source else [""]:
            mine = rows if not source else _where(rows, columns.STREAM, source)
            yield from self._push_block(source, mine)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Convert the remaining rows to messages."""
        for source, waiting in self._waiting.items():
            if waiting:
                yield from self._messages(source, concat_batches(waiting))
        self._waiting.clear()

    def _event(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The event's columns, which can be read back."""
        rows = batch.select(list(self.columns.event))
        check_exact(self.options.format, rows)
        return rows

    # --- one row for each message

    def _singly(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        parts = {part: batch.column(name) for part, name in self.columns.parts.items()}
        if "subject" not in parts:
            parts["subject"] = self.options.subject(batch)
        form = self.options.format
        if form != "raw":
            parts["data"] = _payloads(form, self._event(batch))
            if form != "json":
                parts["content_type"] = pa.repeat(_CONTENT_TYPE[form], batch.num_rows)
        if self.columns.has_source:
            parts["producer"], parts["position"] = self._from_source(batch)
        first = self._first_position()
        self._count += batch.num_rows
        return self._completed(parts, first)

    def _from_source(self, batch: pa.RecordBatch) -> tuple[Array, Array]:
        producer = kernels.binary_join_element_wise(
            f"{self.task.base}-", batch.column(columns.STREAM), ""
        )
        return producer, pa.array(_source_positions(batch))

    def _first_position(self) -> int:
        return (self.task.batch_id << messages_out.ROWS_BITS) + self._count

    def _completed(self, parts: dict[str, Array], first_position: int) -> pa.RecordBatch:
        subjects = parts["subject"]
        return messages_out.with_schema_columns(
            arrow.RecordBatch.from_arrays(list(parts.values()), names=list(parts)),
            stream="" if "stream" in parts else self._stream_for(subjects),
            subject="",
            producer=self.counted_producer,
            first_position=first_position,
        )

    def _stream_for(self, subjects: Array) -> str:
        """The stream of all rows without a column for it."""
        if self.options.stream or not self.options.is_exact:
            return self.options.stream
        if not self._stream:
            first = subjects[0].as_py()
            if first is None:
                raise SchemaError('column "subject" is null in a row')
            self._stream = self.stream_of(first)
        return self._stream

    # --- many rows a message

    def _extended(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The event's columns, with further columns for time, subject, stream and position."""
        rows = self._event(batch)
        if "event_time_ms" in self.columns.parts:
            times = batch.column(self.columns.parts["event_time_ms"]).cast(pa.int64())
            rows = rows.append_column(EVENT_TIME, times)
        if "subject" in self.columns.parts:
            subjects = batch.column(self.columns.parts["subject"])
            if subjects.null_count:
                raise SchemaError('column "_subject" is null in a row')
        else:
            subjects = self.options.subject(batch)
        rows = rows.append_column(_SUBJECT, subjects)
        if self.columns.has_source:
            rows = rows.append_column(columns.STREAM, batch.column(columns.STREAM))
            rows = rows.append_column(_POSITION, pa.array(_source_positions(batch)))
        return rows

    def _push_block(self, source: str, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if source:
            rows = self._not_out(source, rows)
        if rows.num_rows == 0:
            return
        waiting = self._waiting.setdefault(source, [])
        waiting.append(rows)
        rows_max = max(self.options.rows_per_message, self.block_rows)
        while waiting:
            # The rows define the end of a block, in whatever batches they arrived.
            whole = concat_batches(waiting)
            size = _block_rows(whole, rows_max, self.block_bytes)
            if size is None:
                waiting[:] = [whole]
                return
            yield from self._messages(source, whole.slice(0, size))
            waiting[:] = [whole.slice(size)] if size < whole.num_rows else []

    def _not_out(self, source: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a source stream that are not published yet."""
        producer = f"{self.task.base}-{source}"
        positions = messages_out.positions(rows, _POSITION)
        before = np.concatenate(([self._last.get(source, -1)], positions[:-1]))
        wrong = np.flatnonzero(positions <= before)
        if len(wrong):
            at = int(wrong[0])
            raise OrderError(
                f'rows of stream "{source}" give position {positions[at]} after {before[at]}',
                hint='An event gives one row at the most; or drop the columns "_stream" and '
                '"_sequence" before writing.',
            )
        self._last[source] = int(positions[-1])
        if not self.options.is_exact:
            return rows
        stream = self._stream_for(rows.column(_SUBJECT))
        out = self.out((stream, producer), int(positions[0]))
        return rows.slice(int(np.searchsorted(positions, out, side="right")))

    def _messages(self, source: str, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The messages of one block."""
        if rows.num_rows == 0:
            return
        order, bounds = _by_subject(rows.column(_SUBJECT), self.options.rows_per_message)
        if source and len(bounds) - 1 > _BLOCK_MESSAGES:
            half = rows.num_rows // 2
            yield from self._messages(source, rows.slice(0, half))
            yield from self._messages(source, rows.slice(half))
            return
        if not (np.diff(order) == 1).all():
            rows = rows.take(rows_at(order))
        subjects = rows.column(_SUBJECT).take(rows_at(bounds[:-1]))
        count = len(subjects)
        extra = [
            name for name in rows.schema.names if name in (_SUBJECT, _POSITION, columns.STREAM)
        ]
        data, content_type = _joined(self.options.format, _without(rows, extra), bounds)
        parts = {
            "subject": subjects,
            "data": data,
            "content_type": pa.repeat(content_type, count),
        }
        if source:
            positions = messages_out.positions(rows, _POSITION)
            parts["producer"] = pa.repeat(f"{self.task.base}-{source}", count)
            parts["position"] = pa.repeat(int(positions.max()), count)
            parts["first_position"] = pa.repeat(int(positions.min()), count)
        first = self._first_position()
        self._count += count
        yield self._completed(parts, first)


def _source_positions(batch: pa.RecordBatch) -> Ints:
    """The position of each row by its source.

    Raises:
        SchemaError: one of the columns is null in a row, or out of bounds.
    """
    has_index = columns.INDEX in batch.schema.names
    for name in (columns.STREAM, columns.SEQUENCE, *([columns.INDEX] if has_index else [])):
        if batch.column(name).null_count:
            raise SchemaError(f'column "{name}" is null in a row', hint="It gives the position.")
    sequence = messages_out.positions(batch, columns.SEQUENCE)
    if not has_index:
        return sequence << INDEX_BITS
    index = messages_out.positions(batch, columns.INDEX)
    if ((index < 0) | (index >> INDEX_BITS != 0)).any():
        raise SchemaError(f'column "_index" is not from 0 to {(1 << INDEX_BITS) - 1} in a row')
    return (sequence << INDEX_BITS) | index


def _payloads(form: str, rows: pa.RecordBatch) -> Array:
    """A payload for each row."""
    if form == "json":
        return encode.to_json(rows)
    if form == "msgpack":
        return msgpack_rows.to_msgpack(rows)
    return encode.to_arrow(rows, None, 1)[0]


def _joined(form: str, rows: pa.RecordBatch, bounds: Ints) -> tuple[Array, str]:
    """A payload for the rows between each two of ``bounds``, and their content type."""
    if form == "arrow":
        return encode.arrow_streams(rows, bounds), _CONTENT_TYPE[form]
    heads = np.full(rows.num_rows, b"", object)
    tail = b"\n"
    if form == "msgpack":
        heads[bounds[:-1]] = [msgpack_rows.array_head(int(n)) for n in np.diff(bounds)]
        tail = b""
    each = kernels.binary_join_element_wise(
        pa.array(heads, pa.binary()), _payloads(form, rows), pa.scalar(tail, pa.binary()),
        pa.scalar(b"", pa.binary()),
    )  # fmt: skip
    # Payloads are contiguous in memory: those of a message are one slice of it.
    _, offsets, octets = each.buffers()
    ends = np.frombuffer(offsets, np.int32)[each.offset :][bounds]
    data = pa.Array.from_buffers(
        pa.binary(), len(bounds) - 1, [None, pa.py_buffer(ends.tobytes()), octets]
    )
    return data, _LINES_TYPE if form == "json" else _CONTENT_TYPE[form]


def _by_subject(subjects: Array, size: int) -> tuple[Ints, Ints]:
    """The order that groups rows by subject, and the bounds of the messages in it.

    Subjects are in the order of their first rows.
    """
    codes = subjects.dictionary_encode().indices.to_numpy().astype(np.int64)
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    within = np.arange(len(ordered)) - starts[ordered]
    return order, np.append(np.flatnonzero(within % size == 0), len(ordered))


def _block_rows(rows: pa.RecordBatch, rows_max: int, bytes_max: int) -> int | None:
    """Number of rows in the first block; None if it may get more rows."""
    ends = np.cumsum(_sizes(rows))
    if rows.num_rows < rows_max and ends[-1] <= bytes_max:
        return None
    return max(1, min(int(np.searchsorted(ends, bytes_max, side="right")), rows_max))


def _sizes(rows: pa.RecordBatch) -> Ints:
    """Approximate size of each row, bytes; independent of the batch of the row."""
    sizes = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        kind = column.type
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            lengths = kernels.fill_null(kernels.binary_length(column), 0)
            sizes += lengths.to_numpy(zero_copy_only=False).astype(np.int64)
        else:
            sizes += _NESTED_BYTES if pa.types.is_nested(kind) else 8
    return sizes


def _values_of(rows: pa.RecordBatch, name: str) -> list[str]:
    return [str(value) for value in kernels.unique(rows.column(name)).to_pylist()]


def _where(rows: pa.RecordBatch, name: str, value: str) -> pa.RecordBatch:
    return rows.filter(kernels.equal(rows.column(name), value))


def _without(rows: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
    return rows.select([name for name in rows.schema.names if name not in names])


def check_exact(form: str, rows: pa.RecordBatch) -> None:
    """SchemaError, naming the column, if a value is not read back as the same value."""
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        for values in _leaves(column):
            if pa.types.is_floating(values.type):
                if form == "json":
                    _check_finite(name, values)
            elif not _are_readable(values):
                raise SchemaError(
                    f'column "{name}" is a time before year 1 or after year 9999 in a row',
                    hint="Cast it to a string, or make it null.",
                )


def _leaves(column: Array) -> Iterator[Array]:
    """The floating-point numbers, timestamps and dates in a column, at any depth."""
    types, kind = pa.types, column.type
    if types.is_map(kind):
        # Its keys are strings.
        first, last = _bounds(column)
        yield from _leaves(column.items.slice(first, last - first))
    elif types.is_list(kind):
        yield from _leaves(column.flatten())
    elif types.is_struct(kind):
        for child in column.flatten():
            yield from _leaves(child)
    elif types.is_floating(kind) or types.is_timestamp(kind) or types.is_date32(kind):
        yield column


def _bounds(maps: Array) -> tuple[int, int]:
    """The first item of a column of maps, and the end of its last."""
    offsets = maps.offsets
    return offsets[0].as_py(), offsets[-1].as_py()


def _check_finite(name: str, values: Array) -> None:
    if kernels.all(kernels.is_finite(values)).as_py() is False:
        wrong = values.filter(kernels.invert(kernels.is_finite(values)))[0].as_py()
        shown = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(wrong)]
        raise SchemaError(
            f'column "{name}" is {shown} in a row, which JSON does not have',
            hint='Make it null, for example with nanvl(x, NULL), or set "format" to "msgpack" or '
            '"arrow".',
        )


def _are_readable(times: Array) -> bool:
    is_day = pa.types.is_date32(times.type)
    low, high = (DAYS_MIN, DAYS_MAX) if is_day else (TIMES_MIN, TIMES_MAX)
    bounds = kernels.min_max(times.view(pa.int32() if is_day else pa.int64())).as_py()
    return bounds["min"] is None or (low <= bounds["min"] and bounds["max"] <= high)
