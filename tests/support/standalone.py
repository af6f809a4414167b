"""A standalone Spark cluster on this machine: a master and workers of the pip package."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyspark

from mesh.files import scratch
from mesh.processes import java
from mesh.processes.bounded_process import die_with_parent
from tests.support.paths import ROOT
from tests.support.processes import look_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEADLINE_S = 150.0
WORKERS = ("w1", "w2")


class Standalone:
    """A master and workers, as ``spark-class`` starts them."""

    def __init__(
        self,
        directory: Path,
        *,
        workers: Sequence[str] = WORKERS,
        cores: int = 1,
        memory: str = "700m",
        conf: Mapping[str, str] | None = None,
    ) -> None:
        """A cluster that is not started.

        Args:
            directory: of its files.
            workers: their names.
            cores: of each worker.
            memory: of each worker.
            conf: Spark's settings of the cluster.
        """
        self._directory = directory
        self._workers, self._cores, self._memory = workers, cores, memory
        self._conf = directory / "cluster.conf"
        lines = [f"{key} {value}\n" for key, value in (conf or {}).items()]
        self._conf.write_text("".join(lines))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        #: Of the master, once it is up.
        self.url = ""

    def start(self) -> None:
        """Start all of them, and return once the workers are registered."""
        self.start_master()
        for name in self._workers:
            self.start_worker(name)
        for name in self._workers:
            self._said(name, r"(Successfully registered) with master")

    def start_master(self) -> None:
        """Start the master, again at its port after it was killed; returns once it listens."""
        port = self.url.rpartition(":")[2] or "0"
        self._start("master", "master.Master", "--port", port, "--webui-port", "0")
        self.url = self._said("master", r"Starting Spark master at (spark://\S+)")

    def start_worker(self, name: str) -> None:
        """Start a worker, which registers by itself."""
        self._start(
            name, "worker.Worker", "--port", "0", "--webui-port", "0", "--cores", str(self._cores),
            "--memory", self._memory, "--work-dir", str(self._directory / name), self.url,
        )  # fmt: skip

    def _start(self, name: str, kind: str, *arguments: str) -> None:
        common = ("--host", "127.0.0.1", "--properties-file", str(self._conf))
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        with self._log(name).open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [program, f"org.apache.spark.deploy.{kind}", *common, *arguments],
                env=environment()
                | {
                    "SPARK_LOCAL_DIRS": str(self._directory / "local"),
                    "SPARK_DAEMON_MEMORY": "160m",
                    "SPARK_NO_DAEMONIZE": "1",
                },
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _said(self, name: str, pattern: str) -> str:
        """Wait for a line in a log; returns the pattern's group."""
        found: list[str] = []

        def has_said() -> bool:
            found.extend(re.findall(pattern, self._log(name).read_text(errors="replace")))
            return bool(found)

        look_until(has_said, self._processes[name], f"{pattern} from {name}", DEADLINE_S)
        return found[0]

    def executors(self, name: str) -> list[psutil.Process]:
        """The executors that a worker has started."""
        children = psutil.Process(self._processes[name].pid).children(recursive=True)
        return [child for child in children if "CoarseGrainedExecutorBackend" in line_of(child)]

    def kill(self, name: str) -> None:
        """Kill -9 the master, or a worker with its executor and that one's Python workers."""
        kill_tree(self._processes[name])

    def stop(self) -> None:
        """End all of it."""
        for process in self._processes.values():
            kill_tree(process)


def environment() -> dict[str, str]:
    """Environment that a user sets: a Java, and the connector's path if it is not installed."""
    return {
        **os.environ,
        "JAVA_HOME": str(java.java_home()),
        "PYTHONPATH": f"{ROOT / 'connectors'}{os.pathsep}{ROOT}",
        # Sockets of executors are in the system's directory: paths of tests are too long.
        "JAVA_TOOL_OPTIONS": "-XX:-UsePerfData",
        "TMPDIR": str(scratch.SYSTEM),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill -9 a process and all that it started."""
    if process.poll() is None:
        parent = psutil.Process(process.pid)
        for one in [parent, *parent.children(recursive=True)]:
            try:
                one.kill()
            except psutil.NoSuchProcess:
                continue
    process.wait()


def line_of(process: psutil.Process) -> str:
    """A process's command line; "" when it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""
