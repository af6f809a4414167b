"""Environment of every measurement of the connector: a server, a Spark session, a directory."""

from __future__ import annotations

import os
import shutil
import statistics
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import psutil

from bench.connector.wire import Wire
from mesh.files import scratch
from mesh.jetstream import server
from mesh.processes import java
from pyspark_nats import tuning

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

#: The issue's figures are for this many cores; more would flatter, fewer would not do.
CORES: Final = 2

#: A session without settings for this machine; the rest is the connector's own recommendation.
_SESSION_CONF: Final[dict[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


@dataclass(frozen=True)
class Figure:
    """One number of the bench, and its target.

    With a ``limit`` the target is one of the ratio ``value / limit``, else of ``value`` itself.
    """

    name: str
    #: The median of ``runs``.
    value: float
    unit: str
    #: None for a figure that is printed for the record only.
    target: float | None = None
    #: Whether the target is a lower bound; False for an upper one.
    at_least: bool = True
    note: str = ""
    #: Value to compare ``value`` with, in the same unit; None to compare the value itself.
    limit: float | None = None
    #: Every single measurement, in the order in which they were made.
    runs: tuple[float, ...] = ()

    @property
    def ratio(self) -> float | None:
        """``value`` as a share of the limit; None without a limit."""
        return None if self.limit is None else self.value / self.limit

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.target is None:
            return None
        measured = self.value if self.ratio is None else self.ratio
        return measured >= self.target if self.at_least else measured <= self.target


def figure(
    name: str,
    runs: Sequence[float],
    unit: str,
    *,
    target: float | None = None,
    at_least: bool = True,
    note: str = "",
    limit: float | None = None,
) -> Figure:
    """A figure with the median of ``runs`` as its value; at least one."""
    value = statistics.median(runs)
    return Figure(name, value, unit, target, at_least, note, limit, tuple(runs))


@dataclass(frozen=True)
class CpuSeconds:
    """Processor time that has been used so far, seconds."""

    server: float
    jvm: float
    #: Spark's Python workers and planners.
    python: float

    def since(self, before: CpuSeconds) -> CpuSeconds:
        """The usage between two readings."""
        return CpuSeconds(
            self.server - before.server, self.jvm - before.jvm, self.python - before.python
        )

    def per_million(self, rows: int) -> str:
        """As text, per million rows."""
        share = 1e6 / rows
        parts = (("server", self.server), ("python", self.python), ("jvm", self.jvm))
        return ", ".join(f"{name} {used * share:.2f}" for name, used in parts) + " CPU s/M"


class Bench:
    """A server of its own, and a Spark session that is created on demand.

    Use it as a context: at its end everything is stopped and deleted, also after an interrupt.
    """

    def __init__(self) -> None:
        #: For files of measurements, such as checkpoints; the server's store is below it as well.
        self.directory = scratch.for_process("bench")
        self._spark: SparkSession | None = None
        self._java_options = ""
        self._server: server.NatsServer | None = None

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop_spark()
        finally:
            if self._server is not None:
                self._server.stop()
            shutil.rmtree(self.directory, ignore_errors=True)

    # --- server

    @property
    def server(self) -> server.NatsServer:
        """The server, started by the first use: JetStream with file storage, one node."""
        if self._server is None:
            self._server = server.start(self.directory / "nats")
        return self._server

    @property
    def url(self) -> str:
        """URL for clients."""
        return self.server.url

    def call(self, subject: str, **query: Any) -> dict[str, Any]:
        """An API call of JetStream, ``subject`` without its prefix.

        Raises:
            RuntimeError: the server refused.
        """
        with Wire(self.server.port) as wire:
            return wire.call(subject, **query)

    def create_stream(self, name: str, subjects: Sequence[str] | str, **config: Any) -> None:
        """Create a stream that the sink can write to exactly once.

        Args:
            name: of the stream; the sink's marker subjects are added.
            subjects: the subjects that it captures.
            config: further fields of the stream's configuration, or others for ours.
        """
        own = [subjects] if isinstance(subjects, str) else list(subjects)
        fields: dict[str, Any] = {
            "name": name,
            "subjects": [*own, f"mesh._marker.{name}.>"],
            "storage": "file",
            "num_replicas": 1,
            "allow_direct": True,
            "allow_atomic": True,
        }
        self.call(f"STREAM.CREATE.{name}", **(fields | config))

    def delete_stream(self, name: str) -> None:
        """Delete a stream, so its files do not affect the next measurement."""
        self.call(f"STREAM.DELETE.{name}")

    def messages(self, name: str, subject: str = ">") -> int:
        """Number of messages in a stream with this subject."""
        state = self.call(f"STREAM.INFO.{name}", subjects_filter=subject)["state"]
        return sum(state.get("subjects", {}).values())

    # --- Spark

    @property
    def spark(self) -> SparkSession:
        """A session for large batches, started by the first use; measurements share it."""
        return self._session(tuning.java_options(large_batches=True))

    @property
    def quick_spark(self) -> SparkSession:
        """A session for short batches: its JVM compiles for plans that live for one trigger."""
        return self._session(tuning.java_options())

    def _session(self, java_options: str) -> SparkSession:
        if self._spark is None or self._java_options != java_options:
            self.stop_spark()
            self._java_options = java_options
            self._spark = start_session(self.directory / f"spark{len(java_options)}", java_options)
        return self._spark

    def stop_spark(self) -> None:
        """End the session and its JVM; the next use starts another."""
        if self._spark is None:
            return
        from mesh.spark import session

        # The JVM would outlive the session, and its settings with it.
        session.stop(self._spark)
        self._spark = None

    # --- resource usage

    def cpu(self) -> CpuSeconds:
        """The processor time used so far by the server and by Spark."""
        jvm = python = 0.0
        for child in psutil.Process().children():
            own, ended = _used(child)
            if _name(child) == "java":
                jvm += own
                # The JVM's child processes are Python.
                python += ended + sum(sum(_used(p)) for p in child.children(recursive=True))
        return CpuSeconds(sum(_used(psutil.Process(self.server.process.pid))), jvm, python)

    def rate(self, rows: int, work: Callable[[], float]) -> tuple[float, CpuSeconds]:
        """Do ``work``, which returns the seconds it needed; rows a second, and the usage."""
        before = self.cpu()
        took_s = work()
        return rows / took_s, self.cpu().since(before)


def start_session(directory: Path, java_options: str) -> SparkSession:
    """A local session with the settings that the connector recommends."""
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = str(java.java_home())
    directory.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(directory)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = str(tuning.lean_home(directory / "home", directory / "made"))
    conf = {
        **tuning.RECOMMENDED_CONF,
        **_SESSION_CONF,
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={directory}"
        f" -Djava.io.tmpdir={directory} -XX:-UsePerfData {java_options}",
    }
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("bench")
    for key, value in conf.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def _used(process: psutil.Process) -> tuple[float, float]:
    """Seconds of a process, and of those of its children that have ended."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0, 0.0
    return times.user + times.system, times.children_user + times.children_system
