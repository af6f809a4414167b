"""The Spark side of writing: each task publishes its rows; commit has nothing left to do.

Rows go out while a task runs, so a batch that fails half-way and is run again meets its own markers
and skips what is out.  Nothing waits for the commit of the whole batch.
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

from pyspark_nats import jetstream, markers, outgoing
from pyspark_nats.connection import Connection, shared
from pyspark_nats.errors import RefusedError
from pyspark_nats.publish import Publisher

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_nats.sink_options import SinkOptions

#: Rows of one task and batch that are told apart when positions are derived.
_ROWS_BITS = 32


@dataclass
class Written(WriterCommitMessage):
    """What a task has written."""

    rows: int
    #: (stream, producer) pairs.
    pairs: tuple[tuple[str, str], ...]


class NatsStreamWriter(DataSourceStreamArrowWriter):
    """For streaming queries."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        outgoing.check_columns(schema.fieldNames(), has_subject=bool(options.subject))
        self._options = options

    def write(  # type: ignore[override]  # an Arrow writer takes batches
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Publish the rows of one task."""
        context = TaskContext.get()
        assert context is not None
        # Both stay the same when the batch is run again, after a restart too.
        query = context.getLocalProperty("sql.streaming.queryId") or "query"
        batch_id = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        producer = f"{self._options.producer or query}-{context.partitionId()}"
        return _write(self._options, iterator, producer, batch_id << _ROWS_BITS)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to do: the rows are out."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to do: the batch will be run again, and skip what is out."""


class NatsWriter(DataSourceArrowWriter):
    """For batch queries: exactly once within the one write, also when its tasks are run again."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        names = schema.fieldNames()
        outgoing.check_columns(names, has_subject=bool(options.subject))
        self._options = options
        # Pickled with the writer, so that every attempt of a task uses the same name.
        self._producer = options.producer or f"write-{uuid.uuid4().hex}"
        self._is_own = not options.producer and "producer" not in names

    def write(  # type: ignore[override]  # an Arrow writer takes batches
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Publish the rows of one task."""
        context = TaskContext.get()
        assert context is not None
        return _write(self._options, iterator, f"{self._producer}-{context.partitionId()}", 0)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Take the markers of this one write away; nobody will ask for them again."""
        if not self._is_own or self._options.delivery != "exactly-once":
            return
        pairs = {pair for m in messages if isinstance(m, Written) for pair in m.pairs}
        with Connection(self._options.connection) as connection:
            for stream, producer in sorted(pairs):
                subject = markers.subject(self._options.marker_prefix, stream, producer)

                def clean(stream: str = stream, subject: str = subject) -> None:
                    jetstream.purge(connection, stream, subject)

                connection.riding("removing markers", clean)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing to do: what is out can't be taken back."""


def _write(
    options: SinkOptions, batches: Iterator[pa.RecordBatch], producer: str, position: int
) -> WriterCommitMessage:
    connection = shared(options.connection)
    publisher = Publisher(connection, options)
    rows = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        stream = ""
        if "stream" not in batch.schema.names and options.delivery == "exactly-once":
            stream = options.stream or _stream_of(connection, options, batch)
        publisher.write(
            outgoing.completed(
                batch,
                stream=stream,
                subject=options.subject,
                producer=producer,
                first_position=position + rows,
            )
        )
        rows += batch.num_rows
    return Written(rows, publisher.pairs)


def _stream_of(connection: Connection, options: SinkOptions, batch: pa.RecordBatch) -> str:
    """The stream that takes the batch's first subject."""
    names = batch.schema.names
    subject = batch.column("subject")[0].as_py() if "subject" in names else options.subject
    found = connection.riding(
        "looking for the stream", lambda: jetstream.stream_of(connection, subject)
    )
    if found is None:
        raise RefusedError(
            f'no JetStream stream takes the subject "{subject}"',
            hint='Create one, or name it with the column or option "stream".',
        )
    return found
