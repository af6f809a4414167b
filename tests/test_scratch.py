"""Scratch directories: removed by their process, or by the next one after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from mesh import scratch

if TYPE_CHECKING:
    from pathlib import Path

OWNER = """
import sys
from mesh import scratch
path = scratch.for_process("test")
(path / "file").touch()
print(path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's temporary directory, for this process and those it starts."""
    monkeypatch.setattr(scratch, "SYSTEM", tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def owner() -> subprocess.Popen[str]:
    """A process with a scratch directory."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith(f"{os.environ['TMPDIR']}/mesh-test-")
    return process


def test_a_directory_ends_with_its_context(system: Path) -> None:
    with scratch.directory("test") as path:
        assert path.parent == system
        (path / "file").touch()
        scratch.sweep()
        assert (path / "file").exists()
    assert list(system.iterdir()) == []


def test_a_directory_ends_with_its_process(system: Path) -> None:
    with owner() as process:
        assert len(list(system.iterdir())) == 1
        process.communicate("")
    assert list(system.iterdir()) == []


def test_the_directory_of_a_killed_process_is_removed_by_the_next_one(system: Path) -> None:
    with owner() as living, owner() as killed:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert len(list(system.iterdir())) == 2
        with scratch.directory("test") as path:
            # That of the process that lives, and the new one.
            assert path in (found := list(system.iterdir()))
            assert len(found) == 2
        living.communicate("")


def test_directories_of_others_stay(system: Path) -> None:
    (system / "mesh-test-1").mkdir()
    (system / "other").mkdir()
    (system / "other" / ".mesh-owner").touch()
    scratch.sweep()
    assert {path.name for path in system.iterdir()} == {"mesh-test-1", "other"}
