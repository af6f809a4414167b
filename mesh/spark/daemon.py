"""Daemon that forks Spark's Python processes, with their modules imported in advance.

Spark requests each process from a daemon.  Its own daemon forks before any import, so every process
imports for itself: 1.4 s of CPU time for the operators with their native loops.  That delays the
first batch of a query, and again the first one after a minute without any, when Spark has ended the
idle processes.  This daemon imports once, while Java starts (``mesh.spark.daemon_ahead``), and all
processes share the imported modules in memory.

No module imported here may need a thread of its own, as threads do not survive a fork.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import mmap
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mesh.processes.imports import import_arrow
from mesh.spark import daemon_ahead

if TYPE_CHECKING:
    from pyspark_nats.arrow import ArrowArray

#: Set by the session for tasks that run functions of ours, and for no others.
FUNCTIONS_VARIABLE: Final = "MESH_SPARK_FUNCTIONS"
#: Spark's module for tasks that read, call functions, and write; planners have others.
_TASKS: Final = "pyspark.worker"
_CONNECTOR: Final = (
    _TASKS,
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


#: File of the compiler's library.
_COMPILER: Final = "/libllvmlite.so"
#: An app whose run loads what all native loops need.
_WARM_UP: Final = """
define stream S (k string, d double, n int);
from S[n >= 0 and d > 1]#window.time(1 sec) select k, avg(d) as m group by k insert into O;
from S#window.time(1 sec) select n, avg(d) as m group by n insert into P;
"""


def modules() -> tuple[str, ...]:
    """The modules of the tasks of this daemon."""
    return (*_CONNECTOR, *(_OPERATORS if os.environ.get(FUNCTIONS_VARIABLE) else ()))


def prepare(names: tuple[str, ...]) -> None:
    """Import modules, and exclude them from garbage collection."""
    # Collections during the imports find nothing, and take a sixth of their time.
    gc.disable()
    import_arrow()
    for name in names:
        importlib.import_module(name)
    if _OPERATORS[0] in names:
        _load_loops()
        _release(_COMPILER)
    gc.freeze()
    gc.enable()


def _load_loops() -> None:
    """Load compiled loops that most apps use, with the parts of Numba that load them: 12 MB."""
    import numpy as np
    import pyarrow as pa

    from mesh.language.parser import parse
    from mesh.operators import loop_cache
    from mesh.operators.executor import Executor, InputRun
    from mesh.operators.native import compile_declared
    from mesh.plan.bind import bind

    if not loop_cache.is_compiled():
        # It would take a while, and another process does so.
        return
    columns: list[ArrowArray] = [
        pa.array(["a", "b"]), pa.array([1.0, 2.0]), pa.array([1, 2], pa.int32())
    ]  # fmt: skip
    rows = pa.RecordBatch.from_arrays(columns, ["k", "d", "n"])
    times = np.array([1, 2000], dtype=np.int64)
    executor = Executor(bind(parse(_WARM_UP)), ["O", "P"])
    executor.run([InputRun("S", times, times, rows)], {"S": 2000})
    # Those of other windows, joins and aggregations: here once, and not in each slot.
    compile_declared()


def _release(library: str) -> None:
    """Unmap the pages of a library's code, which come back from its file when they are needed.

    To load the compiled loops takes 34 MB of the compiler, and to run them nothing of it.
    """
    release = ctypes.CDLL(None).madvise
    release.argtypes = ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, access, *_ = line.split()
        # Code is never written to, so each page is as in the file.
        if line.endswith(library) and access == "r-xp":
            start, end = (int(one, 16) for one in place.split("-"))
            release(start, end - start, mmap.MADV_DONTNEED)


def main() -> None:
    """Run the daemon."""
    # Processes write states, which only this user may read.
    os.umask(0o077)
    if sys.argv[1] == daemon_ahead.AHEAD:
        prepare(modules())
        daemon_ahead.take(int(sys.argv[2]))
    elif _TASKS in sys.argv[1:]:
        if os.environ.get(FUNCTIONS_VARIABLE):
            daemon_ahead.hand_over()
        prepare(modules())
    # Planners fork before any import.
    from pyspark import daemon

    daemon.manager()


if __name__ == "__main__":
    main()
