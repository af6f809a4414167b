"""A node's memory counts a page that its processes share once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest

from mesh import machine

#: A process with a child that shares a large part of its memory.
FORKS = """
import os, sys
block = bytearray(os.urandom(1)) * 200_000_000
child = os.fork()
if not child:
    sys.stdin.read()
    os._exit(0)
print(flush=True)
sys.stdin.read()
os.waitpid(child, 0)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="needs Linux 4.14")
def test_a_page_of_two_processes_counts_once() -> None:
    command = [sys.executable, "-c", FORKS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.stdin is not None
        started.stdout.readline()
        load = machine.Load().measure(0.0, started.pid)
        own = machine.memory_bytes(psutil.Process())
        assert 200_000_000 < load.memory_bytes - own < 260_000_000
        started.stdin.close()


def test_memory_is_measured_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    told = iter((1, 2, 3, 4))
    monkeypatch.setattr(machine, "memory_bytes", lambda process: next(told))
    load, session = machine.Load(), os.getpid()
    reads: list[int | None] = []

    def processes(self: machine.Load, session: int | None) -> list[psutil.Process]:
        reads.append(session)
        return [self._process] if session is None else [self._process, self._process]

    monkeypatch.setattr(machine.Load, "_processes", processes)
    found = [load.measure(at_s).memory_bytes for at_s in (0.0, 9.0, 10.0, 19.0)]
    assert found == [1, 1, 2, 2]
    # Another session is measured at once, with this process: 3 and 4.
    assert load.measure(19.5, session).memory_bytes == 7
    # The table of processes, which may be long, is read as seldom.
    assert reads == [None, None, session]


def test_processor_time_of_a_session_counts_its_children() -> None:
    spin = "import os, sys\nos.fork() or [i * i for i in iter(int, 1)]\nsys.stdin.read()"
    command = [sys.executable, "-c", spin]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as started:
        while not (children := psutil.Process(started.pid).children()):
            pass
        load = machine.Load()
        load.measure(0.0, started.pid)
        # After the measurement, however long that took.
        before_s = sum(children[0].cpu_times()[:2])
        while sum(children[0].cpu_times()[:2]) < before_s + 0.2:
            pass
        try:
            assert load.measure(1.0, started.pid).process_cpu_percent >= 10
        finally:
            os.killpg(started.pid, signal.SIGKILL)


def test_a_process_that_has_ended_has_none() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as started:
        process = psutil.Process(started.pid)
        assert machine.memory_bytes(process) > 0
    assert machine.memory_bytes(process) == 0


def test_a_heartbeat_needs_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    load = machine.Load()
    first = load.measure(0.0)

    def full(self: machine.Load, session: int | None) -> list[psutil.Process]:
        raise OSError(24, "too many open files")

    monkeypatch.setattr(machine.Load, "_processes", full)
    assert load.measure(10.0) == first
