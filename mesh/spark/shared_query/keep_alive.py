"""Keep-alive rows, in whose processing the slots of a shared query serve their parts.

They are of Spark's own ``rate-micro-batch`` source, one for each slot and batch.  So Spark needs no
Python process that plans the query.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from mesh.spark import class_archive
from mesh.spark.shared_query.slot_network import DONE, Secret

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession

    from pyspark_nats.protocol.connection_options import ConnectionOptions

#: Duration of a batch, seconds.
KEEP_ALIVE_S: Final = 30.0
#: The same for slots on other machines.
_ENDLESS_S: Final = 1e8
#: Pause of a batch whose session has ended; Spark begins another at once.
_ENDED_S: Final = 0.02
#: Spark has a pool of Python processes for each environment.
_SLOT_VARIABLE: Final = "MESH_SPARK_SLOT"
_making: Final = threading.Lock()
#: Settings of the query: its few rows are no reason to generate code, whose compiler takes half a
#: second to load.
_INTERPRETED: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def _schema() -> StructType:
    # Spark would read a text with the parser of its SQL, which takes a third of a second to load.
    schema = StructType()
    for name, kind in DONE.items():
        schema.add(name, kind)
    return schema


#: Columns of a row for each part that worked.
SCHEMA: Final = _schema()


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """The function that ``mapInArrow`` applies to the rows of ``keep_alive_rows``; it pickles."""

    #: Number of slots.
    count: int
    #: Of ``SlotOptions``; for slots on other machines without directory, and with a secret.
    address: str
    directory: str
    connection: ConnectionOptions
    secret: Secret | None = None
    #: Interval of such slots' reports on a busy part, seconds; None for the usual.
    report_s: float | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Serve the parts of this process's slot meanwhile; one row for each that worked."""
        # The session needs no operators.
        from mesh.spark.shared_query.serving import REPORT_S
        from mesh.spark.shared_query.slot import SlotOptions, of_this_process
        from pyspark_nats.gc_freeze import freeze_imported

        freeze_imported()
        options = SlotOptions(
            self.address,
            self.directory,
            self.connection,
            self.secret,
            self.report_s or REPORT_S,
        )
        # The next task could run in another process, so one elsewhere ends with the query.
        keep_alive_s = KEEP_ALIVE_S if self.secret is None else _ENDLESS_S
        for rows in batches:
            values: list[Any] = rows.column("value").to_pylist()
            for value in values:
                try:
                    slot = of_this_process(options)
                except OSError:
                    if value < self.count:
                        raise
                    # The session has closed its listener, and stops the query.
                    time.sleep(_ENDED_S)
                    continue
                yield slot.keep_alive(keep_alive_s)


def keep_alive_rows(session: SparkSession, keep_alive: KeepAlive, name: str) -> DataFrame:
    """A streaming query's rows: what was done, by instance and part.

    Its Python processes run no functions but those of the same ``name``.
    """
    count = str(keep_alive.count)
    source = session.readStream.format("rate-micro-batch")
    rows = source.option("rowsPerBatch", count).option("numPartitions", count).load()
    # What ``mapInArrow`` does, without its import of pandas: 22 MB.
    function = UserDefinedFunction(
        keep_alive, SCHEMA, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )
    with _named_processes(session, name):
        column = function(*(rows[one] for one in rows.columns))
    return DataFrame(rows._jdf.mapInArrow(column._jc, False, None), session)


@contextmanager
def interpreted(session: SparkSession) -> Iterator[None]:
    """Have queries that start meanwhile generate no code; each keeps the settings of its start."""
    if class_archive.is_written():
        # Other queries need the compiler's classes.
        yield
        return
    with _making:
        before = {key: session.conf.get(key, None) for key in _INTERPRETED}
        for key, value in _INTERPRETED.items():
            session.conf.set(key, value)
        try:
            yield
        finally:
            for key, old in before.items():
                if old is None:
                    session.conf.unset(key)
                else:
                    session.conf.set(key, old)


@contextmanager
def _named_processes(session: SparkSession, name: str) -> Iterator[None]:
    context = session.sparkContext
    with _making:
        before = context.environment
        # Another thread may read it.
        context.environment = {**before, _SLOT_VARIABLE: name}
        try:
            yield
        finally:
            context.environment = before
