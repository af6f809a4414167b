"""A whole mesh for tests: real processes, which can be killed, and a view of it from outside."""

from __future__ import annotations

import dataclasses
import inspect
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from nats.js.api import ConsumerConfig, DeliverPolicy

from mesh.clock import SystemClock
from mesh.control.lifecycle import AppState, AppStatus
from mesh.jetstream import server
from mesh.jetstream.channels import ensure_buckets
from mesh.jetstream.connection import close, connect
from mesh.jetstream.watch import ClusterView
from mesh.manager.service import ManagerService
from mesh.model.nats_roles import NatsRole, inbox
from mesh.settings import ChannelSettings, FunctionSettings, NatsSettings, Settings
from tools.processes import Processes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from pathlib import Path

    from nats.aio.client import Client
    from nats.aio.msg import Msg

DEADLINE_S = 120.0
#: Timeout of an answer of JetStream to a test, seconds.
ANSWER_S = 60.0


class MeshCluster(Processes):
    """A server, a manager m1 and workers w1, w2, .."""

    channels = ChannelSettings()

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
            environment: more variables of the manager and of the workers.
        """
        super().__init__(directory)
        self._passwords = passwords or {}
        self._environment = dict(environment or {})
        self.nats = self._start_servers(arguments)
        for number in range(1, workers + 1):
            self.start_worker(f"w{number}")
        self.start(
            "m1",
            "manager",
            **{
                "MESH_MANAGER_ID": "m1",
                "MESH_MANAGER_PORT": "0",
                "MESH_MANAGER_ANONYMOUS": "true",
                "MESH_FUNCTIONS_PYTHON": "true",
                **self._common("manager", "m1"),
                **self._environment,
            },
        )

    def _start_servers(self, arguments: Sequence[str]) -> server.NatsServer:
        return server.start(self.directory / "nats", arguments=arguments)

    def settings(self, user: str, process: str = "") -> NatsSettings:
        """The connection of a user, and of a process that has credentials of its own."""
        del process
        if user not in self._passwords:
            return NatsSettings(self.nats.url)
        prefix = inbox(NatsRole(user)) if user in list(NatsRole) else ""
        return NatsSettings(self.nats.url, user, self._passwords[user], inbox_prefix=prefix)

    def _common(self, role: str, name: str) -> dict[str, str]:
        return variables(self.settings(role, name), self.channels)

    def start_worker(self, name: str, **environment: str) -> None:
        """Start a worker, with these variables as well; it is ready some seconds later."""
        env_vars = {
            "MESH_WORKER_ID": name,
            "MESH_WORKER_STATE_DIR": str(self.directory / "state" / name),
            "MESH_SPARK_DRIVER_MEMORY": "768m",
            "MESH_FUNCTIONS_PYTHON": "true",
            **self._common("worker", name),
            **self._environment,
            **environment,
        }
        self.start(name, "worker", **env_vars)

    def stop(self) -> None:
        """End everything in order."""
        super().stop()
        self.nats.stop()


def variables(nats: NatsSettings, channels: ChannelSettings) -> dict[str, str]:
    """Environment of a process with these settings, without those that are the default."""
    parts: dict[str, NatsSettings | ChannelSettings] = {"NATS": nats, "CHANNELS": channels}
    return {
        f"MESH_{part}_{field.name.upper()}": str(value).lower() if value is True else str(value)
        for part, settings in parts.items()
        for field in dataclasses.fields(settings)
        if (value := getattr(settings, field.name)) != field.default
    }


@asynccontextmanager
async def watching(
    nats: NatsSettings, channels: ChannelSettings | None = None
) -> AsyncIterator[tuple[Client, ClusterView]]:
    """A connection of a test and its view of the records; given ``channels``, it makes buckets."""
    client = await connect(nats, "test")
    view = ClusterView(client, SystemClock())
    try:
        if channels is not None:
            await ensure_buckets(client.jetstream(), channels)
        await view.start()
        yield client, view
    finally:
        await view.stop()
        await close(client)


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
        nats: NatsSettings | None = None,
    ) -> None:
        self.processes = processes
        self.client = client
        # A message that is published again would be another one: an answer may take its time.
        self.js = client.jetstream(timeout=ANSWER_S)
        self.view = view
        assert client.connected_url is not None, "a test looks at a mesh that it is connected to"
        settings = Settings(
            nats=nats or NatsSettings(url=client.connected_url.geturl()),
            channels=channels or ChannelSettings(),
            functions=FunctionSettings(python=True),
        )
        self.service = ManagerService(client, view, settings, SystemClock())

    async def until(self, what: str, condition: Callable[[], object]) -> Any:
        """The value of ``condition`` once it is true; evaluated whenever a record changes."""
        end_s = time.monotonic() + self.deadline_s
        while time.monotonic() < end_s:
            version = self.view.version
            result = condition()
            if inspect.isawaitable(result):
                result = await result
            if result:
                return result
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
        log_messages = [await subscription.next_msg(timeout=20) for _ in range(expected)]
        await subscription.unsubscribe()
        return log_messages


class MeshClusterView(Outside):
    """The same, of a ``MeshCluster``."""

    def __init__(self, cluster: MeshCluster, client: Client, view: ClusterView) -> None:
        super().__init__(cluster, client, view, cluster.channels, cluster.settings("manager"))
        self.cluster = cluster
        #: Connections that publish events, and that ask tables and windows of apps.
        self.publisher = self.asker = client
