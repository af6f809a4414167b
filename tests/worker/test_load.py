"""A node's memory counts a page that its processes share once."""

from __future__ import annotations

import os
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


def test_memory_is_measured_now_and_then_and_at_once_for_another_session() -> None:
    load, session = machine.Load(), os.getppid()
    first = load.measure(0.0).memory_bytes
    block = bytearray(os.urandom(1)) * 50_000_000
    assert load.measure(9.0).memory_bytes == first
    assert load.measure(10.0).memory_bytes > first + 40_000_000
    assert load.measure(11.0, session).memory_bytes > load.measure(12.0, None).memory_bytes
    del block


def test_a_process_that_has_ended_has_none() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as started:
        process = psutil.Process(started.pid)
        assert machine.memory_bytes(process) > 0
    assert machine.memory_bytes(process) == 0
