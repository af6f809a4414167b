"""Daemon that forks Spark's Python processes, with their modules imported in advance.

Spark requests each process from a daemon.  Its own daemon forks before any import, so every process
imports for itself: 1.4 s of CPU time for the operators with their native loops.  That delays the
first batch of a query, and again the first one after a minute without any, when Spark has ended the
idle processes.  This daemon imports once, while the worker warms its session up, and all processes
share the imported modules in memory.

No module imported here may need a thread of its own, as threads do not survive a fork.
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
_OPERATORS: Final = (
    "mesh.spark.partition_task",
    "mesh.spark.stateless_task",
    "mesh.spark.shared_query.slot",
)


def prepare(names: tuple[str, ...]) -> None:
    """Import modules, and exclude them from garbage collection."""
    # Collections during the imports find nothing, and take a sixth of their time.
    gc.disable()
    for name in names:
        importlib.import_module(name)
    gc.enable()
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    # Processes write states, which only this user may read.
    os.umask(0o077)
    if _TASKS in sys.argv[1:]:
        prepare((*_CONNECTOR, *(_OPERATORS if os.environ.get(FUNCTIONS_VARIABLE) else ())))
    daemon.manager()
