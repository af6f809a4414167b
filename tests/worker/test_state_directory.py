"""Directories of a worker's sessions in ``worker.state_dir``, whatever else is in it."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mesh.errors import MeshError
from mesh.functions import script_switch
from mesh.settings import Settings
from mesh.worker import state_directory
from mesh.worker.children import SessionProcess
from mesh.worker.protocol import Ready, SessionConfig

OWNER = """
import pathlib, sys
from mesh.worker import state_directory
path = state_directory.for_session(pathlib.Path(sys.argv[1]))
(path / "file").touch()
print(path, flush=True)
sys.stdin.read()
"""


def owner(directory: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process with a session's directory."""
    command = [sys.executable, "-c", OWNER, str(directory)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_whatever_else_is_in_the_directory_stays(tmp_path: Path) -> None:
    thesis = tmp_path / "documents" / "thesis.txt"
    thesis.parent.mkdir()
    thesis.touch()
    worker = state_directory.for_worker(str(tmp_path), "w1")
    not_ours = worker / "session-1"
    not_ours.mkdir()
    (not_ours / "file").touch()
    process, session = owner(worker)
    with process:
        assert session.parent == worker == tmp_path / "worker-w1"
        process.send_signal(signal.SIGKILL)
    state_directory.remove_ended(worker)
    assert not session.exists()
    assert thesis.exists()
    assert (not_ours / "file").exists()


def test_two_workers_in_one_directory_do_not_disturb_each_other(tmp_path: Path) -> None:
    first, of_first = owner(state_directory.for_worker(str(tmp_path), "w1"))
    with first:
        second, of_second = owner(state_directory.for_worker(str(tmp_path), "w2"))
        with second:
            state_directory.remove_ended(of_second.parent)
            assert (of_first / "file").exists()
            assert (of_second / "file").exists()
            second.communicate("")
        assert not of_second.exists()
        first.communicate("")
    assert not of_first.exists()


def test_a_session_that_runs_keeps_its_directory_when_another_starts(tmp_path: Path) -> None:
    first, of_first = owner(tmp_path / "worker-w1")
    with first:
        second, of_second = owner(tmp_path / "worker-w1")
        with second:
            assert of_first != of_second
            assert (of_first / "file").exists()
            second.communicate("")
        first.communicate("")


def test_others_can_not_read_it(tmp_path: Path) -> None:
    (tmp_path / "worker-w1").mkdir(mode=0o777)
    (tmp_path / "worker-w1").chmod(0o777)
    worker = state_directory.for_worker(str(tmp_path), "w1")
    process, session = owner(worker)
    with process:
        assert stat.S_IMODE(worker.stat().st_mode) == 0o700
        assert stat.S_IMODE(session.stat().st_mode) == 0o700
        process.communicate("")


def test_a_directory_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "worker-w1").mkdir()
    monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
    with pytest.raises(MeshError, match="S130") as error:
        state_directory.for_worker(str(tmp_path), "w1")
    assert "belongs to another user" in str(error.value.detail)


def test_a_link_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "worker-w1").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(MeshError, match="S130"):
        state_directory.for_worker(str(tmp_path), "w1")


def test_what_could_not_be_removed_is_found_by_the_next_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, session = owner(tmp_path)
    with process:
        process.send_signal(signal.SIGKILL)
    # Processes of a killed session may write while its directory is removed.
    (session / "busy").mkdir()
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    state_directory.remove_ended(tmp_path)
    assert session.exists()
    monkeypatch.undo()
    state_directory.remove_ended(tmp_path)
    assert not session.exists()


ENVIRONMENT = """
import os, sys
from mesh.worker.protocol import Ready, to_line
found = [name for name in os.environ if name.startswith("MESH_")]
sys.stdout.buffer.write(to_line(Ready(" ".join(sorted(found)), 0.1)))
sys.stdout.flush()
sys.stdin.read()
"""

if TYPE_CHECKING:
    from tests.support.environment import Variables


@pytest.mark.slow
async def test_a_session_does_not_inherit_logins(tmp_path: Path, environment: Variables) -> None:
    for name in [name for name in os.environ if name.startswith("MESH_")]:
        del environment[name]
    for name in ("MESH_NATS_PASSWORD", "MESH_TOKEN", "MESH_PASSWORD", "MESH_NEW_PASSWORD"):
        environment[name] = "secret"
    environment["MESH_LOG_LEVEL"] = "INFO"
    config = SessionConfig("w", str(tmp_path), Settings())

    session = SessionProcess(config, (sys.executable, "-c", ENVIRONMENT))
    await session.start()
    said = ""
    async for reply in session.replies():
        assert isinstance(reply, Ready)
        said = reply.spark_version
        await session.kill()
        break
    found = [one for one in said.split() if not one.startswith("MESH_STORES_")]
    assert found == [script_switch.SWITCH, "MESH_LOG_LEVEL"]
