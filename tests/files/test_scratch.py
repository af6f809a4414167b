"""Scratch directories: removed by their process, or by the next one after a kill."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mesh.files import scratch
from mesh.settings import Settings
from mesh.worker.children import SessionProcess
from mesh.worker.protocol import Ready, SessionConfig
from tests.support.scratch import inside, owner, system

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mesh.worker.protocol import Reply

__all__ = ("system",)


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


def test_a_directory_of_another_user_stays_even_with_a_lock_of_ours(
    system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = system / "mesh-test-1"
    foreign.mkdir()
    (foreign / ".mesh-owner").touch()
    lstat = Path.lstat

    def lstat_of(path: Path) -> os.stat_result:
        found = lstat(path)
        of_others = os.stat_result((*found[:4], os.getuid() + 1, *found[5:]))
        return of_others if path == foreign else found

    monkeypatch.setattr(Path, "lstat", lstat_of)
    scratch.sweep()
    assert foreign.exists()
    monkeypatch.undo()
    monkeypatch.setattr(scratch, "SYSTEM", system)
    scratch.sweep()
    assert not foreign.exists()


SESSION = """
import os, pathlib, sys
from mesh.files import scratch
from mesh.model import codec
from mesh.worker import state_directory
from mesh.worker.protocol import Ready, read_config, to_line
config = read_config()
directory = state_directory.for_session(pathlib.Path(config.directory))
scratch.redirect(directory / "tmp")
(directory / "tmp" / "file").touch()
(scratch.for_process("s") / "socket").touch()
sys.stdout.buffer.write(to_line(Ready("4", 0.1)))
sys.stdout.flush()
sys.stdin.read()
"""


@pytest.mark.parametrize("end", ["calm", "killed", "killed alone"])
async def test_nothing_is_left_of_a_session(system: Path, end: str) -> None:
    """See tests/spark/test_temporary_files.py for the same with Spark."""
    config = SessionConfig("w", str(system / "state"), Settings())

    session = SessionProcess(config, (sys.executable, "-c", SESSION))
    await session.start()
    assert [reply async for reply in first(session)] == [Ready("4", 0.1)]
    assert len(inside(system)) == 2
    if end == "calm":
        await session.stop()
    elif end == "killed":
        await session.kill()
    else:
        assert session.pid is not None
        os.kill(session.pid, signal.SIGKILL)
        await session.start()
        assert [reply async for reply in first(session)] == [Ready("4", 0.1)]
        assert len(inside(system)) == 2
        await session.kill()
    assert inside(system) == [system / "state"]
    assert inside(system / "state") == []


async def first(session: SessionProcess) -> AsyncIterator[Reply]:
    async for reply in session.replies():
        yield reply
        return


def test_a_user_who_may_write_the_sources_may_write_beside_them(tmp_path: Path) -> None:
    for path in (tmp_path / "sources", tmp_path / "sources" / "cache"):
        path.mkdir()
        path.chmod(0o775)
    with pytest.raises(PermissionError):
        scratch.trusted(tmp_path / "sources" / "cache")
    assert scratch.trusted(tmp_path / "sources" / "cache", beside=tmp_path / "sources").exists()
    (tmp_path / "sources").chmod(0o755)
    with pytest.raises(PermissionError):
        scratch.trusted(tmp_path / "sources" / "cache", beside=tmp_path / "sources")
