"""A planner doesn't outlive the process that started it."""

from __future__ import annotations

import subprocess
import sys
import threading

import psutil
import pytest

from pyspark_nats.source import reader

CHILD = """
import threading
from pyspark_nats.source import reader
reader.end_with_parent(look_s=0.01)
print("watches", flush=True)
threading.Event().wait()
"""
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
print(child.pid, child.stdout.readline().decode().strip(), flush=True)
child.wait()
"""


@pytest.mark.slow
def test_it_ends_soon_after_its_parent_was_killed() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, text=True
    )
    try:
        assert parent.stdout is not None
        pid, said = parent.stdout.readline().split()
        assert said == "watches"
        child = psutil.Process(int(pid))
    finally:
        parent.kill()
        parent.communicate()
    gone, _ = psutil.wait_procs([child], timeout=10)
    assert gone == [child]


def test_a_program_that_is_no_planner_is_not_watched() -> None:
    before = threading.active_count()
    reader.end_with_jvm()
    assert threading.active_count() == before
