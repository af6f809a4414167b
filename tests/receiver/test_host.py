"""The host as a process: it starts quickly without Spark, and the agent's children survive it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil
import pytest

from mesh.model.cluster import Assignment, InstanceState
from mesh.plan.build import plan
from mesh.processes.signals import end
from mesh.settings import NatsSettings, ReceiverSettings, Settings
from mesh.testing.connectors import DEADLINE_S
from mesh.worker.children import HOST, Children, SessionProcess
from mesh.worker.protocol import (
    Figures,
    Ready,
    Report,
    SessionConfig,
    StartInstance,
    StopInstance,
)
from tests.support.connectors import staged

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from mesh.model.cluster import InstanceStatus
    from mesh.worker.protocol import Reply

pytestmark = pytest.mark.nats

APP = """@App:name('Files')
define stream S (n int);
@sink(type='file', file.uri='{}', @map(type='csv')) define stream T (n int);
from S select n insert into T;
"""
#: A session that reports that it is ready, and does nothing.
SESSION = (
    "import sys; from mesh.worker.protocol import Ready, to_line;"
    "sys.stdout.buffer.write(to_line(Ready('x', 0.0))); sys.stdout.flush(); sys.stdin.read()"
)


def config_of(server: NatsServer, directory: Path) -> SessionConfig:
    settings = Settings(
        nats=NatsSettings(url=server.url), receiver=ReceiverSettings(file_roots=str(directory))
    )
    return SessionConfig("w1", str(directory / "w1"), settings)


class Session(Children):
    """The two children of an agent, one of them without Spark."""

    def __init__(
        self,
        config: SessionConfig,
        session: str = SESSION,
        host: type[SessionProcess] = SessionProcess,
    ) -> None:
        super().__init__(config, host(config, (sys.executable, "-m", HOST)))
        self._command = (sys.executable, "-c", session)

    @property
    def host_pid(self) -> int:
        assert self._host.pid is not None
        return self._host.pid


def start_command(server: NatsServer, directory: Path, epoch: int = 1) -> StartInstance:
    spec = plan(APP.format(directory / "out.csv")).spec
    group = spec.group("sink-T")
    assert group is not None
    return StartInstance(
        Assignment(group.instances[0], spec.name, "sink-T", 1, "inc", "w1", epoch, 1), group
    )


@pytest.mark.slow
async def test_the_host_has_no_spark_and_is_small(nats_server: NatsServer, tmp_path: Path) -> None:
    host = SessionProcess(config_of(nats_server, tmp_path), (sys.executable, "-m", HOST))
    await host.start()
    try:
        async with asyncio.timeout(DEADLINE_S):
            replies = aiter(host.replies())
            assert isinstance(await anext(replies), Ready)
        assert host.pid is not None
        process = psutil.Process(host.pid)
        assert not process.children()
        mapped = {os.path.basename(m.path) for m in process.memory_maps()}
        assert not any("jvm" in name or "llvmlite" in name for name in mapped)
        # 60 MB are what docs/connectors.md states; Arrow comes with the first instance.
        assert process.memory_info().rss < 60 << 20
        assert not any("libarrow" in name for name in mapped)
        host.send(start_command(nats_server, tmp_path))
        async with asyncio.timeout(DEADLINE_S):
            while not isinstance(await anext(replies), Report):
                continue
        modules = {os.path.basename(m.path) for m in process.memory_maps()}
        assert not any("pandas" in name or "llvmlite" in name for name in modules)
    finally:
        await host.stop()


@pytest.mark.slow
async def test_an_instance_continues_after_its_host_was_killed(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    path = tmp_path / "out.csv"
    children = Session(config_of(nats_server, tmp_path))
    said: list[Reply] = []
    async with staged(nats_server, APP.format(path)) as stage:

        async def listen() -> None:
            async for reply in children.replies():
                said.insert(len(said), reply)

        await children.start()
        listening = asyncio.create_task(listen())
        command = start_command(nats_server, tmp_path)
        children.send(command)
        await stage.publish("T", {"n": 1}, {"n": 2})
        await stage.until("2 lines", lambda: path.exists() and path.read_text() == "1\n2\n")
        os.kill(children.host_pid, signal.SIGKILL)
        await stage.publish("T", {"n": 3})
        await stage.until("the third", lambda: path.read_text() == "1\n2\n3\n")
        children.send(StopInstance(command.assignment.instance, 1))

        def stopped() -> list[InstanceStatus]:
            reports = [reply.status for reply in said if isinstance(reply, Report)]
            return [r for r in reports if r.state is InstanceState.STOPPED]

        (report,) = await stage.until("the report", stopped)
        assert (report.connectors[0].behind, report.settled) == (0, True)
        # The agent ends its own tasks first.
        await end([listening])
        await children.stop()


async def test_lines_that_are_no_replies_are_passed_over(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    chatty = (
        "import sys; from mesh.worker.protocol import Figures, Ready, to_line;"
        "out = sys.stdout.buffer;"
        "out.write(b'no reply\\n' + b'x' * (20 << 20) + b'\\n' + to_line(Figures({'heap': 1.0})));"
        "out.write(to_line(Ready('x', 0.0))); out.flush(); sys.stdin.read()"
    )

    children = Session(config_of(nats_server, tmp_path), chatty)
    await children.start()
    replies = aiter(children.replies())
    async with asyncio.timeout(DEADLINE_S):
        assert await anext(replies) == Figures({"heap": 1.0})
        assert await anext(replies) == Ready("x", 0.0)
    await children.kill()


@pytest.mark.thorough
async def test_a_host_that_can_not_be_started_is_tried_again(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    path = tmp_path / "out.csv"
    failures = [OSError(11, "no process"), KeyError("odd")]

    class Failing(SessionProcess):
        async def start(self) -> None:
            if failures:
                raise failures.pop()
            await super().start()

    children = Session(config_of(nats_server, tmp_path), host=Failing)
    async with staged(nats_server, APP.format(path)) as stage:
        await children.start()
        children.send(start_command(nats_server, tmp_path))
        await stage.publish("T", {"n": 1})
        await stage.until("a line", lambda: path.exists() and path.read_text() == "1\n")
        await children.stop()


@pytest.mark.slow
async def test_a_worker_without_spark_has_the_host_alone(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    config = config_of(nats_server, tmp_path)
    worker = replace(config.settings.worker, spark=False)
    config = replace(config, settings=replace(config.settings, worker=worker))
    children = Session(config)
    path = tmp_path / "out.csv"
    async with staged(nats_server, APP.format(path)) as stage:
        await children.start()
        replies = aiter(children.replies())
        async with asyncio.timeout(DEADLINE_S):
            assert isinstance(await anext(replies), Ready)
        assert children.pid == children.host_pid
        children.send(start_command(nats_server, tmp_path))
        await stage.publish("T", {"n": 1})
        await stage.until("a line", lambda: path.exists() and path.read_text() == "1\n")
        await children.kill()
        # The agent learns of the end, and starts another.
        assert [r async for r in replies if isinstance(r, Ready)] == []
        await children.start()
        again = aiter(children.replies())
        async with asyncio.timeout(DEADLINE_S):
            assert isinstance(await anext(again), Ready)
        await children.stop()


@pytest.mark.slow
async def test_the_host_ends_with_the_session(nats_server: NatsServer, tmp_path: Path) -> None:
    children = Session(config_of(nats_server, tmp_path))
    async with staged(nats_server, APP.format(tmp_path / "out.csv")) as stage:
        await children.start()
        children.send(start_command(nats_server, tmp_path))
        seen: list[Reply] = []

        async def listen() -> None:
            async for reply in children.replies():
                seen.insert(len(seen), reply)

        listening = asyncio.create_task(listen())
        await stage.until("a report", lambda: any(isinstance(r, Report) for r in seen))
        host = psutil.Process(children.host_pid)
        assert children.pid is not None
        os.kill(children.pid, signal.SIGKILL)
        await listening
        assert not host.is_running() or host.status() == psutil.STATUS_ZOMBIE
        await children.kill()
