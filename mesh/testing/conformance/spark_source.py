"""A Spark source of rows that were laid out before: one file for each micro-batch and partition."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, SupportsTriggerAvailableNow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

FORMAT: Final = "mesh-cases"

Offset = dict[str, int]


def path_of(directory: Path, turn: int, part: int) -> Path:
    """The file of one partition of one micro-batch; without it the partition has no rows."""
    return directory / f"{turn}-{part}.arrow"


def write(path: Path, rows: pa.RecordBatch) -> None:
    """Lay out the rows of one partition of one micro-batch."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)


def reader(session: SparkSession, directory: Path, turns: int, parts: int = 1) -> Any:
    """A reader of the rows in ``directory``: ``turns`` micro-batches of ``parts`` partitions."""
    session.dataSource.register(CasesDataSource)
    options = {"path": str(directory), "turns": str(turns), "parts": str(parts)}
    return session.readStream.format(FORMAT).options(**options)


class CasesDataSource(DataSource):
    """``format("mesh-cases")``; options ``path``, ``turns`` and ``parts``."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format(...)``."""
        return FORMAT

    def streamReader(self, schema: StructType) -> CasesReader:
        """For ``session.readStream``."""
        options = self.options
        return CasesReader(Path(options["path"]), int(options["turns"]), int(options["parts"]))


class CasesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Delivers one turn per micro-batch."""

    def __init__(self, directory: Path, turns: int, parts: int) -> None:
        self._directory = directory
        self._turns = turns
        self._parts = parts

    def initialOffset(self) -> Offset:
        """Before the first turn."""
        return {"turn": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """None; the reader itself gives a turn at a time."""
        return ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The next turn, until all are done."""
        return {"turn": min(start["turn"] + 1, self._turns)}

    def prepareForTriggerAvailableNow(self) -> None:
        """Nothing to prepare: all rows exist from the start."""

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The partitions of each turn."""
        turns = range(start["turn"], end["turn"])
        return [InputPartition((turn, part)) for turn in turns for part in range(self._parts)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows that were laid out for it, if any."""
        turn, part = partition.value
        path = path_of(self._directory, turn, part)
        if path.exists():
            with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as stored:
                yield from stored

    def commit(self, end: Offset) -> None:
        """Nothing to do."""
