"""A worker compiles the native loops before it accepts an instance, if the installation has not."""

from __future__ import annotations

import asyncio
import logging
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from mesh.clock import SystemClock
from mesh.jetstream import channels
from mesh.jetstream.connection import close, connect
from mesh.model import names
from mesh.operators import loop_cache
from mesh.settings import ChannelSettings, NatsSettings
from mesh.spark import warmup
from mesh.worker import session_start

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer


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


def test_a_warm_up_does_not_depend_on_the_workers_name() -> None:
    first, second = session_start.app_name(), session_start.app_name()
    assert first != second
    for channel, _ in channels.js_streams(warmup.app(first)):
        assert session_start.app_of(channel) == first


@pytest.mark.parametrize(
    "js_stream", ["mesh-Shop-Orders", "mesh-warmup-Orders", "mesh-warmup-w1-7-Events", "KV_x"]
)
def test_streams_of_apps_are_not_those_of_a_warm_up(js_stream: str) -> None:
    assert session_start.app_of(js_stream) is None


def test_a_warm_up_may_take_a_while() -> None:
    created = "2026-01-01T00:00:00.123456789Z"
    assert not session_start.is_left_over(created, "2026-01-01T00:30:00Z")
    assert session_start.is_left_over(created, "2026-01-01T01:00:01.2Z")


@pytest.mark.nats
def test_channels_of_a_killed_warm_up_are_deleted_and_no_others(nats_server: NatsServer) -> None:
    left, deployed = session_start.app_name(), session_start.app_name()

    async def scene() -> set[str]:
        client = await connect(NatsSettings(url=nats_server.url), "test")
        js, settings = client.jetstream(), ChannelSettings()
        await channels.ensure_buckets(js, settings)
        for name in (left, deployed, "Shop"):
            await channels.ensure_channels(client, warmup.app(name), settings)
        await (await js.key_value(names.APPS_BUCKET)).put(names.app_key(deployed), b"{}")
        await session_start.delete_left_over(client)
        before = {info.config.name for info in await js.streams_info()}
        assert {name for name, _ in channels.js_streams(warmup.app(left))} < before
        await session_start.delete_left_over(client, timedelta(0))
        after = {info.config.name for info in await js.streams_info()}
        await close(client)
        return {str(name) for name in before - after}

    assert asyncio.run(scene()) == {name for name, _ in channels.js_streams(warmup.app(left))}
