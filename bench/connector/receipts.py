"""A streaming sink in Python that only records the time at which rows arrive.

It represents any sink written in Python: the measurement ends when such a sink gets its rows.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from pyspark_nats.gc_freeze import freeze_imported

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt
    import pyarrow as pa
    from pyspark.sql.types import StructType


class ReceiptsDataSource(DataSource):
    """``format("receipts")``: rows with a column ``sent_ns``; option ``path`` names the file."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format(...)``."""
        return "receipts"

    def streamWriter(self, schema: StructType, overwrite: bool) -> ReceiptsWriter:
        """For ``df.writeStream``."""
        freeze_imported()
        return ReceiptsWriter(self.options["path"])


class ReceiptsWriter(DataSourceStreamArrowWriter):
    """Appends a pair (sent, received) a row to a file, ns since 1970."""

    def __init__(self, path: str) -> None:
        self._path = path

    def write(  # type: ignore[override]  # an Arrow writer takes batches
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Record the time of arrival of each batch."""
        freeze_imported()
        for batch in iterator:
            received_ns = time.time_ns()
            sent_ns = batch.column("sent_ns").to_numpy(zero_copy_only=False)
            pairs = np.column_stack((sent_ns, np.full(len(sent_ns), received_ns)))
            # One write, so that concurrent tasks do not interleave their pairs.
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(file, pairs.astype(np.int64).tobytes())
            finally:
                os.close(file)
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to do."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to do: a batch that is run again notes its rows again."""


def read(path: Path) -> npt.NDArray[np.int64]:
    """The pairs so far: shape (n, 2), ns since 1970, in the order recorded."""
    if not path.exists():
        return np.empty((0, 2), np.int64)
    data = path.read_bytes()
    return np.frombuffer(data[: len(data) // 16 * 16], np.int64).reshape(-1, 2)
