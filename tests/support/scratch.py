"""Leftovers of a worker's processes in a directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mesh.files import scratch


def inside(directory: Path) -> list[Path]:
    """The content but for the agent's own file of settings, which goes with the agent."""
    found = directory.iterdir() if directory.exists() else ()
    return [one for one in found if not one.name.startswith("mesh-stores-")]


OWNER = """
import sys
from mesh.files import scratch
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
