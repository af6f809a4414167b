"""Dedicated query of one instance: source, task, sink."""

from __future__ import annotations

from functools import partial, reduce
from typing import TYPE_CHECKING, Final

import orjson

from mesh.model import names
from mesh.spark.dedicated_query import tracing
from mesh.spark.dedicated_query.observing import SampledTask, new_samples
from mesh.spark.instance_io import (
    BatchLimits,
    InstanceIO,
    source_options,
    typed_schema,
)
from mesh.spark.session import UNLOGGED
from pyspark_nats.decode.limits import USUAL, MessageLimits
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.protocol.connection_options import connection_options
from pyspark_nats.sink import messages_out

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from mesh.spark.dedicated_query.observing import Samples
    from mesh.spark.task_states import TaskStates

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
    options = source_options(io, parts, common, limits, wakeup) | tracing.marked_options()
    source = session.readStream.format("nats").options(**options, haltPath=halts.next()).load()
    task = PartitionTask(
        io, str(directory), restored, limits=limits.message, states=states,
        broker_ms=partial(broker_ms, dict(nats)),
    )  # fmt: skip
    sized = SampledTask(io, task, room, samples)
    return source.mapInArrow(*tracing.traced(io, sized, tracing.MARKED_COLUMN))


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
        options = source_options(io, (js_stream,), common, limits) | tracing.typed_options()
        reader = session.readStream.format("nats").options(**options, haltPath=halts.next())
        schema = typed_schema(inputs[js_stream].channel.stream)
        return reader.schema(tracing.with_headers(schema)).load()

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
        done = tracing.traced(io, sized, tracing.TYPED_COLUMN)
        frames.append(read(js_stream).mapInArrow(*done))
    return reduce(lambda a, b: a.unionAll(b), frames)


def _room(nats: Mapping[str, str]) -> int:
    """Most bytes of a payload that the server accepts."""
    with Connection(connection_options(nats)) as connection:
        return connection.retry_while_unavailable(
            "asking for the largest payload", lambda: messages_out.room(connection)
        )
