"""The Spark side of reading: offsets, partitions and batches, for streams and for tables.

Written for the API of Spark 4.2 and later: ``latestOffset(start, limit)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pyspark_nats import batches, jetstream, offsets, ranges
from pyspark_nats.connection import Connection, shared
from pyspark_nats.errors import DataLossError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_nats.ranges import StreamRange
    from pyspark_nats.source_options import SourceOptions


@dataclass(frozen=True)
class NatsPartition(InputPartition):
    """What one Spark task reads, in order."""

    ranges: tuple[StreamRange, ...]


def _partitions(
    options: SourceOptions, connection: Connection, start: ranges.Offset, end: ranges.Offset
) -> list[InputPartition]:
    """Plan the batch between two offsets, and check that the streams still hold it."""
    infos = connection.riding(
        "planning a batch", lambda: jetstream.stream_infos(connection, options.streams)
    )
    # A stream without a start is new to this query: it begins with what it has.
    known = {name: start.get(name, offsets.earliest(infos[name])) for name in options.streams}
    planned = ranges.plan(options.partitions, known, end)
    return [
        NatsPartition(tuple(_checked(r, infos[r.stream], options) for r in group))
        for group in planned
    ]


def _checked(
    wanted: StreamRange, info: jetstream.StreamInfo, options: SourceOptions
) -> StreamRange:
    state = ranges.StreamState(info.first, info.last, 0 if info.is_copy else info.created_ms)
    lost = ranges.loss(wanted, state)
    if lost is None:
        return wanted
    if not options.fail_on_data_loss:
        return ranges.without_loss(wanted, state)
    raise DataLossError(
        f'stream "{lost.stream}" does not hold sequences {lost.first} to {lost.last} any more',
        detail=f"It holds {info.first} to {info.last}: {lost.why}.",
        hint='Set option "failOnDataLoss" to "false" to go on with what is there.',
    )


class NatsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming query's view of the streams."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._form = batches.form(options, schema)
        #: Lives in the planner only: a task reads over its own process's connection.
        self._watch: offsets.Watch | None = None

    def initialOffset(self) -> dict[str, dict[str, int]]:
        """Where a query without a checkpoint starts."""
        return self._watched().initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        """``maxOffsetsPerTrigger``."""
        most = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(
        self, start: dict[str, dict[str, int]], limit: ReadLimit
    ) -> dict[str, dict[str, int]]:
        """Where the next batch ends; ``start`` itself when there is nothing to do."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._watched().latest(start, most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Take what is there now as the end."""
        self._watched().freeze()

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:
        """The ends of the streams as last seen, for the query's progress."""
        return self._watched().last_seen

    def partitions(
        self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]
    ) -> Sequence[InputPartition]:
        """One partition a list of streams, empty ones included."""
        return _partitions(self._options, self._watched().connection, start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        assert isinstance(partition, NatsPartition)
        return batches.read(self._options, self._form, partition.ranges)

    def commit(self, end: dict[str, dict[str, int]]) -> None:
        """Nothing to do: the position is in Spark's checkpoint, not in acks."""

    def stop(self) -> None:
        """Close the planner's connection."""
        if self._watch is not None:
            self._watch.connection.close()
            self._watch = None

    def _watched(self) -> offsets.Watch:
        if self._watch is None:
            self._watch = offsets.Watch(self._options, Connection(self._options.connection))
        return self._watch


class NatsReader(DataSourceReader):
    """A batch query's view: everything from ``startingOffsets`` to the ends as they are now."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._form = batches.form(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """One partition a list of streams."""
        connection = shared(self._options.connection)
        watch = offsets.Watch(self._options, connection)
        start = watch.initial()
        watch.freeze()
        return _partitions(self._options, connection, start, watch.latest(start, None))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        assert isinstance(partition, NatsPartition)
        return batches.read(self._options, self._form, partition.ranges)
