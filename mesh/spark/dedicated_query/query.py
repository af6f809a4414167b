"""Dedicated query of one instance: source, task, sink.

Spans of the tasks of a dedicated query, one for each partition of a batch with messages.

    source: column of headers ──▶ task: links ──▶ rows with a column of headers ──▶ sink

Range markers and typed rows have no headers, so the source adds a column of them, and the rows for
the sink have one.  Both are there only if traces are on when the query starts.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Final

import numpy as np
import orjson
import pyarrow as pa
from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

from mesh.model import names
from mesh.spark.dedicated_query.observing import SampledTask, new_samples
from mesh.spark.instance_io import (
    METADATA,
    SINK_SCHEMA,
    BatchLimits,
    InstanceIO,
    source_options,
    typed_schema,
)
from mesh.spark.session import UNLOGGED
from mesh.telemetry import traces
from pyspark_nats.arrow import arrow, kernels
from pyspark_nats.decode.result import USUAL, MessageLimits
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.protocol.connection_options import connection_options
from pyspark_nats.sink import messages_out
from pyspark_nats.source.rows import MESSAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from mesh.spark.dedicated_query.observing import Samples
    from mesh.spark.task_states import TaskStates

    Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

#: Bounds a batch in bytes by the average message size: Arrow batches have no bound of their own
#: (``pyspark_nats.tuning``).
BATCH_BYTES: Final = 64 << 20


def start(
    session: SparkSession,
    io: InstanceIO,
    directory: Path,
    *,
    nats: Mapping[str, str],
    batch_rows_max: int,
    offsets: Mapping[str, Mapping[str, int]] | None,
    restored: frozenset[int],
    message: MessageLimits = USUAL,
    states: TaskStates | None = None,
) -> tuple[StreamingQuery, tuple[Path, ...], Accumulator[Samples]]:
    """Start the query of an instance.

    Args:
        session: of the worker.
        io: of the instance.
        directory: scratch for this run, with the restored state in it.
        nats: options of source and sink for the NATS connection.
        batch_rows_max: most messages a batch takes from one JetStream stream.
        offsets: start offsets by JetStream stream; None for the beginning.
        restored: partitions whose state was restored.
        message: limits of one message.
        states: place of the states, if it is not the directory.

    Returns:
        The query, the ``haltPath`` of each of its sources, and what its tasks sample.
    """
    halts = _HaltPaths(directory)
    common = {
        **nats,
        "startingOffsets": orjson.dumps(offsets).decode() if offsets else "earliest",
    }
    limits = BatchLimits(batch_rows_max, BATCH_BYTES, message)
    room = _room(nats)
    samples = new_samples(session.sparkContext)
    if io.group.stateful:
        rows = _stateful(
            session, io, directory, common, limits, restored, halts, room, states, samples, nats
        )
    else:
        rows = _stateless(session, io, common, limits, halts, room, samples)
    instance = io.assignment.instance
    # Spark looks a Python sink up in the active session of the calling thread.  Threads started
    # here have none, so "nats" would not be found.
    jvm = session._jvm
    assert jvm is not None, "the session has ended"
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)
    session.sparkContext.setLocalProperty("spark.scheduler.pool", instance)
    running = (
        rows.writeStream.format("nats")
        .options(**nats, **UNLOGGED)
        .option("epoch", str(io.assignment.epoch))
        .option("markerPrefix", names.MARKERS)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .queryName(f"{instance}-{io.assignment.epoch}")
        .outputMode("append")
        .start()
    )
    return running, tuple(halts.context), samples


class _HaltPaths:
    """Gives each source of a query a ``haltPath`` of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "halt"
        self._directory.mkdir(parents=True)
        self.context: list[Path] = []

    def next(self) -> str:
        self.context.append(self._directory / str(len(self.context)))
        return str(self.context[-1])


def _stateful(
    session: SparkSession,
    io: InstanceIO,
    directory: Path,
    common: Mapping[str, str],
    limits: BatchLimits,
    restored: frozenset[int],
    halts: _HaltPaths,
    room: int,
    states: TaskStates | None,
    samples: Accumulator[Samples],
    nats: Mapping[str, str],
) -> DataFrame:
    # The operators, which sessions without dedicated queries do not load.
    from mesh.spark.partition_task import PartitionTask
    from mesh.spark.store_output import broker_ms

    wakeup = directory / "wakeup"
    wakeup.mkdir()
    parts = [str(partition) for partition in io.partitions]
    options = source_options(io, parts, common, limits, wakeup) | marked_options()
    source = session.readStream.format("nats").options(**options, haltPath=halts.next()).load()
    task = PartitionTask(
        io, str(directory), restored, limits=limits.message, states=states,
        broker_ms=partial(broker_ms, dict(nats)),
    )  # fmt: skip
    sized = SampledTask(io, task, room, samples)
    return source.mapInArrow(*traced(io, sized, MARKED_COLUMN))


