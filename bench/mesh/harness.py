"""A whole mesh for measurements: real processes, observed through one connection."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import psutil

from bench.chaos.servers import Servers
from bench.connector.wire import Access
from mesh.files import scratch
from mesh.model.nats_roles import NatsRole
from mesh.operators import precompile
from mesh.settings import ChannelSettings, NatsSettings
from pyspark_nats.protocol import jetstream
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.protocol.connection_options import connection_options
from pyspark_nats.source import fetch
from pyspark_nats.source.ranges import Blocks, StreamRange
from tools.cluster import Outside, variables, watching
from tools.processes import Processes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping

    from nats.aio.client import Client

    from mesh.jetstream.watch import ClusterView
    from mesh.model.app import AppSpec
    from pyspark_nats.source.messages import Messages

T = TypeVar("T")

#: A group with state and one without, each with its own input.
APP = """
@App:name('{name}')
define stream Input (k int, v double);
@dist(execGroup='windows')
from Input#window.length(10) select k, avg(v) as mean insert into Means;
@dist(execGroup='filters')
from Input[v > 0] select k, v * 2 as twice insert into Twice;
"""


@dataclass(frozen=True)
class Arrangement:
    """The NATS servers of a measurement."""

    servers: int = 1
    #: Whether they have TLS, client certificates and roles, as ``mesh nats-config`` writes them.
    is_secured: bool = False

    def __str__(self) -> str:
        return f"{self.servers} server{'s' if self.servers > 1 else ''}"


PLAIN: Final = Arrangement()
ARRANGEMENT: ContextVar[Arrangement] = ContextVar("ARRANGEMENT", default=PLAIN)


@contextmanager
def arranged(arrangement: Arrangement) -> Iterator[None]:
    """Measure with these servers meanwhile."""
    token = ARRANGEMENT.set(arrangement)
    try:
        yield
    finally:
        ARRANGEMENT.reset(token)


#: Held by the one of several measurements whose turn it is; None without others.
_turns: ContextVar[asyncio.Lock | None] = ContextVar("_turns", default=None)


@asynccontextmanager
async def turn() -> AsyncIterator[None]:
    """Have no other measurement do anything meanwhile."""
    lock = _turns.get()
    async with lock or contextlib.nullcontext():
        yield


async def in_turns(
    measure: Callable[[], Awaitable[T]], arrangements: Iterable[Arrangement]
) -> list[T]:
    """Measure on several arrangements at once: what is timed alternates between them.

    So what the machine does besides is nearly the same for all.
    """
    lock = asyncio.Lock()

    async def one(arrangement: Arrangement) -> T:
        # Each task has a context of its own.
        ARRANGEMENT.set(arrangement)
        _turns.set(lock)
        return await measure()

    return await asyncio.gather(*map(one, arrangements))


def servers(directory: Path, count: int = 0) -> Servers:
    """The servers of the present arrangement, or so many of its kind."""
    wanted = ARRANGEMENT.get()
    return Servers(directory, count or wanted.servers, is_secured=wanted.is_secured)


def access(servers: Servers, user: str) -> Access:
    """Login and TLS of a plain program for a user to the last of several servers."""
    given = servers.settings(user)
    return Access(
        servers.addresses[-1][1],
        given.tls_ca,
        given.tls_cert,
        given.tls_key,
        given.nkey_seed_file,
        given.inbox_prefix or "_INBOX",
    )


class Cluster(Processes):
    """Servers, managers and workers; nothing is done to the servers."""

    def __init__(self, directory: Path, count: int, environment: Mapping[str, str]) -> None:
        super().__init__(directory)
        self.servers = servers(directory / "nats", count)
        self.channels = ChannelSettings(replicas=len(self.servers.names))
        self._environment = {
            # A query for each instance can't hold a hundred apps on one worker.
            "MESH_SPARK_SHARED_QUERY": "true",
            **environment,
        }

    def settings(self, role: str, process: str = "") -> NatsSettings:
        """The connection of a process of a role."""
        return self.servers.settings(role, process)

    def _common(self, role: str, name: str) -> dict[str, str]:
        return variables(self.settings(role, name), self.channels) | self._environment

    def start_worker(self, name: str) -> None:
        """Start a worker; it is ready some seconds later."""
        self.start(
            name,
            "worker",
            **self._common(NatsRole.WORKER, name),
            MESH_WORKER_ID=name,
            MESH_WORKER_STATE_DIR=str(self.directory / "state" / name),
        )

    def start_manager(self, name: str) -> None:
        """Start a manager."""
        self.start(
            name,
            "manager",
            **self._common(NatsRole.MANAGER, name),
            MESH_MANAGER_ID=name,
            MESH_MANAGER_PORT="0",
            MESH_MANAGER_ANONYMOUS="true",
        )

    def stop(self) -> None:
        """End everything."""
        super().stop()
        self.servers.stop()


class View(Outside):
    """A view of a ``Cluster`` from outside."""

    def __init__(self, cluster: Cluster, client: Client, view: ClusterView) -> None:
        super().__init__(cluster, client, view, cluster.channels)
        self.cluster = cluster

    def access(self, user: str) -> Access:
        """Login and TLS of a plain program for a user; see ``tests.support.secured``."""
        return access(self.cluster.servers, user)

    @property
    def replicas(self) -> int:
        """Copies of each stream."""
        return self.cluster.channels.replicas

    @property
    def server_processes(self) -> list[psutil.Process]:
        """The processes of the NATS servers."""
        servers = self.cluster.servers
        return [psutil.Process(servers.pid(name)) for name in servers.names]


@asynccontextmanager
async def mesh(
    workers: int, *, managers: int = 1, servers: int = 0, **environment: str
) -> AsyncIterator[View]:
    """A mesh with ready workers, w1 and so on, and managers m1 and so on; gone afterwards.

    Args:
        workers: how many.
        managers: how many.
        servers: NATS servers, one or three, those of the arrangement by default; of three each
            stream has three replicas.
        environment: settings of all processes, as ``MESH_SECTION_NAME``.
    """
    precompile.compile_once()
    directory = scratch.for_process("bench")
    cluster = Cluster(directory, servers, environment)
    try:
        for number in range(1, workers + 1):
            cluster.start_worker(f"w{number}")
        for number in range(1, managers + 1):
            cluster.start_manager(f"m{number}")
        async with watching(cluster.settings(NatsRole.MANAGER), cluster.channels) as (
            client,
            records,
        ):
            view = View(cluster, client, records)
            await view.until_ready(*(f"w{number}" for number in range(1, workers + 1)))
            yield view
    finally:
        await asyncio.to_thread(cluster.stop)
        shutil.rmtree(directory, ignore_errors=True)


async def deploy(view: View, names: Iterable[str], text: str = APP, at_once: int = 8) -> float:
    """Deploy ``text`` under each of ``names``; seconds until all instances of all run."""
    gate = asyncio.Semaphore(at_once)
    wanted = list(names)

    async def one(name: str) -> None:
        async with gate:
            await view.service.deploy(text.format(name=name))

    async with turn():
        started_s = time.perf_counter()
        await asyncio.gather(*(one(name) for name in wanted))
        for name in wanted:
            await view.until_running(name)
        return time.perf_counter() - started_s


def stored(url: str, js_stream: str, subject: str) -> Iterator[Messages]:
    """All messages on a subject of a JetStream stream, as the server has stored them.

    A subscriber also receives messages that are staged in a batch and then refused; only stored
    ones count.
    """
    with Connection(connection_options({"servers": url})) as connection:
        info = connection.retry_while_unavailable(
            "asking", lambda: jetstream.stream_infos(connection, [js_stream])
        )
        wanted = StreamRange(js_stream, 0, info[js_stream].last, 0, 0, subjects=(subject,))
        yield from fetch.read_range(connection, wanted, Blocks(), is_loss_error=False)


def channel(spec: AppSpec, stream: str) -> tuple[str, str]:
    """JetStream stream and subject of a stream of an app that is not keyed."""
    (found,) = {(c.js_stream(), c.subject()) for c in spec.channels if c.stream.name == stream}
    return found


def tree(root: int) -> list[psutil.Process]:
    """A process and all below it."""
    process = psutil.Process(root)
    return [process, *process.children(recursive=True)]


def cpu_s(processes: Iterable[psutil.Process]) -> float:
    """Processor time of processes so far, seconds."""
    times = [process.cpu_times() for process in processes]
    return float(sum(one.user + one.system for one in times))


def kind_of(process: psutil.Process) -> str:
    """Kind of a process of a mesh: ``jvm``, ``session``, ``agent``, ``planner``, ``task`` ..."""
    try:
        if process.name() == "java":
            return "jvm"
        line = " ".join(process.cmdline())
    except psutil.Error:
        return "gone"
    for kind, words in _WORDS.items():
        if any(word in line for word in words):
            return kind
    return "python"


_WORDS = {
    "session": ("mesh.worker.session_process",),
    "agent": ("mesh.cli worker",),
    "manager": ("mesh.cli manager",),
    "planner": ("source_runner", "sink_runner"),
    "task": ("mesh.spark.daemon",),
}


async def until_all(view: View, subjects: list[str], event: tuple[str, bytes]) -> float:
    """Publish ``event`` (subject, payload); seconds until each of ``subjects`` has a message."""
    came = {subject: asyncio.Event() for subject in subjects}
    subscriptions = []
    for subject, event_ in came.items():

        async def take(_: object, came: asyncio.Event = event_) -> None:
            came.set()

        subscriptions.append(await view.client.subscribe(subject, cb=take))
    await view.client.flush()
    started_s = time.perf_counter()
    await view.js.publish(*event)
    async with asyncio.timeout(60):
        for one in came.values():
            await one.wait()
    took_s = time.perf_counter() - started_s
    for subscription in subscriptions:
        await subscription.unsubscribe()
    return took_s
