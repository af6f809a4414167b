"""Read task: reads the ranges of a Spark partition as Arrow batches of bounded size.

Reports of a batch's tasks to the query's planner: amount read and time taken.

Spark gives a source written in Python no metrics of its own, and its tasks run in other processes,
maybe on other machines.  All of them are connected to NATS, so each task publishes one message to
an inbox of the planner at its end.  A lost report affects only the query's progress.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_nats.errors import ConnectorError, SchemaError
from pyspark_nats.protocol import frames
from pyspark_nats.protocol.connection import Connection, DisconnectedError, shared
from pyspark_nats.source import fetch, messages, rows, typed_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_nats.protocol.connection_options import ConnectionOptions
    from pyspark_nats.source.messages import Messages
    from pyspark_nats.source.ranges import StreamRange
    from pyspark_nats.source.source_options import SourceOptions


#: Bounds of a batch for Spark.
_ROWS_MAX = 64 * 1024
_ROWS_ENOUGH = 8 * 1024
_BYTES_MAX = 32 << 20


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Layout of rows: their schema and the function that converts messages to them."""

    to_batches: Callable[[Messages], Iterable[pa.RecordBatch]]
    has_markers: bool
    #: The columns with the stream and the time of a message.
    places: tuple[str, ...] = ()
    #: Whether range markers have a column of headers, too.
    include_headers: bool = False


@dataclass(frozen=True, slots=True)
class WithRangeMarkers:
    """Makes rows of messages as the source has them where range markers are among them."""

    event_time_header: str
    include_headers: bool = False

    def __call__(self, part: Messages) -> Iterator[pa.RecordBatch]:
        """The rows of messages."""
        yield rows.marked(part, self.event_time_header, include_headers=self.include_headers)


@dataclass(frozen=True, slots=True)
class _Raw:
    include_headers: bool

    def __call__(self, part: Messages) -> Iterator[pa.RecordBatch]:
        yield rows.raw(part) if self.include_headers else rows.raw_without_headers(part)


def row_layout(options: SourceOptions, schema: StructType) -> RowLayout:
    """The layout for ``options``; it pickles.

    Raises:
        SchemaError: ``schema`` does not fit the format.
    """
    if options.format != "raw":
        return RowLayout(typed_rows.typed(options, schema), False, options.metadata)
    is_marked, has_headers = options.range_markers, options.include_headers
    expected = rows.marked_schema(has_headers) if is_marked else rows.raw_schema(has_headers)
    if [field.name for field in schema.fields] != expected.names:
        raise SchemaError(
            'the format "raw" has its own schema',
            detail=f"Its columns are {', '.join(expected.names)}.",
            hint='Leave ".schema(...)" out, or set option "format" to "json" or "auto".',
        )
    if is_marked:
        to_batches = WithRangeMarkers(options.event_time_header, has_headers)
        return RowLayout(to_batches, True, include_headers=has_headers)
    return RowLayout(_Raw(options.include_headers), False, tuple(expected.names))


