"""Spark session of a worker, kept warm, with settings for short micro-batches."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

import pyspark_nats
from mesh.files import scratch
from mesh.processes import java
from mesh.spark import class_archive, cluster, daemon_ahead
from mesh.spark.daemon import FUNCTIONS_VARIABLE
from pyspark_nats import tuning

if TYPE_CHECKING:
    from collections.abc import Callable

    from mesh.settings import SparkSettings

#: Names of settings and options whose values are not shown: those of Spark's default and ours.
_SECRETS: Final = "secret|password|passwd|token|access[.]?key|credential|seed|nats"
#: Settings for short batches in addition to the connector's (pyspark_nats.tuning).
MESH_CONF: Final[dict[str, str]] = {
    # SiddhiQL's arithmetic is Java's: it wraps around and yields null where ANSI SQL raises.
    "spark.sql.ansi.enabled": "false",
    # SiddhiQL distinguishes ``a`` from ``A``.
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
    # A cluster's own defaults may say "hive", which is not on the driver's class path.
    "spark.sql.catalogImplementation": "in-memory",
    # Our checkpoints are scratch for one run of one instance
    # (``mesh.spark.dedicated_query.instance``), so a hundred old batches protect nothing.
    "spark.sql.streaming.minBatchesToRetain": "4",
    # A stopped query must not wait for a planner process that waits for the server.
    "spark.sql.streaming.stopTimeout": "10s",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # Options of our sources hold the login of NATS; the web UI shows plans and settings.
    "spark.redaction.regex": f"(?i){_SECRETS}",
    "spark.sql.redaction.options.regex": f"(?i){_SECRETS}|url|user",
    "spark.ui.killEnabled": "false",
    # A batch is a few tasks with no shuffle, and the tasks of many apps run in turn.
    "spark.sql.shuffle.partitions": "2",
    "spark.scheduler.mode": "FAIR",
    "spark.locality.wait": "0",
    # Modules of tasks are imported in advance; only tasks with functions of ours need the
    # operators.
    "spark.python.daemon.module": "mesh.spark.daemon",
    f"spark.executorEnv.{FUNCTIONS_VARIABLE}": "1",
}

#: Options of each query; its checkpoint is never read.
UNLOGGED: Final[dict[str, str]] = tuning.asynchronous_progress(interval_s=3600)

#: Keeps a JVM from writing counters to /tmp/hsperfdata_USER, which ignores the temporary directory.
_NO_FILES: Final = "-XX:-UsePerfData"

#: Keeps the heap small: rows of instances do not pass through it in real-time mode, and what the
#: garbage of a micro-batch once filled stays resident until a collection of the whole heap.  One
#: that began at its least size would grow by such collections, 0.4 s of them, during the start.
_SMALL_HEAP: Final = (
    "-XX:MinHeapSize=32m -XX:InitialHeapSize=80m -Xmn16m "
    "-XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=20 -XX:-ShrinkHeapInSteps"
)

#: All settings of the session that are the same for every worker.
CONF: Final[dict[str, str]] = {**tuning.RECOMMENDED_CONF, **MESH_CONF}


#: Longest directory in which the path of a Unix domain socket fits into the kernel's 107 bytes,
#: with the file name that Spark gives it.
_SOCKET_DIRECTORY_MAX: Final = 60
#: Time limit for the JVM's exit, and where it writes a class archive as it exits; seconds.
_EXIT_S: Final = 5.0
_ARCHIVE_S: Final = 90.0


#: Beginning of a local master that says how many threads it has.
_LOCAL: Final = re.compile(r"local\[(\d+|\*)")

#: Modules of the processes that plan queries; those of tasks are others.
_PLANNERS: Final = "pyspark.sql.worker."

#: Gateways to the JVMs that ``start`` has launched.
_launched: Final[list[object]] = []


def start(settings: SparkSettings, name: str, directory: Path) -> SparkSession:
    """Start the session; ``mesh.spark.warmup`` makes it ready for use.

    Args:
        settings: master, memory, web UI.
        name: shown in Spark's UI.
        directory: for all files of Spark, its JVM and its Python workers, temporary ones too; may
            be deleted after ``stop``.
    """
    temporary = directory / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    # The JVM's Python workers inherit it.
    os.environ["TMPDIR"] = str(temporary)
    # It would override ``spark.local.dir``.
    os.environ.pop("SPARK_LOCAL_DIRS", None)
    # The address of the web UI; Spark's own default is all addresses.
    os.environ["SPARK_LOCAL_IP"] = settings.ui_host
    # For the short-lived JVM that builds the command line.
    os.environ["SPARK_LAUNCHER_OPTS"] = _NO_FILES
    # The path stays the same if possible, because a class archive is for one class path.
    home = tuning.lean_home(class_archive.spark_home(), directory / "home", tuning.UNUSED_JARS)
    os.environ["SPARK_HOME"] = str(home)
    os.environ["PYSPARK_PYTHON"] = cluster.python(settings)
    is_local = cluster.is_local(settings.master)
    if not is_local:
        _prepare_driver(settings, directory)
    sockets = socket_directory(temporary)
    builder = (
        SparkSession.builder.master(_with_threads(settings.master))
        .appName(name)
        .config("spark.ui.enabled", str(settings.ui).lower())
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", settings.driver_memory)
        .config("spark.local.dir", str(directory / "local"))
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        # Threads of the collector would compete with the tasks.
        .config(
            "spark.driver.extraJavaOptions",
            # Sockets are there, unless executors on other machines need the setting for theirs.
            f'"-Dderby.system.home={directory}" {java.home_option(directory)} '
            f'"-Djava.io.tmpdir={temporary if is_local else sockets}" {_NO_FILES} '
            f"{tuning.java_options()} -XX:+UseSerialGC {_SMALL_HEAP} "
            + class_archive.java_option(class_archive.default_path()),
        )
    )
    conf = (
        {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.python.unix.domain.socket.dir": str(sockets),
        }
        if is_local
        else cluster.conf(settings)
    )
    for key, value in {**CONF, **conf}.items():
        builder = builder.config(key, value)
    is_first = SparkContext._gateway is None
    session = builder.getOrCreate()
    if is_first:
        _launched.append(session.sparkContext._gateway)
    session.sparkContext.setLogLevel("ERROR")
    if " " in os.environ["PYSPARK_PYTHON"]:
        # Spark 4.3.0 looks for formats only if a shell finds the interpreter, which it does not
        # quote.
        pyspark_nats.register(session)
    return session


def daemon_ahead_of(directory: Path) -> Callable[[], None]:
    """Have Spark find a daemon for the tasks of a local session that is there before it asks.

    Args:
        directory: of the process, for a socket.

    Returns:
        Starts it, on the main thread; ``start`` may be called before.
    """
    listening = daemon_ahead.listen(socket_directory(directory) / "daemon")
    command = [sys.executable, "-m", CONF["spark.python.daemon.module"]]
    # What Spark sets, as far as it is read during imports.
    environment = {
        FUNCTIONS_VARIABLE: "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"),
    }
    return partial(daemon_ahead.start, command, listening, environment)


def _prepare_driver(settings: SparkSettings, directory: Path) -> None:
    """Have the driver's JVM read the file of settings, and find the executors' Python."""
    os.environ["PYSPARK_SUBMIT_ARGS"] = cluster.submit_arguments(settings)
    python = Path(cluster.python(settings))
    if python.is_absolute():
        return
    # The planners of queries run on the driver, by the same relative path.
    place = directory / "driver"
    place.mkdir(exist_ok=True)
    (place / python.parts[0]).symlink_to(sys.prefix)
    os.chdir(place)


def stop(session: SparkSession) -> None:
    """Stop the session and wait until its JVM has exited, which removes Spark's own files.

    A JVM that ran before ``start`` keeps running: it belongs to another user of this process.
    """
    gateway = session.sparkContext._gateway
    session.stop()
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None or gateway not in _launched:
        return
    _launched.remove(gateway)
    gateway.shutdown()
    process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_ARCHIVE_S if class_archive.is_written() else _EXIT_S)
    # A later session of this process starts its own JVM.
    SparkContext._gateway = SparkContext._jvm = None


def shrink(session: SparkSession) -> None:
    """Return the JVM's memory that only its start has needed: a collection of the whole heap."""
    jvm: Any = session.sparkContext._jvm
    jvm.java.lang.System.gc()


