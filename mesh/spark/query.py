"""Streaming query of a dedicated instance: source, processing, sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson
from pyspark.sql import functions as F

from mesh.model import names
from mesh.model.app import GroupInput, Strategy
from mesh.spark import stateless
from mesh.spark.expressions import SPARK_TYPES
from mesh.spark.host import HostTask
from mesh.spark.session import UNLOGGED
from mesh.spark.wiring import (
    METADATA,
    ROUND_ROBIN_BLOCK,
    SINK_SCHEMA,
    Wiring,
    js_stream_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


#: Limit of a batch in bytes, by the messages' average size: Arrow batches have no limit of their
#: own (``pyspark_nats.tuning``).
BATCH_BYTES: Final = 64 << 20
#: Names of the observed metrics: the number of rows for the sink, and of recorded errors among
#: them.
ROWS_OUT = "rows_out"
ERRORS = "errors"


def start(
    session: SparkSession,
    wiring: Wiring,
    directory: Path,
    *,
    nats: Mapping[str, str],
    batch_rows_max: int,
    offsets: Mapping[str, Mapping[str, int]] | None,
    restored: frozenset[int],
) -> tuple[StreamingQuery, tuple[Path, ...]]:
    """Start the query of an instance.

    Args:
        session: the worker's.
        wiring: its inputs and outputs.
        directory: scratch for this run, with the restored state in it.
        nats: options of source and sink for the NATS connection.
        batch_rows_max: most messages of a batch from one JetStream stream.
        offsets: start positions by JetStream stream; None for the beginning.
        restored: partitions whose state was restored.

    Returns:
        The query, and the ``haltPath`` of each of its sources.
    """
    halts = _HaltPaths(directory)
    common = {
        **nats,
        "startingOffsets": orjson.dumps(offsets).decode() if offsets else "earliest",
        "eventTimeHeader": names.EVENT_TIME_HEADER,
    }
    if wiring.group.stateful:
        rows = _stateful(session, wiring, directory, common, batch_rows_max, restored, halts)
    else:
        rows = _stateless(session, wiring, common, batch_rows_max, halts)
    instance = wiring.assignment.instance
    # Spark looks a Python sink up in the calling thread's active session.  A thread of ours has
    # none, so it would not find "nats".
    jvm = session._jvm
    assert jvm is not None, "the session has ended"
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)
    session.sparkContext.setLocalProperty("spark.scheduler.pool", instance)
    is_error = F.col("stream") == F.lit(wiring.errors[0])
    counted = rows.observe(
        ROWS_OUT, F.count(F.lit(1)).alias(ROWS_OUT), F.count_if(is_error).alias(ERRORS)
    )
    running = (
        counted.writeStream.format("nats")
        .options(**nats, **UNLOGGED)
        .option("epoch", str(wiring.assignment.epoch))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .queryName(f"{instance}-{wiring.assignment.epoch}")
        .outputMode("append")
        .start()
    )
    return running, tuple(halts.given)


class _HaltPaths:
    """Assigns each source of a query a ``haltPath`` of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "halt"
        self._directory.mkdir(parents=True)
        self.given: list[Path] = []

    def next(self) -> str:
        self.given.append(self._directory / str(len(self.given)))
        return str(self.given[-1])


def _stateful(
    session: SparkSession,
    wiring: Wiring,
    directory: Path,
    common: Mapping[str, str],
    batch_rows_max: int,
    restored: frozenset[int],
    halts: _HaltPaths,
) -> DataFrame:
    partitions = [list(wiring.input_streams(p)) for p in wiring.partitions]
    # The source's limit applies to all of its streams together.
    rows_max = batch_rows_max * sum(len(streams) for streams in partitions)
    wakeup = directory / "wakeup"
    wakeup.mkdir()
    source = (
        session.readStream.format("nats")
        .options(**common)
        .option("streams", orjson.dumps(partitions).decode())
        .option("maxOffsetsPerTrigger", str(rows_max))
        .option("maxBytesPerTrigger", str(BATCH_BYTES))
        .option("rangeMarkers", "true")
        .option("wakeupPath", str(wakeup))
        .option("haltPath", halts.next())
        .load()
    )
    return source.mapInArrow(HostTask(wiring, str(directory), restored), SINK_SCHEMA)


def _stateless(
    session: SparkSession,
    wiring: Wiring,
    common: Mapping[str, str],
    batch_rows_max: int,
    halts: _HaltPaths,
) -> DataFrame:
    def read(group_input: GroupInput) -> DataFrame:
        channel = group_input.channel
        schema = ", ".join(f"`{a.name}` {SPARK_TYPES[a.type]}" for a in channel.stream.attributes)
        reader = (
            session.readStream.format("nats")
            .options(**common)
            .option("stream", js_stream_of(group_input, 0))
            .option("maxOffsetsPerTrigger", str(batch_rows_max))
            .option("maxBytesPerTrigger", str(BATCH_BYTES))
            .option("subject", channel.subject())
            .option("format", "auto")
            .option("missing", "error")
            .option("haltPath", halts.next())
            .option("metadata", ",".join(METADATA))
            .option("schema", schema)
        )
        if group_input.strategy is Strategy.ROUND_ROBIN and wiring.group.parallel > 1:
            reader = (
                reader.option("blockSize", str(ROUND_ROBIN_BLOCK))
                .option("blockIndex", str(wiring.assignment.index - 1))
                .option("blockCount", str(wiring.group.parallel))
            )
        rows = reader.load()
        for after, to in wiring.skips(js_stream_of(group_input, 0)):
            rows = rows.where((F.col("_sequence") <= after) | (F.col("_sequence") > to))
        return rows

    return stateless.build(wiring, read)