def _stateless(
    session: SparkSession,
    io: InstanceIO,
    common: Mapping[str, str],
    limits: BatchLimits,
    halts: _HaltPaths,
    room: int,
    samples: Accumulator[Samples],
) -> DataFrame:
    inputs = io.input_streams(0)

    def read(js_stream: str) -> DataFrame:
        options = source_options(io, (js_stream,), common, limits) | typed_options()
        reader = session.readStream.format("nats").options(**options, haltPath=halts.next())
        schema = typed_schema(inputs[js_stream].channel.stream)
        return reader.schema(with_headers(schema)).load()

    return stateless_rows(io, read, room, samples)


def stateless_rows(
    io: InstanceIO,
    read: Callable[[str], DataFrame],
    room: int,
    samples: Accumulator[Samples] | None = None,
) -> DataFrame:
    """A group without state as rows for the sink.

    Args:
        io: of the instance.
        read: gives the typed rows of an input.
        room: most bytes of a payload.
        samples: receives times of the rows; None for no latencies.
    """
    # As above.
    from mesh.spark.stateless_task import input_tasks

    frames = []
    for js_stream, task in input_tasks(io).items():
        sized = SampledTask(io, task, room, samples)
        done = traced(io, sized, TYPED_COLUMN)
        frames.append(read(js_stream).mapInArrow(*done))
    return reduce(lambda a, b: a.unionAll(b), frames)


def _room(nats: Mapping[str, str]) -> int:
    """Most bytes of a payload that the server accepts."""
    with Connection(connection_options(nats)) as connection:
        return connection.retry_while_unavailable(
            "asking for the largest payload", lambda: messages_out.room(connection)
        )


#: Columns with headers: of range markers and of typed rows, and of rows for the sink.
MARKED_COLUMN: Final = "headers"
TYPED_COLUMN: Final = "_headers"
_SINK_COLUMN: Final = pa.field("headers", pa.map_(pa.string(), pa.string()))
_SINK_SCHEMA: Final = f"{SINK_SCHEMA}, headers map<string,string>"


def is_on() -> bool:
    """Whether this process sends spans."""
    return bool(os.environ.get(traces.ENDPOINT_VARIABLE))


def marked_options() -> dict[str, str]:
    """Further options of the source of a group with state."""
    return {"includeHeaders": "true"} if is_on() else {}


def typed_options() -> dict[str, str]:
    """Further options of the source of a group without state."""
    return {"metadata": ",".join((*METADATA, TYPED_COLUMN))} if is_on() else {}


def with_headers(schema: StructType) -> StructType:
    """The typed columns of the source, with ``typed_options``."""
    if not is_on():
        return schema
    kind = MapType(StringType(), ArrayType(StringType()))
    return StructType([*schema.fields, StructField(TYPED_COLUMN, kind)])


def traced(io: InstanceIO, task: Task, column: str) -> tuple[Task, str]:
    """A task with the schema of its rows; it makes spans of its batches if traces are on."""
    return (TracedTask(io, task, column), _SINK_SCHEMA) if is_on() else (task, SINK_SCHEMA)


@dataclass(frozen=True, slots=True)
class TracedTask:
    """A task that links its span to the messages, and gives its rows the header; it pickles."""

    io: InstanceIO
    task: Task
    #: Column with the headers of messages.
    column: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the task, with a column of headers."""
        assignment = self.io.assignment
        trace = traces.begin(
            f"process {self.io.group.name}",
            mesh_app=assignment.app,
            mesh_instance=assignment.instance,
        )
        count, has_rows = 0, False

        def traced() -> Iterator[pa.RecordBatch]:
            nonlocal count
            for batch in batches:
                if trace is not None:
                    count += _messages(batch)
                    trace.look(parents(batch.column(self.column)))
                yield batch.drop_columns([self.column])

        try:
            for rows in self.task(traced()):
                has_rows = has_rows or rows.num_rows > 0
                parent = trace.publishing_parent() if trace is not None and rows.num_rows else ""
                yield with_parent(rows, parent)
        except Exception as error:
            if trace is not None:
                trace.end(error)
            raise
        # Spark runs a task for partitions without messages, too.
        if trace is not None and (count or has_rows):
            trace.end(messaging_batch_message_count=count)


def parents(headers: object) -> list[str | None]:
    """Each ``traceparent`` once, in the order of the messages.

    Args:
        headers: length n, map of string to a list of strings; null for a range marker.
    """
    values = kernels.map_lookup(headers, pa.scalar(traces.HEADER), "first")
    return kernels.unique(kernels.list_element(values, 0)).to_pylist()  # type: ignore[no-any-return]


def with_parent(rows: pa.RecordBatch, parent: str) -> pa.RecordBatch:
    """Rows for the sink with this ``traceparent``; empty for none."""
    count = rows.num_rows
    column = pa.nulls(count, _SINK_COLUMN.type)
    if parent:
        column = arrow.MapArray.from_arrays(
            pa.array(np.arange(count + 1, dtype=np.int32)),
            pa.repeat(pa.scalar(traces.HEADER), count),
            pa.repeat(pa.scalar(parent), count),
        )
    schema = rows.schema.append(_SINK_COLUMN)
    return pa.RecordBatch.from_arrays([*rows.columns, column], schema=schema)


def _messages(batch: pa.RecordBatch) -> int:
    if "kind" not in batch.schema.names:
        return batch.num_rows
    return int(kernels.sum(kernels.equal(batch.column("kind"), MESSAGE)).as_py() or 0)
