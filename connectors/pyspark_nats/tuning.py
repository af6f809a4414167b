"""Session settings for short micro-batches and quick starts, each with its effect.

Use them with any session that runs streaming queries of many small batches::

    builder = SparkSession.builder
    for key, value in tuning.RECOMMENDED_CONF.items():
        builder = builder.config(key, value)
    builder.config("spark.driver.extraJavaOptions", tuning.java_options())

Effects were measured by leaving out one setting at a time: 200 events a second from JetStream to a
sink written in Python, two cores, p50 / p99 of publication to row.  Compare within one line only:
some were measured in a session that had run for minutes, others in a fresh one, which is slower.

Tried without effect: whole-stage code generation on or off, the number of kept old batches and
progress reports, asynchronous purging of logs, fair or first-come scheduling, Arrow batches of
10,000 or 65,536 rows, Arrow's checks of bounds, the collector for short batches, and the way in
which Java starts processes.  A Python daemon that imports everything before it forks workers saves
0.25 s, and only for the first query after a minute without a batch.  Spark ends idle workers after
a minute; the next start then takes 1.9 s instead of 0.6 s, as processes import pyarrow one after
the other.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyspark

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting; docs/connector.md lists them from here."""

    #: A configuration key, or an option of the Java virtual machine.
    key: str
    #: "" for an option of the virtual machine, which is ``key`` alone.
    value: str
    reason: str
    #: Measurements with the setting and without it.
    effect: str


SETTINGS: Final[tuple[Setting, ...]] = (
    Setting(
        "spark.sql.streaming.checkpointFileManagerClass",
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
        reason="Checkpoints in local files: the default one asks the shell for the permissions of"
        " each file it lists or renames, in a process of its own. Object stores and HDFS keep"
        " the default.",
        effect="44 / 76 ms with it, 104 / 160 without; a trigger takes 34 ms, not 90.",
    ),
    Setting(
        "spark.hadoop.fs.file.impl",
        "org.apache.hadoop.fs.RawLocalFileSystem",
        reason="Local files without a second file with a checksum beside each. Leave it out where"
        " tables are read from local files that must be checked.",
        effect="64 / 108 ms with it, 70 / 121 without; offset and commit log take 8 ms of a"
        " trigger, not 13.",
    ),
    Setting(
        "spark.sql.streaming.checkpoint.fileChecksum.enabled",
        "false",
        reason="One more file, and one more process for its permissions, for each of the two files"
        " that a batch writes. Leave it on where damage to the checkpoint's disk must be noticed.",
        effect="44 / 76 ms with it, 46 / 82 without; offset and commit log take 6 ms of a"
        " trigger, not 9.",
    ),
    Setting(
        "spark.python.unix.domain.socket.enabled",
        "true",
        reason="Cheaper than TCP between the virtual machine and its Python workers, and no port"
        " that others can connect to.",
        effect="64 / 108 ms with it, 133 / 197 without; the tasks of a batch take 31 ms, not 76.",
    ),
    Setting(
        "spark.python.use.daemon",
        "true",
        reason="Spark's default, stated because everything rests on it: without it each task starts"
        " a Python of its own.",
        effect="The first batch of a query takes 0.1 s with it, 3.2 s without.",
    ),
    Setting(
        "spark.python.worker.reuse",
        "true",
        reason="Spark's default, stated because everything rests on it: the workers keep what they"
        " have imported, and their connections.",
        effect="The first batch of a query takes 0.1 s with it, 2.4 s without.",
    ),
    Setting(
        "spark.sql.adaptive.enabled",
        "false",
        reason="Batches of a streaming query have nothing to adapt, but are planned for it.",
        effect="45 / 71 ms with it, 49 / 78 without; a trigger takes 34 ms, not 37.",
    ),
    Setting(
        "spark.sql.execution.arrow.maxBytesPerBatch",
        "2147483647",
        reason="With any smaller limit Spark adds up the size of its Arrow batch after each row"
        " that goes to Python, a sink or a mapInArrow. Leave it out where"
        " spark.sql.execution.arrow.maxRecordsPerBatch rows (10,000) may not fit into memory, or"
        ' bound a trigger with "maxBytesPerTrigger".',
        effect="Five columns to the sink as Arrow: 3,150,000 rows a second with it, 1,330,000"
        " without; 0.24 CPU seconds of the virtual machine a million rows, not 1.0.",
    ),
)

JAVA_SETTINGS: Final[tuple[Setting, ...]] = (
    Setting(
        "-XX:TieredStopAtLevel=1",
        "",
        reason="Plans live for one trigger and starts are many: the optimizing compiler takes"
        " processor time that it rarely earns back. Leave it out where batches are large.",
        effect="59 / 104 ms with it, 72 / 126 without, in the first half minute; 21 s of"
        " processor time instead of 32.",
    ),
)

