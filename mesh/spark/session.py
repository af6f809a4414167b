"""The one warm Spark session of a worker, with the settings that keep a micro-batch short."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyspark
from pyspark.sql import SparkSession

from mesh.spark import class_archive

if TYPE_CHECKING:
    from mesh.settings import SparkSettings

#: Each with its reason.  Latencies are p50 / p99 of a micro-batch at 10 messages a second: 180-450
#: / 300-5700 ms with Spark's defaults, 45 / 112 ms with these.
STREAMING_CONF: Final[dict[str, str]] = {
    # The default file manager asks the shell for each file's permissions: 42 processes a batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    # Our checkpoints are scratch for one run of one instance (mesh.spark.instance), so a second
    # file with a checksum for each file, and a hundred old batches, protect nothing.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "4",
    # Cheaper than TCP between the JVM and its Python workers.
    "spark.python.unix.domain.socket.enabled": "true",
    # The defaults, but everything rests on them: without reuse a batch costs 1-2 s.
    "spark.python.use.daemon": "true",
    "spark.python.worker.reuse": "true",
    # A stopped query must not wait for a planner process that waits for the server.
    "spark.sql.streaming.stopTimeout": "10s",
    # SiddhiQL's arithmetic is Java's: it wraps around and yields null where ANSI SQL raises.
    "spark.sql.ansi.enabled": "false",
    # SiddhiQL tells ``a`` from ``A``.
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # A batch is a handful of tasks with no shuffle.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.scheduler.mode": "FAIR",
    "spark.locality.wait": "0",
}


def start(settings: SparkSettings, name: str, scratch: Path) -> SparkSession:
    """Start the session; ``mesh.spark.warmup`` makes it ready for use.

    Args:
        settings: master, memory, web UI.
        name: shown in Spark's UI.
        scratch: directory for Spark's own files; may be deleted when the session has ended.
    """
    os.environ["SPARK_HOME"] = str(_home(scratch))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master(settings.master)
        .appName(name)
        .config("spark.ui.enabled", str(settings.ui).lower())
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", settings.driver_memory)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        # The heap stays small and short pauses matter more than throughput of the collector; the
        # compiler's first tier is enough for plans that live for one trigger.
        .config(
            "spark.driver.extraJavaOptions",
            f"-Dderby.system.home={scratch} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xms512m "
            + class_archive.java_option(class_archive.default_path()),
        )
    )
    for key, value in STREAMING_CONF.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _home(scratch: Path) -> Path:
    """A Spark home without ``python/``, made of links into the installed one.

    Spark puts ``python/lib/pyspark.zip`` first on its Python processes' path, and a module in a zip
    file is compiled anew by each process: 0.75 s to start instead of 0.22 s, with several
    processes for each query.  Without the zip they import the installed package, which is compiled.
    Its path stays the same where it can, because a class archive is for one class path.
    """
    installed = Path(pyspark.__file__).parent
    wanted = class_archive.directory() / f"spark-{pyspark.__version__}"
    made = scratch / "home"
    made.mkdir(parents=True)
    for name in ("bin", "jars", "sbin"):
        (made / name).symlink_to(installed / name)
    try:
        if not wanted.exists():
            wanted.parent.mkdir(parents=True, exist_ok=True)
            made.rename(wanted)
    except OSError:
        # Another session was quicker, or the installation can't be written to.
        return wanted if wanted.exists() else made
    return wanted
