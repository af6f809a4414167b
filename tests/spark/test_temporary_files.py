"""A worker's session leaves nothing in the system's temporary directory, however it ends."""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from mesh.files import scratch
from mesh.settings import NatsSettings, Settings
from mesh.worker.children import SessionProcess
from mesh.worker.protocol import Ready, SessionConfig
from tests.support.scratch import inside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.jetstream.server import NatsServer

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.slow]

#: Where the JVM keeps its counters, wherever temporary files are.
COUNTERS = Path("/tmp")


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty directory with a short path, as the system's temporary one."""
    with tempfile.TemporaryDirectory(prefix="t-") as path:
        monkeypatch.setenv("TMPDIR", path)
        monkeypatch.delenv("JAVA_TOOL_OPTIONS")
        monkeypatch.setattr(tempfile, "tempdir", path)
        monkeypatch.setattr(scratch, "SYSTEM", Path(path))
        yield Path(path)


@pytest.mark.extended
async def test_nothing_is_left_after_a_calm_end_and_after_a_kill(
    system: Path, tmp_path: Path, nats_server: NatsServer
) -> None:
    # A long path: sockets go elsewhere.
    state = tmp_path / "state" / ("long" * 20)
    # A host's name with its domain is a worker's name too.
    settings = Settings(nats=NatsSettings(url=nats_server.url))
    config = SessionConfig("w.example.com", str(state), settings)
    seen: set[Path] = set()

    session = SessionProcess(config)
    await _start(session)
    seen.update(inside(system))
    assert inside(state)
    # Others can't read it, whatever the umask of the worker is.
    modes = {stat.S_IMODE(one.stat().st_mode) for own in inside(state) for one in inside(own)}
    assert not any(mode & 0o077 for mode in modes)
    assert not _counters(session)
    await session.stop()
    assert inside(system) == []
    assert inside(state) == []
    await _start(session)
    assert session.pid is not None
    psutil.Process(session.pid).kill()
    # The next one removes what it has left.
    await _start(session)
    await session.stop()
    assert inside(system) == []
    assert inside(state) == []
    assert {path.name[:7] for path in seen} == {"mesh-s-"}


async def _start(session: SessionProcess) -> None:
    await session.start()
    async for reply in session.replies():
        if isinstance(reply, Ready):
            return
    raise AssertionError("the session ended before it was ready")


def _counters(session: SessionProcess) -> list[Path]:
    """The counters of the session's JVM."""
    assert session.pid is not None
    processes = psutil.Process(session.pid).children(recursive=True)
    return [path for one in processes for path in COUNTERS.glob(f"hsperfdata_*/{one.pid}")]