#: Instead of these, for batches of a hundred thousand rows and more.
JAVA_SETTINGS_LARGE: Final[tuple[Setting, ...]] = (
    Setting(
        "-XX:Tier4InvocationThreshold=100000 -XX:Tier4MinInvocationThreshold=12000"
        " -XX:Tier4CompileThreshold=300000 -XX:Tier4BackEdgeThreshold=800000",
        "",
        reason="The optimizing compiler is for the loops over rows and for nothing else; plans"
        " live for one trigger.",
        effect="501,000 rows a second with it, 440,000 without: JSON in batches of 250,000 into"
        " noop; 0.73 CPU seconds of the virtual machine a million rows instead of 1.24.",
    ),
    Setting(
        "-XX:+UseParallelGC",
        "",
        reason="Each job broadcasts itself in blocks of 4 MB, which G1 takes for so many signs that"
        " the heap is full; and G1 works beside the rows, on cores that they need.",
        effect="0.60 CPU seconds of the virtual machine a million rows instead of 0.71.",
    ),
)

#: ``SETTINGS`` as Spark's configuration.
RECOMMENDED_CONF: Final[dict[str, str]] = {one.key: one.value for one in SETTINGS}


def asynchronous_progress(interval_s: float = 1.0) -> dict[str, str]:
    """Options of ``writeStream`` that remove the checkpoint's logs from a trigger's critical path.

    Spark then writes them beside the batches, and not for each.  Without Hadoop's native library,
    which PySpark does not include, each of a batch's two files costs a process that sets its
    permissions.  97 / 157 ms with it, 119 / 192 without; a trigger takes 68 ms, not 88.

    After a restart batches may be cut differently.  So the sink accepts these options for rows with
    positions, or at least once, and refuses others.  Spark refuses queries with aggregations, joins
    of streams or states of its own.

    Args:
        interval_s: interval of writing the logs; a restart reads at most this much again, besides
            the batch in progress.
    """
    return {
        "asyncProgressTrackingEnabled": "true",
        "asyncProgressTrackingCheckpointIntervalMs": str(round(interval_s * 1000)),
        # Spark allows it for only two of its own sinks.
        "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
    }


def java_options(*, large_batches: bool = False) -> str:
    """The value for ``spark.driver.extraJavaOptions``."""
    settings = JAVA_SETTINGS_LARGE if large_batches else JAVA_SETTINGS
    return " ".join(one.key for one in settings)


#: Libraries of Spark that no query of the connector needs, as patterns of file names: machine
#: learning, Hive and its database, Spark Connect, the shell.
UNUSED_JARS: Final = (
    "spark-mllib*", "spark-graphx*", "breeze*", "spire*", "algebra_*", "cats-kernel*", "arpack*",
    "lapack*", "blas*", "JTransforms*", "JLargeArrays*", "spark-hive*", "hive-[!s]*",
    "hive-se*", "hive-sh*", "datanucleus*", "derby*", "spark-connect*", "connect-repl",
    "spark-pipelines*", "spark-repl*", "scala-compiler*", "jline*",
)  # fmt: skip


def lean_home(target: Path, spare: Path, without: Sequence[str] = ()) -> Path:
    """A ``SPARK_HOME`` without ``python/``: links into the installed PySpark.

    Spark puts ``python/lib/pyspark.zip`` first on the path of its Python processes.  Each process
    compiles the modules of a zip file again, and a query needs several.  Without the zip they
    import the installed package, which is compiled.  The start of a further query to its first row
    takes 0.75 s with it, 1.4 s without.

    Args:
        target: where to create it unless it exists; a constant path allows an archive of Java
            classes to be reused.
        spare: where to create it if ``target`` can't be written, or not be read by this user; must
            not exist.  A ``target`` whose links lead nowhere is moved beside it.
        without: patterns of jars to leave out, such as ``UNUSED_JARS``; the driver then has no
            Hive and no MLlib.  A session with them uses 30 MB more, as Spark loads MLlib's
            functions, and Java keeps the list of contents of each jar in its heap.

    Returns:
        ``target`` or ``spare``; to be set as ``SPARK_HOME`` before the session starts.
    """
    if _is_usable(target):
        return target
    installed = Path(pyspark.__file__).parent
    spare.mkdir(parents=True)
    # Links into what every user may read; an installation has workers of several users.
    spare.chmod(0o755)
    for name in ("bin", "sbin") if without else ("bin", "jars", "sbin"):
        (spare / name).symlink_to(installed / name)
    if without:
        _link_jars(installed / "jars", spare / "jars", without)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if _is_readable(target) and not _is_usable(target):
            # Its links lead nowhere: it was made under another path of this installation.
            target.rename(spare.with_name(f"{spare.name}-unusable"))
        spare.rename(target)
    except OSError:
        # Another session was quicker, or the installation is read-only.
        return target if _is_usable(target) else spare
    return target


def _link_jars(installed: Path, jars: Path, without: Sequence[str]) -> None:
    jars.mkdir()
    jars.chmod(0o755)
    for jar in installed.iterdir():
        if not any(fnmatchcase(jar.name, pattern) for pattern in without):
            (jars / jar.name).symlink_to(jar)


def _is_usable(home: Path) -> bool:
    return _is_readable(home) and (home / "bin" / "spark-submit").exists()


def _is_readable(directory: Path) -> bool:
    return os.access(directory, os.R_OK | os.X_OK)