def read(
    options: SourceOptions,
    shape: RowLayout,
    ranges: Sequence[StreamRange],
    address: ReportAddress | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of ``ranges``, stream after stream, between range markers if requested.

    Args:
        options: of the source.
        shape: layout of the rows.
        ranges: the ranges to read, in this order.
        address: receives a report of the amount read, at the end; None for no report.
    """
    connection = shared(options.connection)
    fetched = Fetched()
    blocks = options.blocks

    def parts() -> Iterator[Messages]:
        for span in ranges:
            read_parts = fetch.read_range(
                connection, span, blocks, is_loss_error=options.fail_on_data_loss
            )
            yield from _bounded(fetched.counting(read_parts, time.monotonic))

    yield from shaped(shape, ranges, parts())
    if address is not None:
        send(connection, address, fetched)


def shaped(
    shape: RowLayout, ranges: Sequence[StreamRange], parts: Iterable[Messages]
) -> Iterator[pa.RecordBatch]:
    """The rows of messages that have been read, between range markers if requested.

    Args:
        shape: layout of the rows.
        ranges: the ranges that were read.
        parts: their messages, in order.
    """
    if shape.has_markers:
        yield rows.range_markers(rows.RANGE_START, ranges, include_headers=shape.include_headers)
    for part in parts:
        yield from (batch for batch in shape.to_batches(part) if batch.num_rows)
    if shape.has_markers:
        yield rows.range_markers(rows.RANGE_END, ranges, include_headers=shape.include_headers)


def _bounded(parts: Iterator[Messages]) -> Iterator[Messages]:
    """The same messages in batches below the bounds, with small parts joined.

    A part that is large enough is emitted at once, so that Spark processes it while the next one
    arrives.
    """
    held: list[Messages] = []
    row_count = size = 0
    for part in parts:
        if held and (row_count + len(part) > _ROWS_MAX or size + part.data.nbytes > _BYTES_MAX):
            yield messages.concatenated(held)
            held, row_count, size = [], 0, 0
        held.append(part)
        row_count += len(part)
        size += part.data.nbytes
        if row_count >= _ROWS_ENOUGH:
            yield messages.concatenated(held)
            held, row_count, size = [], 0, 0
    if held:
        yield messages.concatenated(held)


@dataclass(frozen=True, slots=True)
class ReportAddress:
    """Recipient of the reports of one batch."""

    subject: str
    #: Distinguishes its reports from those of earlier batches.
    batch: int


@dataclass(slots=True)
class Fetched:
    """Amount that a task, or all tasks of a batch, received from the server."""

    messages: int = 0
    #: Payload bytes.
    bytes: int = 0
    #: Of the slowest task.
    fetch_ms: float = 0.0

    def counting(self, parts: Iterator[Messages], now_s: Callable[[], float]) -> Iterator[Messages]:
        """The same ``parts``, counted, with the time of fetching them."""
        while True:
            before_s = now_s()
            part = next(parts, None)
            self.fetch_ms += (now_s() - before_s) * 1000
            if part is None:
                return
            self.messages += len(part)
            self.bytes += part.data.nbytes
            yield part

    def add(self, other: Fetched) -> None:
        """Add another task's amount."""
        self.messages += other.messages
        self.bytes += other.bytes
        self.fetch_ms = max(self.fetch_ms, other.fetch_ms)


def send(connection: Connection, address: ReportAddress, fetched: Fetched) -> None:
    """Send the report to the planner; does not wait, and ignores failures."""
    values = {
        "batch": address.batch,
        "messages": fetched.messages,
        "bytes": fetched.bytes,
        "fetch_ms": round(fetched.fetch_ms, 3),
    }
    try:
        connection.send(frames.publish(address.subject, json.dumps(values).encode()))
    except (DisconnectedError, OSError):
        connection.close()


class Inbox:
    """The planner's side: a connection only for reports."""

    def __init__(self, options: ConnectionOptions) -> None:
        self._connection = Connection(options)
        self._subject = ""
        self._batch = 0
        self._total = Fetched()

    def address(self) -> ReportAddress | None:
        """The address for reports of the next batch; None if the server is unreachable."""
        self.collect()
        self._batch += 1
        self._total = Fetched()
        if not self._connection.is_open:
            try:
                _, self._subject = self._connection.retry_while_unavailable(
                    "listening to tasks", self._connection.new_inbox
                )
            except ConnectorError:
                return None
        return ReportAddress(self._subject, self._batch)

    def collect(self, now_s: Callable[[], float] = time.monotonic) -> Fetched:
        """The sum of the reports of the newest batch so far."""
        try:
            while self._connection.is_open and self._connection.is_readable():
                self._connection.receive(now_s() + 1)
                # One by one: they are few, and the first Arrow array of a process costs 0.2 s.
                while (frame := self._connection.next_frame()) is not None:
                    self._count(frame[3])
        except (DisconnectedError, OSError):
            self._connection.close()
        return self._total

    def _count(self, payload: bytes) -> None:
        report = json.loads(payload)
        if report.pop("batch") == self._batch:
            self._total.add(Fetched(**report))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
