"""A process that is ready takes the streams of the daemon that Spark starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from mesh.spark import daemon_ahead

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: In place of the daemon: says what it is, and ends when its standard input does.
TAKES = """
import json, os, sys
from mesh.spark import daemon_ahead
daemon_ahead.take(int(sys.argv[2]))
print(json.dumps([os.getpid(), sys.argv[1:], os.environ["COLOUR"], sys.path[-1]]), flush=True)
sys.stdin.read()
"""
#: What Spark starts.
ASKS = """
from mesh.spark import daemon_ahead
daemon_ahead.hand_over()
print('"imports for itself"', flush=True)
input()
"""
#: A session that starts the process, and waits.
STARTS = f"""
import pathlib, sys
import psutil
from mesh.spark import daemon_ahead
listening = daemon_ahead.listen(pathlib.Path(sys.argv[1]))
daemon_ahead.start([sys.executable, "-c", {TAKES!r}], listening, {{"COLOUR": "grey"}})
print(psutil.Process().children()[0].pid, flush=True)
input()
"""
TIMEOUT_S = 60


@contextmanager
def _asking(path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Any]]:
    """The program that Spark has started, and the line it reads from it."""
    command = [sys.executable, "-c", ASKS, "pyspark.worker"]
    environment = os.environ | {
        daemon_ahead.VARIABLE: str(path),
        "COLOUR": "blue",
        "PYTHONPATH": "/added",
    }
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as asks:
        assert asks.stdout is not None
        assert asks.stdin is not None
        try:
            yield asks, json.loads(asks.stdout.readline())
        finally:
            asks.stdin.close()


@contextmanager
def _session(path: Path) -> Iterator[tuple[subprocess.Popen[bytes], psutil.Process]]:
    """A session, and the process that it has started."""
    with subprocess.Popen(
        [sys.executable, "-c", STARTS, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as session:
        assert session.stdout is not None
        ahead = psutil.Process(int(session.stdout.readline()))
        try:
            yield session, ahead
        finally:
            session.kill()


def _ends(process: psutil.Process) -> bool:
    return not psutil.wait_procs([process], timeout=TIMEOUT_S)[1]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of the socket."""
    return tmp_path / "daemon"


def test_it_has_streams_arguments_and_environment_of_what_spark_started(path: Path) -> None:
    with _session(path) as (_, ahead), _asking(path) as (asks, said):
        assert said == [ahead.pid, ["pyspark.worker"], "blue", "/added"]
        assert ahead.is_running()
        assert asks.poll() is None


def test_both_end_when_spark_closes_the_input(path: Path) -> None:
    with _session(path) as (_, ahead):
        with _asking(path) as (asks, _):
            pass
        assert _ends(ahead)
        assert asks.wait(TIMEOUT_S) == 0


def test_its_death_ends_what_spark_started(path: Path) -> None:
    with _session(path) as (_, ahead), _asking(path) as (asks, _):
        ahead.kill()
        assert asks.wait(TIMEOUT_S) == 0


def test_a_second_one_imports_for_itself(path: Path) -> None:
    with _session(path), _asking(path), _asking(path) as (_, said):
        assert said == "imports for itself"


def test_without_it_the_daemon_imports_for_itself(path: Path) -> None:
    with _session(path) as (_, ahead):
        ahead.kill()
        assert _ends(ahead)
        with _asking(path) as (_, said):
            assert said == "imports for itself"


@pytest.mark.slow
def test_one_that_nobody_took_ends_with_the_session(path: Path) -> None:
    with _session(path) as (session, ahead):
        session.kill()
        assert _ends(ahead)


def test_one_that_spark_took_does_not(path: Path) -> None:
    with _session(path) as (session, ahead), _asking(path):
        session.kill()
        session.wait()
        assert ahead.is_running()
        assert ahead.status() != psutil.STATUS_ZOMBIE
