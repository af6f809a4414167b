"""A whole mesh for end-to-end tests: real processes, which can be killed."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import psutil
from nats.js.api import ConsumerConfig, DeliverPolicy

from mesh.clock import SystemClock
from mesh.control.lifecycle import AppState, AppStatus
from mesh.jetstream import server
from mesh.manager.service import ManagerService
from mesh.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from mesh.jetstream.watch import ClusterView

DEADLINE_S = 120.0


class MeshCluster:
    """Processes of one mesh, and what a test wants to know of them."""

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self.directory = directory
        self.nats = server.start(directory / "nats")
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for number in range(1, workers + 1):
            self.start_worker(f"w{number}")
        self.start(
            "m1",
            "manager",
            MESH_MANAGER_ID="m1",
            MESH_MANAGER_PORT="0",
            MESH_MANAGER_ANONYMOUS="true",
        )

    def start_worker(self, name: str) -> None:
        """Start a worker; it is ready some seconds later."""
        self.start(
            name,
            "worker",
            MESH_WORKER_ID=name,
            MESH_WORKER_STATE_DIR=str(self.directory / "state" / name),
            MESH_SPARK_DRIVER_MEMORY="768m",
        )

    def start(self, name: str, role: str, **environment: str) -> None:
        """Start a process of the mesh, its output going to a file."""
        with (self.directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "mesh.cli", role],
                env={
                    **os.environ,
                    "MESH_NATS_URL": self.nats.url,
                    "PYTHONPATH": os.pathsep.join(sys.path),
                    **environment,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=server.die_with_parent(),
            )

    def kill(self, name: str) -> None:
        """Kill -9 a process, without a word."""
        process = self._processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def kill_session(self, worker: str) -> None:
        """Kill -9 a worker's Spark session; its agent lives."""
        agent = psutil.Process(self._processes[worker].pid)
        (session,) = [p for p in agent.children() if "mesh.worker.session" in p.cmdline()]
        session.send_signal(signal.SIGKILL)

    def stop(self) -> None:
        """End everything in order."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.nats.stop()

    def logs(self) -> str:
        """The last lines that each process printed, for a failed test."""
        return "\n".join(
            f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-15:])
            for path in sorted(self.directory.glob("*.log"))
        )


class View:
    """One NATS connection of a test, looking at the mesh from outside."""

    def __init__(self, cluster: MeshCluster, client: Client, view: ClusterView) -> None:
        self.cluster = cluster
        self.client = client
        self.js = client.jetstream()
        self.view = view
        self.service = ManagerService(client, view, Settings(), SystemClock())

    async def until(self, what: str, condition: Callable[[], Any]) -> Any:
        """What ``condition`` gives once it is true; looked at whenever a record changes."""
        deadline_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline_s:
            version = self.view.version
            found = condition()
            if inspect.isawaitable(found):
                found = await found
            if found:
                return found
            # What is counted elsewhere, in channels, changes without a record.
            await self.view.changed(version, 0.1)
        raise AssertionError(f"{what}: not within {DEADLINE_S} s\n{self.cluster.logs()}")

    async def until_ready(self, *workers: str) -> None:
        """Until the sessions of these workers are warm."""

        def ready() -> bool:
            nodes = {n.value.id: n.value for n in self.view.snapshot().nodes}
            return all(name in nodes and nodes[name].ready for name in workers)

        await self.until(f"workers {workers} ready", ready)

    async def until_running(self, app: str) -> AppStatus:
        """Until all instances of ``app`` run where they are assigned."""
        status = await self.service.wait_running(app, DEADLINE_S)
        assert status.state is AppState.RUNNING, f"{status}\n{self.cluster.logs()}"
        return status

    async def count(self, js_stream: str, subject: str) -> int:
        """How many messages a subject of a JetStream stream holds."""
        info = await self.js.stream_info(js_stream, subjects_filter=subject)
        return (info.state.subjects or {}).get(subject, 0)

    async def messages(self, js_stream: str, subject: str) -> list[Msg]:
        """All messages of a subject, in the order of the log."""
        expected = await self.count(js_stream, subject)
        subscription = await self.js.subscribe(
            subject,
            stream=js_stream,
            ordered_consumer=True,
            config=ConsumerConfig(deliver_policy=DeliverPolicy.ALL),
        )
        found = [await subscription.next_msg(timeout=20) for _ in range(expected)]
        await subscription.unsubscribe()
        return found