def end_planners(session: SparkSession) -> None:
    """End the Python daemons that have planned queries, 25 MB each; no query may be starting.

    Spark starts them again when it plans the next query.  Killed ones it would not start again.
    """
    context: Any = session.sparkContext
    fields = context._jvm.org.apache.commons.lang3.reflect.FieldUtils
    # Spark has no call for it.
    pools = fields.readField(context._jsc.sc().env(), "pythonWorkers", True).iterator()
    while pools.hasNext():
        pool = pools.next()
        if pool._1().workerModule().startswith(_PLANNERS):
            pool._2().stop()


def slot_count(master: str) -> int:
    """Number of slots for a local master: as many as it names threads."""
    return int(_threads(master) or 1)


def _with_threads(master: str) -> str:
    """A local master with more threads: slots occupy some all the time, queries need the others.

    One more slot is for functions of users.
    """
    threads = _threads(master)
    return master if threads is None else _LOCAL.sub(f"local[{2 * threads + 1}", master)


def _threads(master: str) -> int | None:
    """Threads of a local master; None for a cluster."""
    match = _LOCAL.match(f"{master}[1" if master == "local" else master)
    if match is None:
        return None
    return len(os.sched_getaffinity(0)) if match[1] == "*" else int(match[1])


def socket_directory(directory: Path) -> Path:
    """A directory for sockets: ``directory``, if their paths may be so long."""
    if len(os.fsencode(directory)) <= _SOCKET_DIRECTORY_MAX:
        return directory
    return _short_directory()


@cache
def _short_directory() -> Path:
    directory = scratch.for_process("s")
    if len(os.fsencode(directory)) <= _SOCKET_DIRECTORY_MAX:
        return directory
    # The temporary directory of the system itself has a long path.
    return scratch.owned_by_process(Path("/tmp"), "mesh-s-")


def jvm_figures(spark: SparkSession) -> dict[str, float]:
    """Heap in bytes, garbage collections in seconds and number, threads, queries and stages."""
    context: Any = spark.sparkContext
    management = context._jvm.java.lang.management.ManagementFactory
    heap = management.getMemoryMXBean().getHeapMemoryUsage()
    collectors = list(management.getGarbageCollectorMXBeans())
    return {
        "heap_used": float(heap.getUsed()),
        "heap_max": float(heap.getMax()),
        "threads": float(management.getThreadMXBean().getThreadCount()),
        "gc_s": sum(one.getCollectionTime() for one in collectors) / 1000,
        "gc_count": float(sum(one.getCollectionCount() for one in collectors)),
        "queries": float(len(spark.streams.active)),
        "stages": float(len(context.statusTracker().getActiveStageIds())),
    }
