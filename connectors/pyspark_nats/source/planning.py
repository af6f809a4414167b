"""Plan of a batch: two offsets become Spark partitions, checked against the streams' content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from pyspark_nats.errors import DataLossError
from pyspark_nats.protocol import jetstream
from pyspark_nats.source import offsets, ranges

if TYPE_CHECKING:
    from pyspark_nats.protocol.connection import Connection
    from pyspark_nats.source.batches import ReportAddress
    from pyspark_nats.source.ranges import StreamRange
    from pyspark_nats.source.source_options import SourceOptions


@dataclass(frozen=True)
class NatsPartition(InputPartition):
    """Input of one Spark task, in order."""

    ranges: tuple[StreamRange, ...]
    #: Receives the report of the amount read; None for no report.
    address: ReportAddress | None = None


def partitions(
    options: SourceOptions,
    connection: Connection,
    start: ranges.Offset,
    end: ranges.Offset,
    address: ReportAddress | None = None,
) -> list[InputPartition]:
    """Plan the batch between two offsets.

    Raises:
        DataLossError: a stream does not hold all messages any more.
    """
    infos = connection.retry_while_unavailable(
        "planning a batch", lambda: jetstream.stream_infos(connection, options.streams)
    )
    # A stream without a start is new to this query: it starts at its first message.
    starts = {name: start.get(name, offsets.earliest(infos[name])) for name in options.streams}
    whole = ranges.plan(_pairs(options), starts, end)
    checked = [[_checked(one, infos[one.stream], options) for one in group] for group in whole]
    groups = ranges.split(checked, options.partitions_min, options.partition_records_max)
    return [NatsPartition(group, address) for group in groups]


def _pairs(options: SourceOptions) -> list[list[tuple[str, tuple[str, ...]]]]:
    """The (stream, subjects) pairs of each partition."""
    if options.parallel_by == "subject":
        return [
            [(stream, (subject,))]
            for stream in options.streams
            for subject in options.subjects_of(stream)
        ]
    return [[(stream, options.subjects_of(stream)) for stream in g] for g in options.partitions]


def _checked(span: StreamRange, info: jetstream.StreamInfo, options: SourceOptions) -> StreamRange:
    state = ranges.StreamState(info.first, info.last, info.created_ms, info.is_copy)
    lost = ranges.loss(span, state)
    if lost is None:
        return span
    if not options.fail_on_data_loss:
        return ranges.without_loss(span, state)
    raise DataLossError(
        f'stream "{lost.stream}" does not hold sequences {lost.first} to {lost.last} any more',
        detail=f"It holds {info.first} to {info.last}: {lost.why}.",
        hint='Set option "failOnDataLoss" to "false" to continue with the existing messages.',
    )
