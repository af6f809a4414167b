"""A worker compiles the native loops before it accepts an instance, if the installation has not."""

from __future__ import annotations

import asyncio
import logging
import sys

import pytest

from mesh.clock import SystemClock
from mesh.operators import loop_cache
from mesh.worker import session_start


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
