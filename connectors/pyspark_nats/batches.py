"""A task's work: read the ranges of a partition and give them as Arrow batches of bounded size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pyspark_nats import fetch, jetstream, rows, typed
from pyspark_nats.arrow import kernels
from pyspark_nats.connection import shared
from pyspark_nats.errors import DataLossError, SchemaError
from pyspark_nats.ranges import Blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql.types import StructType

    from pyspark_nats.connection import Connection
    from pyspark_nats.fetch import Messages
    from pyspark_nats.ranges import StreamRange
    from pyspark_nats.source_options import SourceOptions

#: Bounds of a batch that Spark is given.
_ROWS_MAX = 64 * 1024
_BYTES_MAX = 32 << 20


@dataclass(frozen=True, slots=True)
class Form:
    """How messages become rows: the schema of the rows and the function that makes them."""

    to_batch: Callable[[Messages], pa.RecordBatch]
    has_markers: bool


@dataclass(frozen=True, slots=True)
class _Marked:
    event_time_header: str

    def __call__(self, messages: Messages) -> pa.RecordBatch:
        return rows.marked(messages, self.event_time_header)


def form(options: SourceOptions, schema: StructType) -> Form:
    """How ``options`` want rows; it pickles.

    Raises:
        SchemaError: ``schema`` does not go with the format.
    """
    if options.format != "raw":
        return Form(typed.typed(options, schema), False)
    own = rows.MARKED if options.range_markers else rows.RAW
    if [field.name for field in schema.fields] != own.names:
        raise SchemaError(
            'the format "raw" has its own schema',
            detail=f"Its columns are {', '.join(own.names)}.",
            hint='Leave ".schema(...)" out, or set option "format" to "json" or "auto".',
        )
    if options.range_markers:
        return Form(_Marked(options.event_time_header), True)
    return Form(rows.raw, False)


def read(
    options: SourceOptions, shape: Form, ranges: Sequence[StreamRange]
) -> Iterator[pa.RecordBatch]:
    """The rows of ``ranges``, stream after stream, between range markers if they are wanted."""
    connection = shared(options.connection)
    if shape.has_markers:
        yield rows.range_markers(rows.RANGE_START, ranges)
    for wanted in ranges:
        for messages in _bounded(_messages(options, connection, wanted)):
            batch = shape.to_batch(messages)
            if batch.num_rows:
                yield batch
    if shape.has_markers:
        yield rows.range_markers(rows.RANGE_END, ranges)


def _messages(
    options: SourceOptions, connection: Connection, wanted: StreamRange
) -> Iterator[Messages]:
    """The messages of a range that are on the wanted subject."""
    if wanted.is_empty:
        return
    subject = options.subject_of(wanted.stream)
    blocks = Blocks(options.block_size, options.block_index, options.block_count)
    first = next(blocks.own(wanted.start, wanted.end), (0, 0))[0]
    is_checked = not options.fail_on_data_loss
    for part in fetch.read_range(connection, wanted, blocks):
        if not is_checked:
            _check_head(connection, wanted, first, int(part.sequence[0]))
            is_checked = True
        if subject:
            keep = kernels.equal(part.subject, subject).to_numpy(zero_copy_only=False)
            part = part.take(np.asarray(keep, bool))
        if len(part):
            yield part
    if not is_checked and first:
        _check_head(connection, wanted, first, wanted.end + 1)


def _check_head(connection: Connection, wanted: StreamRange, first: int, got: int) -> None:
    """Find out why a range does not begin with its first message: it may have expired just now."""
    if got <= first:
        return
    info = connection.riding(
        "checking for data loss",
        lambda: jetstream.stream_infos(connection, [wanted.stream])[wanted.stream],
    )
    if info.first > first:
        last = min(info.first - 1, wanted.end)
        raise DataLossError(
            f'stream "{wanted.stream}" does not hold sequences {first} to {last} any more',
            detail="They expired, or were purged, while they were being read.",
            hint='Set option "failOnDataLoss" to "false" to go on with what is there.',
        )


def _bounded(parts: Iterator[Messages]) -> Iterator[Messages]:
    """The same messages in batches below the bounds, small parts put together."""
    held: list[Messages] = []
    row_count = size = 0
    for part in parts:
        if held and (row_count + len(part) > _ROWS_MAX or size + part.data.nbytes > _BYTES_MAX):
            yield fetch.concatenated(held)
            held, row_count, size = [], 0, 0
        held.append(part)
        row_count += len(part)
        size += part.data.nbytes
    if held:
        yield fetch.concatenated(held)
