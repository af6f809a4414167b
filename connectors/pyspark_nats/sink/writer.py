"""Spark writers: each task publishes its rows; commit has no further work.

Rows are published while a task runs.  A batch that fails half-way and is replayed finds its own
markers and skips the published rows.  No row waits for the commit of the whole batch.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pyspark_nats.encode import columns
from pyspark_nats.encode.row_mapping import RowMapper, Task
from pyspark_nats.errors import OptionError, RefusedError
from pyspark_nats.protocol import jetstream
from pyspark_nats.protocol.connection import Connection, shared
from pyspark_nats.sink import markers
from pyspark_nats.sink.markers import Origin
from pyspark_nats.sink.publish import RowPublisher

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_nats.encode.columns import ColumnRoles
    from pyspark_nats.sink.sink_options import SinkOptions


@dataclass
class CommitResult(WriterCommitMessage):
    """Result of a task: rows and producers."""

    rows: int
    #: (stream, producer) pairs.
    pairs: tuple[tuple[str, str], ...]


class NatsStreamWriter(DataSourceStreamArrowWriter):
    """For streaming queries."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._columns = columns.columns(options, schema)
        self._options = options
        if options.is_recut and options.is_exact and not self._columns.has_positions:
            raise OptionError(
                "with asynchronous progress tracking rows have to say their positions",
                detail="After a restart Spark may cut batches differently, and by their place in a "
                "batch rows can't be matched with the published ones.",
                hint='Keep the source\'s metadata "_stream,_sequence", give "producer" and '
                '"position", or set "deliveryGuarantee" to "at-least-once".',
            )

    def write(  # type: ignore[override]  # an Arrow writer takes batches
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Publish the rows of one task."""
        context = TaskContext.get()
        assert context is not None
        # Query and batch stay the same in a replay, even after a restart; the run of the query,
        # which names the jobs, does not.
        query = context.getLocalProperty("sql.streaming.queryId") or "query"
        batch_id = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        run = context.getLocalProperty("spark.jobGroup.id") or ""
        task = Task(
            base=self._options.producer or query,
            partition=context.partitionId(),
            batch_id=batch_id,
            run=f"{run[:8]}-{batch_id}" if run else "",
        )
        return write_rows(
            shared(self._options.connection), self._options, self._columns, task, iterator
        )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """No action: the rows are published."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """No action: the batch will be replayed and skip the published rows."""


class NatsWriter(DataSourceArrowWriter):
    """For batch queries: exactly once within the one write, even if its tasks are run again."""

    def __init__(
        self, options: SinkOptions, schema: StructType, *, overwrite: bool = False
    ) -> None:
        if overwrite:
            raise OptionError(
                "the nats sink only appends, and was asked to overwrite",
                hint='Write with mode("append"), and purge the stream yourself before if need be.',
            )
        self._columns = columns.columns(options, schema)
        self._options = options
        # Pickled with the writer, so that every attempt of a task uses the same name.
        self._run = uuid.uuid4().hex
        self._producer = options.producer or f"write-{self._run}"
        #: Whether the producer's name is unknown to other writers.
        self._is_private = not options.producer and "producer" not in self._columns.parts

    def write(  # type: ignore[override]  # an Arrow writer takes batches
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Publish the rows of one task."""
        context = TaskContext.get()
        assert context is not None
        task = Task(self._producer, context.partitionId(), batch_id=0, run=self._run[:12])
        return write_rows(
            shared(self._options.connection),
            self._options,
            self._columns,
            task,
            iterator,
            is_private=self._is_private,
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the markers of this write; they are not read again."""
        if not self._is_private:
            return
        pairs = {pair for m in messages if isinstance(m, CommitResult) for pair in m.pairs}
        with Connection(self._options.connection) as connection:
            for stream, producer in sorted(pairs):
                subject = markers.subject(self._options.marker_prefix, stream, producer)

                def clean(stream: str = stream, subject: str = subject) -> None:
                    jetstream.purge(connection, stream, subject)

                connection.retry_while_unavailable("removing markers", clean)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """No action: published rows can't be withdrawn."""


def write_rows(
    connection: Connection,
    options: SinkOptions,
    what: ColumnRoles,
    task: Task,
    batches: Iterator[pa.RecordBatch],
    *,
    is_private: bool = False,
) -> WriterCommitMessage:
    """Publish the rows of one task over a connection; those that are published are skipped."""
    is_counted = not what.has_positions
    publisher = RowPublisher(
        connection,
        options,
        Origin(task.run, task.partition, task.batch_id if is_counted else None),
        input_ms=(lambda producer: _input_ms(connection, task, producer))
        if what.has_source
        else None,
    )
    shaper = RowMapper(
        options, what, task, stream_of=lambda subject: _stream_of(connection, subject),
        out=publisher.out,
    )  # fmt: skip
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        for messages in shaper.push(batch):
            publisher.add(messages)
    for messages in shaper.finish():
        publisher.add(messages)
    if is_counted and options.is_exact and not is_private:
        stream = shaper.only_stream
        if stream:
            publisher.expect((stream, shaper.counted_producer))
    publisher.finish()
    return CommitResult(rows, publisher.pairs)


def _stream_of(connection: Connection, subject: str) -> str:
    """The stream that captures a subject."""
    stream = connection.retry_while_unavailable(
        "looking for the stream", lambda: jetstream.stream_of(connection, subject)
    )
    if stream is None:
        raise RefusedError(
            f'no JetStream stream takes the subject "{subject}"',
            hint='Create one, or name it with the column or option "stream".',
        )
    return stream


def _input_ms(connection: Connection, task: Task, producer: str) -> int:
    """When the source's stream of a producer was created; 0 if the sink's server has none."""
    stream = producer.removeprefix(f"{task.base}-")
    try:
        return jetstream.stream_infos(connection, [stream])[stream].created_ms
    except RefusedError:
        return 0
