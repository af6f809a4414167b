"""A worker compiles the native loops before it accepts an instance, if the installation has not."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import TYPE_CHECKING

import pytest

from mesh.clock import SystemClock
from mesh.operators import loop_cache
from mesh.worker import session_start

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("program", "is_done", "said"),
    [
        ("/bin/false", True, []),
        (
            "/bin/true",
            False,
            [
                "native loops are not compiled yet; that takes a minute or two, once",
                "native loops compiled",
            ],
        ),
        (
            "/bin/false",
            False,
            [
                "native loops are not compiled yet; that takes a minute or two, once",
                "native loops were not compiled; the first batches will take long",
            ],
        ),
    ],
)
def test_a_session_says_so_and_waits(
    program: str,
    is_done: bool,
    said: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(loop_cache, "is_compiled", lambda: is_done)
    monkeypatch.setattr(sys, "executable", program)
    caplog.set_level(logging.INFO, "mesh.worker.session_start")
    asyncio.run(session_start.compile_loops(SystemClock()))
    assert [record.message for record in caplog.records] == said


@pytest.mark.slow
@pytest.mark.parametrize("is_demo", [True, False])
async def test_the_first_demo_waits_for_the_usual_loops(
    is_demo: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_cache, "CACHE", tmp_path)
    monkeypatch.delenv(loop_cache.USUAL_VARIABLE, raising=False)
    if is_demo:
        monkeypatch.setenv(loop_cache.USUAL_VARIABLE, "1")
    compiler = tmp_path / "python"
    compiler.write_text("#!/bin/sh\nexec sleep 60\n")
    compiler.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(compiler))
    compiling = asyncio.create_task(session_start.compile_loops(SystemClock()))
    waiting = asyncio.create_task(session_start.enough_loops(compiling))
    await asyncio.wait([waiting], timeout=0.5)
    assert not waiting.done()
    loop_cache.usual_mark().touch()
    await asyncio.wait([waiting], timeout=5 if is_demo else 0.5)
    assert waiting.done() is is_demo
    assert not compiling.done()
    if not is_demo:
        loop_cache.compiled_mark().touch()
        await waiting
    # The compiler does not outlive its session.
    compiling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await compiling
