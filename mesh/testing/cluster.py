"""A whole mesh for tests: real processes, which can be killed, and a view of it from outside."""

from __future__ import annotations

import inspect
import time
from typing import TYPE_CHECKING, Any

from nats.js.api import ConsumerConfig, DeliverPolicy

from mesh.clock import SystemClock
from mesh.control.lifecycle import AppState, AppStatus
from mesh.jetstream import server
from mesh.manager.service import ManagerService
from mesh.model.nats_roles import Role, inbox
from mesh.settings import ChannelSettings, FunctionSettings, NatsSettings, Settings
from mesh.testing.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from mesh.jetstream.watch import ClusterView

DEADLINE_S = 120.0


class MeshCluster(Processes):
    """A server, a manager m1 and workers w1, w2, .."""

    def __init__(
        self,
        directory: Path,
        workers: int = 2,
        *,
        arguments: Sequence[str] = (),
        passwords: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start all of them.

        Args:
            directory: of their files.
            workers: number of workers.
            arguments: of the server.
            passwords: of the NATS users ``manager`` and ``worker``; None for no users.
            environment: more variables of the manager and of workers that are started first.
        """
        super().__init__(directory)
        self._passwords = passwords or {}
        self.nats = server.start(directory / "nats", arguments=arguments)
        for number in range(1, workers + 1):
            self.start_worker(f"w{number}", **(environment or {}))
        self.start(
            "m1",
            "manager",
            **{
                "MESH_NATS_URL": self.nats.url,
                "MESH_MANAGER_ID": "m1",
                "MESH_MANAGER_PORT": "0",
                "MESH_MANAGER_ANONYMOUS": "true",
                "MESH_FUNCTIONS_PYTHON": "true",
                **self._user("manager"),
                **(environment or {}),
            },
        )

    def _user(self, role: str) -> dict[str, str]:
        if role not in self._passwords:
            return {}
        return {
            "MESH_NATS_USER": role,
            "MESH_NATS_PASSWORD": self._passwords[role],
            "MESH_NATS_INBOX_PREFIX": inbox(Role(role)),
        }

    def start_worker(self, name: str, **environment: str) -> None:
        """Start a worker, with these variables as well; it is ready some seconds later."""
        self.start(
            name,
            "worker",
            MESH_NATS_URL=self.nats.url,
            MESH_WORKER_ID=name,
            MESH_WORKER_STATE_DIR=str(self.directory / "state" / name),
            MESH_SPARK_DRIVER_MEMORY="768m",
            MESH_FUNCTIONS_PYTHON="true",
            **self._user("worker"),
            **environment,
        )

    def stop(self) -> None:
        """End everything in order."""
        super().stop()
        self.nats.stop()


class Outside:
    """One NATS connection of a test that observes a mesh from outside."""

    #: Timeout of each wait, seconds.
    deadline_s = DEADLINE_S

    def __init__(
        self,
        processes: Processes,
        client: Client,
        view: ClusterView,
        channels: ChannelSettings | None = None,
    ) -> None:
        self.processes = processes
        self.client = client
        self.js = client.jetstream()
        self.view = view
        assert client.connected_url is not None, "a test looks at a mesh that it is connected to"
        settings = Settings(
            nats=NatsSettings(url=client.connected_url.geturl()),
            channels=channels or ChannelSettings(),
            functions=FunctionSettings(python=True),
        )
        self.service = ManagerService(client, view, settings, SystemClock())

    async def until(self, what: str, condition: Callable[[], Any]) -> Any:
        """The value of ``condition`` once it is true; evaluated whenever a record changes."""
        end_s = time.monotonic() + self.deadline_s
        while time.monotonic() < end_s:
            version = self.view.version
            found = condition()
            if inspect.isawaitable(found):
                found = await found
            if found:
                return found
            # Counts of channels change without a record.
            await self.view.changed(version, 0.1)
        raise AssertionError(f"{what}: not within {self.deadline_s:g} s\n{self.processes.logs()}")

    async def until_ready(self, *workers: str) -> None:
        """Until the sessions of these workers are warm, of the processes that have the names."""

        def ready() -> bool:
            # A record outlives its process.
            pids = {n.value.id: n.value.pid for n in self.view.snapshot().nodes if n.value.ready}
            alive = filter(self.processes.is_alive, workers)
            return {name: pids.get(name) for name in workers} == {
                name: self.processes.pid(name) for name in alive
            }

        await self.until(f"workers {workers} ready", ready)

    async def until_running(self, app: str) -> AppStatus:
        """Until all instances of ``app`` run where they are assigned."""
        status = await self.service.wait_running(app, self.deadline_s)
        assert status.state is AppState.RUNNING, f"{status}\n{self.processes.logs()}"
        return status

    async def count(self, js_stream: str, subject: str) -> int:
        """Number of messages on a subject of a JetStream stream."""
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


class View(Outside):
    """The same, of a ``MeshCluster``."""

    def __init__(self, cluster: MeshCluster, client: Client, view: ClusterView) -> None:
        super().__init__(cluster, client, view)
        self.cluster = cluster
