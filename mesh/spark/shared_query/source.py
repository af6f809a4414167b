"""Data sources of shared queries: their offsets count batches, and their tasks are the slots."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from mesh.spark.shared_query.slot_protocol import DONE
from pyspark_nats.gc_freeze import freeze_imported
from pyspark_nats.protocol.connection_options import connection_options
from pyspark_nats.source import planner_process

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

#: Name of the file that makes the planner begin no further batch.
ENDING: Final = "ending"
#: Duration of a batch, seconds.
STAY_S: Final = 30.0
#: The same for slots on other machines.
_ENDLESS_S: Final = 1e8


@dataclass(frozen=True)
class SlotPartition(InputPartition):
    """A slot's stay in one batch."""

    batch: int
    #: Number of the task in its batch.
    number: int


class SharedQuerySource(DataSource):
    """Options: ``directory`` and ``address`` of the session, ``slots``, ``nats`` as JSON.

    For slots on other machines also ``secret_certificate``, ``secret_key``, and ``report``.
    """

    @classmethod
    def name(cls) -> str:
        """Name for ``format(...)``."""
        return "mesh-shared-query"

    def schema(self) -> str:
        """One row for each part that worked."""
        return ", ".join(f"{name} {kind}" for name, kind in DONE.items())

    def streamReader(self, schema: StructType) -> SharedQueryReader:
        """For ``spark.readStream``."""
        return SharedQueryReader(dict(self.options))


class ScriptQuerySource(SharedQuerySource):
    """The same, for instances that run functions of users."""

    @classmethod
    def name(cls) -> str:
        """Name for ``format(...)``."""
        return "mesh-script-query"


class SharedQueryReader(DataSourceStreamReader):
    """Counts batches in the planner's process, and stays in those of the tasks."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        # Here the driver reads files of credentials; executors have none.
        self._nats = connection_options(orjson.loads(options["nats"]))

    def initialOffset(self) -> dict[str, int]:
        """The offset of no batch."""
        return {"batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """No limit: a batch is as long as its stays."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """The next batch; none if the query is to end."""
        planner_process.end_with_jvm()
        is_ending = (Path(self._options["directory"]) / ENDING).exists()
        if is_ending:
            # Spark asks again at once.
            time.sleep(0.02)
        return {"batch": start["batch"] + (not is_ending)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[SlotPartition]:
        """A partition for each slot."""
        return [SlotPartition(end["batch"], n) for n in range(int(self._options["slots"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Stay, while the slot of this process serves its parts."""
        # The planner needs no operators.
        from mesh.spark.shared_query.slot import SlotOptions, of_this_process
        from mesh.spark.shared_query.slot_network import Secret

        freeze_imported()
        given = self._options
        options = SlotOptions(given["address"], given["directory"], self._nats)
        stay_s = STAY_S
        if key := given.get("secret_key"):
            # The next task could run in another process, so this one stays until the query ends.
            secret, stay_s = Secret(given["secret_certificate"], key), _ENDLESS_S
            report_s = float(given["report"])
            options = SlotOptions(given["address"], "", self._nats, secret, report_s)
        yield of_this_process(options).stay(stay_s)

    def commit(self, end: dict[str, int]) -> None:
        """No action: the session stores positions."""

    def stop(self) -> None:
        """No action: the planner holds nothing."""
