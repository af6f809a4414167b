"""The test's side of ``driver.py``: start, kill, pause, and the expected output."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyspark

from mesh.processes import java
from mesh.processes.bounded_process import die_with_parent
from mesh.spark import class_archive
from tests.support.interpreters import without_blanks
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from tests.pyspark_nats.faults.relay import Message
    from tests.support.broker import Broker

#: A cold start of Spark on a busy machine, and then some.
DEADLINE_S = 90.0

#: The streams that are read, each a Spark partition, and the sequences of one batch.
INPUTS = ("IN0", "IN1")
CUT = 30
#: Batches of this size end elsewhere.
OTHER_CUT = 46

_numbers = count(1)


@dataclass(frozen=True)
class Setup:
    """Settings of a driver."""

    source: dict[str, str]
    sink: dict[str, str]
    checkpoint: str
    scratch: str
    #: Whether ``_stream`` and ``_sequence`` go along to the sink.
    carries_place: bool = False
    master: str = "local[2]"
    #: Further options of the JVM.
    java: str = ""

    @staticmethod
    def between(servers: str, directory: Path) -> Setup:
        """From ``INPUTS`` to OUT."""
        source = {"servers": servers, "stream": ",".join(INPUTS), "maxOffsetsPerTrigger": str(CUT)}
        sink = {"servers": servers, "stream": "OUT"}
        return Setup(source, sink, str(directory / "checkpoint"), str(directory / "spark"))

    def cut(self, most: int) -> Setup:
        """The same with batches of another size."""
        return replace(self, source={**self.source, "maxOffsetsPerTrigger": str(most)})

    def to(self, **given: str) -> Setup:
        """The same with further options of the sink."""
        return replace(self, sink={**self.sink, **given})

    def on(self, master: str) -> Setup:
        """The same on another master."""
        return replace(self, master=master)

    def carrying_place(self) -> Setup:
        """The same with the origin of each row."""
        return replace(self, carries_place=True)

    def copied(self, name: str) -> Setup:
        """The same with a copy of the checkpoint as it is now; with a new one if there is none."""
        copy = Path(self.checkpoint).with_name(name)
        if Path(self.checkpoint).exists():
            shutil.copytree(self.checkpoint, copy)
        return replace(self, checkpoint=str(copy))


class Driver:
    """A running driver with its JVM and its Python workers."""

    def __init__(self, setup: Setup) -> None:
        home = Path(setup.scratch) / f"driver-{next(_numbers)}"
        home.mkdir(parents=True)
        file = home / "setup.json"
        archive = class_archive.java_option(class_archive.default_path())
        file.write_text(json.dumps(asdict(replace(setup, scratch=str(home), java=archive))))
        self._log, self._checkpoint = home / "log", setup.checkpoint
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, Path(__file__).with_name("driver.py"), file],
                env={
                    **os.environ,
                    "SPARK_HOME": str(spark_home(home)),
                    "JAVA_HOME": str(java.java_home()),
                    "PYSPARK_PYTHON": without_blanks(home),
                    "PYTHONPATH": str(ROOT / "connectors"),
                },
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )

    @property
    def is_running(self) -> bool:
        """Whether the program has not ended."""
        return self._process.poll() is None

    @property
    def log(self) -> str:
        """The end of its log, which has the program's own error."""
        return self._log.read_text(errors="replace")[-8000:]

    def tree(self) -> list[psutil.Process]:
        """The driver's processes: the program, its JVM, and the Python daemons and workers."""
        if not self.is_running:
            return []
        program = psutil.Process(self._process.pid)
        return [program, *program.children(recursive=True)]

    def workers(self) -> list[psutil.Process]:
        """The Python workers that run tasks: forks of their daemon, with its command line."""
        found = []
        for process in self.tree():
            try:
                line, parent = process.cmdline(), process.parent()
                # Others plan batches for the JVM: a query does not outlive those.
                if line[-1:] == ["pyspark.worker"] and parent and parent.cmdline() == line:
                    found.append(process)
            except psutil.NoSuchProcess:
                continue
        return found

    def kill(self) -> None:
        """Kill -9 the program, its JVM and its workers."""
        processes = self.tree()
        for process in processes:
            send(process, signal.SIGKILL)
        self._process.wait()
        # Another process reaps an orphan.
        psutil.wait_procs(processes, timeout=10)

    def kill_program(self) -> None:
        """Kill -9 the program and its JVM; its workers notice that the JVM has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def pause(self) -> None:
        """Freeze all its processes."""
        for process in self.tree():
            send(process, signal.SIGSTOP)

    def resume(self) -> None:
        """Resume it."""
        for process in self.tree():
            send(process, signal.SIGCONT)

    def wait(self, broker: Broker, stored: int) -> None:
        """Wait until OUT holds ``stored`` sequences, markers included; no end comes before."""

        def is_there() -> bool:
            # Looked at first: a stream that holds them may have been written by one that has ended.
            is_running = self.is_running
            is_stored = broker.info("OUT").last >= stored
            assert is_running or is_stored, self.log
            return is_stored

        broker.wait_until("OUT", is_there, f"sequence {stored} of OUT", DEADLINE_S, subject="out.>")

    def finish(self) -> None:
        """Wait until the query is through; it must not fail."""
        assert self._wait() == 0, self.log

    def failure(self) -> str:
        """Wait until the query fails, and return its log; "" if it does not fail."""
        return self.log if self._wait() else ""

    def _wait(self) -> int:
        before = -1
        # As long as it goes on: a busy machine needs long for many batches.
        while (planned := batches(self._checkpoint)) > before:
            before = planned
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self._process.wait(DEADLINE_S)
        raise AssertionError(f"the driver hangs\n{self.log}")


def spark_home(directory: Path) -> Path:
    """A Spark home that starts sooner: without the zipped Python that each process compiles again.

    The one of this installation, if ``python -m mesh.worker.prepare`` created it, has the class
    path that the class archive is for.
    """
    prepared = class_archive.spark_home()
    if prepared.exists():
        return prepared
    made = directory / "home"
    made.mkdir()
    for name in ("bin", "jars", "sbin"):
        (made / name).symlink_to(Path(pyspark.__file__).parent / name)
    return made


def send(process: psutil.Process, number: int) -> None:
    """Signal a process that may have ended."""
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


def expected(stream: str, rows: int) -> list[bytes]:
    """The output of ``driver.py`` for the numbers below ``rows``, in ``stream``."""
    return [b"%d %s!" % (n, stream.encode()) for n in range(rows) if n % 5 != 0]


def fill(broker: Broker, rows: int, *, first: int = 0) -> None:
    """Publish the numbers from ``first`` to below ``rows`` to each of ``INPUTS``."""
    for stream in INPUTS:
        broker.publish(f"ev.{stream}", *[f"{n} {stream}" for n in range(first, rows)])


def compare(messages: list[Message], rows: dict[str, int], *, may_stop_short: bool = False) -> None:
    """Check OUT, row by row and input by input.

    Args:
        messages: all of OUT.
        rows: number of rows in each input stream.
        may_stop_short: the end may be missing, as after a refused query.
    """
    for stream, total in rows.items():
        found = [m.data for m in messages if m.subject == f"out.{stream}"]
        wanted = expected(stream, total)
        for at, (one, other) in enumerate(zip(found, wanted, strict=False)):
            assert one == other, f"{stream}: row {at} is {one!r}, not {other!r}"
        assert len(found) <= len(wanted), f"{stream}: {found[len(wanted)]!r} came again"
        assert may_stop_short or len(found) == len(wanted), f"{stream}: {len(found)} rows"


def batches(checkpoint: Path | str) -> int:
    """Number of batches that a query has planned, from its checkpoint."""
    numbers = [int(p.name) for p in Path(checkpoint, "offsets").glob("[0-9]*")]
    return max(numbers, default=-1) + 1
