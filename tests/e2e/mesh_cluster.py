"""A whole mesh for end-to-end tests: nats-server, managers and workers as real processes, which can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import nats
import psutil
from nats.js.api import ConsumerConfig, DeliverPolicy

from mesh.jetstream import server
from mesh.model import codec, names
from mesh.model.cluster import Assignment, InstanceState, InstanceStatus, NodeRecord

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from nats.aio.client import Client
    from nats.aio.msg import Msg

DEADLINE_S = 120.0


class MeshCluster:
    """Processes of one mesh, and what a test wants to know of them."""

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self.directory = directory
        self.nats = server.start(directory / "nats")
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for number in range(1, workers + 1):
            self.start_worker(f"w{number}")
        self.start("m1", "manager", MESH_MANAGER_ID="m1", MESH_MANAGER_PORT="0")

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

    def __init__(self, cluster: MeshCluster, client: Client) -> None:
        self.cluster = cluster
        self.client = client
        self.js = client.jetstream()

    async def wait_for(self, what: str, condition: Callable[[], Awaitable[Any]]) -> Any:
        """What ``condition`` gives once it is true; each look is a round trip to the server."""
        deadline_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline_s:
            found = await condition()
            if found:
                return found
        raise AssertionError(f"{what}: not within {DEADLINE_S} s\n{self.cluster.logs()}")

    async def records(self, bucket: str, prefix: str, kind: type[Any]) -> list[Any]:
        """The records of a bucket whose keys start with ``prefix``."""
        try:
            store = await self.js.key_value(bucket)
            keys = [key for key in await store.keys() if key.startswith(prefix)]
            entries = [await store.get(key) for key in keys]
        except nats.js.errors.Error:
            return []
        return [codec.decode(kind, entry.value or b"") for entry in entries]

    async def workers(self) -> dict[str, NodeRecord]:
        """The workers that beat, by id."""
        found = await self.records(names.CONTROL_BUCKET, "node.worker.", NodeRecord)
        return {node.id: node for node in found}

    async def statuses(self, app: str) -> dict[str, InstanceStatus]:
        """What workers report on the instances of ``app``."""
        found = await self.records(names.STATUS_BUCKET, f"instance.{app}-", InstanceStatus)
        return {status.instance: status for status in found}

    async def assignments(self, app: str) -> dict[str, Assignment]:
        """Where the instances of ``app`` are."""
        found = await self.records(names.CONTROL_BUCKET, f"assignment.{app}-", Assignment)
        return {assignment.instance: assignment for assignment in found}

    async def wait_ready(self, *workers: str) -> None:
        """Until the sessions of these workers are warm."""

        async def ready() -> bool:
            nodes = await self.workers()
            return all(name in nodes and nodes[name].ready for name in workers)

        await self.wait_for(f"workers {workers} ready", ready)

    async def wait_running(self, app: str, instances: int) -> None:
        """Until all instances of ``app`` run where they are assigned."""

        async def running() -> bool:
            assignments = await self.assignments(app)
            statuses = await self.statuses(app)
            return len(assignments) == instances and all(
                name in statuses
                and statuses[name].epoch == assignment.epoch
                and statuses[name].state is InstanceState.RUNNING
                for name, assignment in assignments.items()
            )

        await self.wait_for(f"app {app} running", running)

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
