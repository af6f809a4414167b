"""Daemon that forks Spark's Python processes, with their modules imported in advance.

Spark requests each process from a daemon.  Its own daemon forks before any import, so every process
imports for itself: 1.4 s of CPU time for the operators with their native loops.  That delays the
first batch of a query, and again the first one after a minute without any, when Spark has ended the
idle processes.  This daemon imports once, while Java starts (``mesh.spark.daemon``), and all
processes share the imported modules in memory.

No module imported here may need a thread of its own, as threads do not survive a fork.

A daemon that imports its modules while Java starts, and is there when Spark asks for one.

Spark starts its daemon when the first task needs a process, seconds after Java; the imports take
as long again.  So a session starts a process which imports first (``start``, ``take``).  The
program that Spark starts gives it the standard streams and the environment (``hand_over``), and
from then on stands for it: it ends when the daemon ends, and Spark ends the daemon by closing its
standard input, as always.

Only the first daemon is ready ahead.  Later ones, and all if anything fails here, import for
themselves.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import mmap
import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mesh.processes.bounded_process import die_with_parent, outlive_parent
from mesh.processes.imports import import_arrow

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
    if sys.argv[1] == AHEAD:
        prepare(modules())
        take(int(sys.argv[2]))
    elif _TASKS in sys.argv[1:]:
        if os.environ.get(FUNCTIONS_VARIABLE):
            hand_over()
        prepare(modules())
    # Planners fork before any import.
    from pyspark import daemon

    daemon.manager()


if __name__ == "__main__":
    main()


#: Environment variable: path of the socket of the process that is ready.
VARIABLE: Final = "MESH_SPARK_DAEMON"
#: First argument of that process; the second is the descriptor of its socket.
AHEAD: Final = "ahead"
#: Number of the standard streams.
_STREAMS: Final = 3


def listen(path: Path) -> socket.socket:
    """The socket of the process, for ``start``; Java must start later than this, to know of it.

    Args:
        path: in a directory that is closed to others.
    """
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()
    os.environ[VARIABLE] = str(path)
    return listening


def start(command: list[str], listening: socket.socket, environment: dict[str, str]) -> None:
    """Start the process, which ends with this one unless Spark has taken it.

    Args:
        command: the program, without ``ahead`` and the descriptor; called from the main thread.
        listening: of ``listen``; it is closed here.
        environment: additions to that of this process.
    """
    with listening:
        process = subprocess.Popen(
            [*command, AHEAD, str(listening.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[listening.fileno()],
            env={**os.environ, **environment},
            preexec_fn=die_with_parent(),
        )
    # The exit status has to be taken, or the ended process stays in the table.
    threading.Thread(target=process.wait, name="daemon-ahead", daemon=True).start()


def hand_over() -> None:
    """Give the standard streams to the process that is ready; returns only if there is none."""
    path = os.environ.pop(VARIABLE, None)
    if path is None:
        return
    link = socket.socket(socket.AF_UNIX)
    try:
        link.connect(path)
        socket.send_fds(link, [b"\0"], list(range(_STREAMS)))
        link.sendall(json.dumps([sys.argv, dict(os.environ)]).encode())
        link.shutdown(socket.SHUT_WR)
    # Another daemon has it, or it has failed.
    except OSError:
        link.close()
        return
    # To wait for the end of the connection takes a few pages, and no interpreter.
    os.dup2(link.fileno(), 0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with suppress(OSError):
        os.execvp("cat", ["mesh.spark.daemon"])
    while os.read(0, 1024):
        pass
    os._exit(0)


def take(descriptor: int) -> None:
    """Wait until Spark asks for a daemon, and take its streams, arguments and environment.

    The connection to the program that Spark has started stays open until this process ends.
    """
    with socket.socket(fileno=descriptor) as listening:
        link, _ = listening.accept()
        Path(listening.getsockname()).unlink(missing_ok=True)
    _, streams, _, _ = socket.recv_fds(link, 1, _STREAMS)
    with link.makefile("rb") as said:
        arguments, environment = json.loads(said.read())
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    sys.argv[:] = arguments
    os.environ.clear()
    os.environ.update(environment)
    added = filter(None, environment.get("PYTHONPATH", "").split(":"))
    sys.path += [one for one in added if one not in sys.path]
    # The session's death ends Java, which ends it.
    outlive_parent()
    link.detach()
