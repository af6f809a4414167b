"""A micro-batch of nothing much, so that the first real one finds everything loaded.

The first streaming query of a JVM with a Python source and sink takes 3-9 s, the second half a
second: the difference is class loading, code generation and Python imports.  A worker pays it
before it says that it is ready.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

from mesh.spark import host

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

NAME = "mesh_warmup"


class _Reader(DataSourceStreamReader):
    """One batch of one row for each partition."""

    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        return {"batch": 1}

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        return [InputPartition(n) for n in range(2)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        host.freeze_garbage()
        yield pa.record_batch({"value": pa.array([partition.value], pa.int64())})


class _Writer(DataSourceStreamArrowWriter):
    """Takes rows and forgets them."""

    def write(  # type: ignore[override]  # Spark's own signature for Arrow writers
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        for _ in iterator:
            continue
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to commit."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to abort."""


class WarmUpSource(DataSource):
    """Source and sink of the warming batch."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return NAME

    def schema(self) -> str:
        """One number."""
        return "value long"

    def streamReader(self, schema: StructType) -> _Reader:
        """The source."""
        return _Reader()

    def streamWriter(self, schema: StructType, overwrite: bool) -> _Writer:
        """The sink."""
        return _Writer()


def warm(session: SparkSession, scratch: Path) -> None:
    """Run one micro-batch of the kind that instances run."""
    session.dataSource.register(WarmUpSource)
    checkpoint = scratch / "warmup"
    rows = session.readStream.format(NAME).load().where(F.col("value") >= 0)
    encoded = rows.select(
        "value",
        F.to_json(F.struct("value"), {"ignoreNullFields": "false"}).cast("binary").alias("data"),
    )
    query = (
        encoded.mapInArrow(_pass, encoded.schema)
        .writeStream.format(NAME)
        .option("checkpointLocation", str(checkpoint))
        .trigger(once=True)
        .start()
    )
    query.awaitTermination()
    shutil.rmtree(checkpoint, ignore_errors=True)


def _pass(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
