"""The daemon that Spark's Python processes are forked from, with what they need imported already.

Spark asks a daemon for each of them.  Its own one forks before anything is imported, so that every
process imports for itself: 1.4 s of the processor's time for the operators with their native loops,
in the first batch of a query, and again in the first one after a minute without any, when Spark has
ended the processes that idle.  Here the daemon does it, once, while the worker warms its session
up; and what is imported is in memory once for all of them.

Nothing that is imported here may need a thread of its own, which would not be there after a fork.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from typing import Final

from pyspark import daemon

#: Set by the session for tasks that run functions of ours, and for no others.
FUNCTIONS_VARIABLE: Final = "MESH_SPARK_FUNCTIONS"
#: Spark's module for tasks that read, call functions, and write; planners have others.
_TASKS: Final = "pyspark.worker"
_CONNECTOR: Final = (
    _TASKS,
    "pandas",
    "pyarrow.compute",
    "pyspark.sql.conversion",
    "pyspark.sql.streaming.datasource",
    "pyspark_nats.source.reader",
    "pyspark_nats.sink.writer",
)
_OPERATORS: Final = ("mesh.spark.partition_task", "mesh.spark.stateless_task")


def prepare(names: tuple[str, ...]) -> None:
    """Import modules, and take them out of the garbage collector's sight."""
    for name in names:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    if _TASKS in sys.argv[1:]:
        prepare((*_CONNECTOR, *(_OPERATORS if os.environ.get(FUNCTIONS_VARIABLE) else ())))
    daemon.manager()
