"""A cluster for tests: managers and agents as real processes, with sessions that run nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mesh.clock import SystemClock
from mesh.control.lifecycle import AppState
from mesh.manager.service import ManagerService
from mesh.model import names
from mesh.processes.bounded_process import die_with_parent
from mesh.settings import NatsSettings, Settings
from tests.support.forked import Forked
from tools.cluster import watching

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from nats.aio.client import Client

    from mesh.control.journal import JournalEntry
    from mesh.jetstream import server
    from mesh.jetstream.watch import ClusterView
    from mesh.model.cluster import Assignment

APP = """
@App:name('Two')
define stream Events (a int);
@dist(execGroup='one', parallel='2') from Events[a > 1] select a insert into Big;
@dist(execGroup='two') from Events[a < 1] select a insert into Small;
"""
FAKE_SESSION = Path(__file__).parent / "fake_session.py"

MANAGER = """
import asyncio, sys
from mesh import settings
from mesh.manager import run

async def serve(service, announce):
    announce("127.0.0.1:0")
    await asyncio.get_running_loop().create_future()

asyncio.run(run(settings.load(), serve))
"""
WORKER = """
import asyncio, sys
from mesh import settings
from mesh.worker import children, worker

start = children.SessionProcess.__init__
command = (sys.executable, sys.argv[1])
# The connector host is the real one.
children.SessionProcess.__init__ = lambda self, config, own=(): start(self, config, own or command)
asyncio.run(worker.run(settings.load()))
"""


class Cluster:
    def __init__(self, nats: server.NatsServer, directory: Path) -> None:
        self.nats = nats
        self.directory = directory
        self.processes: dict[str, subprocess.Popen[bytes] | Forked] = {}

    def start(self, name: str, program: str, **environment: str) -> None:
        """Start a process with a Python of its own."""
        with (self.directory / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-c", program, str(FAKE_SESSION)],
                env=self._environment(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent(),
            )

    def _environment(self, own: dict[str, str]) -> dict[str, str]:
        return {
            **os.environ,
            "MESH_NATS_URL": self.nats.url,
            "MESH_RECEIVER_EGRESS": "*:1-65535,127.0.0.1:1-65535",
            "PYTHONPATH": os.pathsep.join(sys.path),
            **own,
        }

    def _fork(self, name: str, program: str, **environment: str) -> None:
        log = self.directory / f"{name}.log"
        given = self._environment(environment)
        self.processes[name] = Forked(program, str(FAKE_SESSION), given, log)

    def manager(self, name: str) -> None:
        self._fork(name, MANAGER, MESH_MANAGER_ID=name)

    def worker(self, name: str, **environment: str) -> None:
        state = str(self.directory / f"state-{name}")
        self._fork(name, WORKER, MESH_WORKER_ID=name, MESH_WORKER_STATE_DIR=state, **environment)

    def signal(self, name: str, number: int) -> None:
        self.processes[name].send_signal(number)

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    def logs(self) -> str:
        return "\n".join(f"--- {p}\n{p.read_text()[-2000:]}" for p in self.directory.glob("*.log"))


class Eye:
    """A service on a view of its own: it answers as any manager would."""

    def __init__(
        self, cluster: Cluster, client: Client, view: ClusterView, service: ManagerService
    ) -> None:
        self.cluster = cluster
        self.client = client
        self.view = view
        self.service = service

    async def until(self, what: str, condition: Callable[[], Any], limit_s: float = 60) -> Any:
        deadline_s = time.monotonic() + limit_s
        while time.monotonic() < deadline_s:
            version = self.view.version
            found = condition()
            if found:
                return found
            # Presence changes by time alone, hence the short limit of one look.
            await self.view.changed(version, 0.05)
        raise AssertionError(f"{what}: not within {limit_s} s\n{self.cluster.logs()}")

    async def deploy_on(self, *workers: str) -> None:
        """Deploy the app when the workers are ready, and wait until it runs."""
        await self.until("workers", lambda: set(workers) <= self.ready())
        await self.service.deploy(APP)
        assert (await self.service.wait_running("Two", 60)).state is AppState.RUNNING

    async def noted(self, app: str, text: str) -> None:
        """Wait for an entry about ``app`` in the journal."""
        js = self.client.jetstream()
        entries = await js.subscribe(names.journal_subject(app), ordered_consumer=True)
        while text not in (await entries.next_msg(20)).data.decode():
            pass
        await entries.unsubscribe()

    async def told(
        self, app: str, is_told: Callable[[list[JournalEntry]], object]
    ) -> list[JournalEntry]:
        """The story of ``app`` once it meets a condition: entries are stored after the fact."""
        async with asyncio.timeout(20):
            while not is_told(found := await self.service.story(app)):
                pass
        return found

    def placed(self) -> dict[str, str]:
        return {a.value.instance: a.value.worker for a in self.view.snapshot().assignments}

    def has_some(self, worker: str) -> bool:
        return worker in self.placed().values()

    def assigned(self) -> list[Assignment]:
        return [a.value for a in self.view.snapshot().assignments]

    def epochs(self) -> dict[str, int]:
        return {a.value.instance: a.value.epoch for a in self.view.snapshot().assignments}

    def leader(self) -> str | None:
        lease = self.view.snapshot().lease
        return lease.value.holder if lease is not None and lease.value is not None else None

    def states(self) -> dict[str, tuple[str, int]]:
        return {
            s.value.instance: (s.value.state.value, s.value.epoch)
            for s in self.view.snapshot().statuses
        }

    def ready(self) -> set[str]:
        return {n.value.id for n in self.view.snapshot().nodes if n.value.ready}


@contextlib.asynccontextmanager
async def looking(cluster: Cluster, nats: NatsSettings | None = None) -> AsyncIterator[Eye]:
    """A connection of its own."""
    settings = Settings(nats=nats or NatsSettings(url=cluster.nats.url))
    async with watching(settings.nats, settings.channels) as (client, view):
        service = ManagerService(client, view, settings, SystemClock())
        yield Eye(cluster, client, view, service)
