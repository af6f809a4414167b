"""Spark session of a worker, kept warm, with settings for short micro-batches."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

import pyspark
from pyspark.sql import SparkSession

from mesh.spark import class_archive
from mesh.spark.daemon import FUNCTIONS_VARIABLE
from pyspark_nats import tuning

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.settings import SparkSettings

#: Settings for short batches in addition to the connector's (pyspark_nats.tuning).
OWN_CONF: Final[dict[str, str]] = {
    # SiddhiQL's arithmetic is Java's: it wraps around and yields null where ANSI SQL raises.
    "spark.sql.ansi.enabled": "false",
    # SiddhiQL distinguishes ``a`` from ``A``.
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
    # Our checkpoints are scratch for one run of one instance (mesh.spark.instance), so a hundred
    # old batches protect nothing.
    "spark.sql.streaming.minBatchesToRetain": "4",
    # A stopped query must not wait for a planner process that waits for the server.
    "spark.sql.streaming.stopTimeout": "10s",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # A batch is a few tasks with no shuffle, and the tasks of many apps run in turn.
    "spark.sql.shuffle.partitions": "2",
    "spark.scheduler.mode": "FAIR",
    "spark.locality.wait": "0",
    # Modules of tasks are imported in advance; only tasks with functions of ours need the
    # operators.
    "spark.python.daemon.module": "mesh.spark.daemon",
    f"spark.executorEnv.{FUNCTIONS_VARIABLE}": "1",
}

#: Options of each query: its checkpoint is never read.
UNLOGGED: Final[dict[str, str]] = tuning.asynchronous_progress(interval_s=3600)

#: All settings of the session that are the same for every worker.
CONF: Final[dict[str, str]] = {**tuning.RECOMMENDED_CONF, **OWN_CONF}


def start(settings: SparkSettings, name: str, scratch: Path) -> SparkSession:
    """Start the session; ``mesh.spark.warmup`` makes it ready for use.

    Args:
        settings: master, memory, web UI.
        name: shown in Spark's UI.
        scratch: directory for Spark's own files; may be deleted when the session has ended.
    """
    # The path stays the same if possible, as a class archive is valid for one class path only.
    home = class_archive.directory() / f"spark-{pyspark.__version__}"
    os.environ["SPARK_HOME"] = str(tuning.lean_home(home, scratch / "home"))
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
        # The heap stays small, and garbage collector threads would compete with the tasks.
        .config(
            "spark.driver.extraJavaOptions",
            f"-Dderby.system.home={scratch} {tuning.java_options()} -XX:+UseSerialGC -Xms512m "
            + class_archive.java_option(class_archive.default_path()),
        )
    )
    for key, value in CONF.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
