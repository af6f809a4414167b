"""Data source of the shared query: its offsets count batches, and its rows report outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from mesh.spark.shared_query.planner import BatchPlanner
from mesh.spark.shared_query.work import OUTCOME_DDL, WorkItem
from pyspark_nats.gc_freeze import freeze_imported
from pyspark_nats.protocol.connection_options import connection_options
from pyspark_nats.source import planner_process

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

#: Name for ``format(...)``.
NAME: Final = "mesh-shared-query"
#: How long a planner waits before it answers that there is no work, seconds.
_WAIT_S: Final = 2.0


@dataclass(frozen=True)
class SharedQueryPartition(InputPartition):
    """The work of one task."""

    batch: int
    #: Number of the task in its batch.
    number: int
    work: tuple[WorkItem, ...]


class SharedQuerySource(DataSource):
    """Options: ``directory`` of the members, ``nudge``, ``tasks``, ``nats`` as JSON."""

    @classmethod
    def name(cls) -> str:
        """Name for ``format(...)``."""
        return NAME

    def schema(self) -> str:
        """One row for each work item."""
        return OUTCOME_DDL

    def streamReader(self, schema: StructType) -> SharedQueryReader:
        """For ``spark.readStream``."""
        return SharedQueryReader(dict(self.options))


class SharedQueryReader(DataSourceStreamReader):
    """Plans in the planner's process, and works in the tasks'."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        #: Exists only in the planner.
        self._plan: BatchPlanner | None = None
        self._batch = 0
        self._work: list[WorkItem] = []

    def initialOffset(self) -> dict[str, int]:
        """The offset of no batch."""
        return {"batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """No limit; the planner has its own limits."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """The next batch if there is work for one; waits a while for it."""
        if self._batch > start["batch"]:
            return {"batch": self._batch}
        self._work = self._planned().next(_WAIT_S)
        if self._work:
            self._batch = start["batch"] + 1
        return {"batch": start["batch"] + bool(self._work)}

    def partitions(
        self, start: dict[str, int], end: dict[str, int]
    ) -> Sequence[SharedQueryPartition]:
        """The batch's work, distributed among tasks."""
        tasks = max(1, min(int(self._options["tasks"]), len(self._work)))
        return [
            SharedQueryPartition(end["batch"], number, tuple(self._work[number::tasks]))
            for number in range(tasks)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Run the work of a task."""
        # The planner needs no operators.
        from mesh.spark.shared_query.task import outcomes

        assert isinstance(partition, SharedQueryPartition)
        freeze_imported()
        directory = Path(self._options["directory"])
        return outcomes(directory, partition.batch, partition.work, task=partition.number)

    def commit(self, end: dict[str, int]) -> None:
        """No action: the session stores positions."""

    def stop(self) -> None:
        """Close the planner's connections."""
        if self._plan is not None:
            self._plan.close()
            self._plan = None

    def _planned(self) -> BatchPlanner:
        if self._plan is None:
            planner_process.end_with_jvm()
            nats = connection_options(orjson.loads(self._options["nats"]))
            self._plan = BatchPlanner(
                Path(self._options["directory"]), nats, self._options["nudge"]
            )
        return self._plan
