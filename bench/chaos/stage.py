"""The stage of scenarios: servers, managers and workers that stay warm from one to the next."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import ExitStack, asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.chaos.disks import Disks
from bench.chaos.namespaces import Namespaces
from bench.chaos.servers import Servers
from mesh.files import scratch
from mesh.model.nats_roles import NatsRole
from mesh.operators import precompile
from mesh.settings import ChannelSettings
from tools.cluster import Outside, variables, watching
from tools.links import Links
from tools.processes import Processes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

MANAGERS: Final = ("m1", "m2")
WORKERS: Final = ("w1", "w2")
#: Labels of the two workers, for scenarios that choose where a group runs.
SIDES: Final = {"w1": "side=a", "w2": "side=b"}
#: The only worker that accepts receivers.
FRONT: Final = "w1"
#: Past a worker's term and its margin, and past a leader's lease: 1.5, 0.5 and 1.5 s by default.
PAST_TERMS_S: Final = 6.0


class Topology(StrEnum):
    """Number of servers, and whether they may lose their network."""

    ONE = "one"
    THREE = "three"
    #: Three in network namespaces.
    APART = "apart"
    #: One, whose disk and those of the workers are small, with states in a directory.
    DISKS = "disks"
    #: One; the workers have connector hosts and no Spark.
    HOSTS = "hosts"


class Stage:
    """Two managers and two workers, each with a link of its own to each server."""

    def __init__(
        self, topology: Topology, logs: Path | None = None, *, is_secured: bool = False
    ) -> None:
        """Create a stage, which is set up when it is entered.

        Args:
            topology: of the servers.
            logs: directory of the processes' logs, None for none.
            is_secured: whether the servers have TLS, client certificates and roles.
        """
        self.topology = topology
        self._logs = logs
        self._is_secured = is_secured
        self.directory = scratch.for_process("chaos")
        self.replicas = 3 if topology in (Topology.THREE, Topology.APART) else 1
        self.disks = Disks()
        self.store = self.directory / "store"
        self._stack = ExitStack()

    def __enter__(self) -> Stage:
        try:
            precompile.compile_once()
            namespaces = None
            if self.topology is Topology.APART:
                namespaces = self._stack.enter_context(Namespaces())
            self._stack.enter_context(self.disks)
            if self.topology is Topology.DISKS:
                self.disks.mount(self.directory / "nats" / "n1" / "jetstream")
                self.disks.mount(self.directory / "state")
                self.store.mkdir()
            self.servers = Servers(
                self.directory / "nats", self.replicas, namespaces, is_secured=self._is_secured
            )
            self._stack.callback(self.servers.stop)
            self.links = self._stack.enter_context(Links())
            self.processes = Processes(self.directory)
            self._stack.callback(self.processes.stop)
            self.start(*WORKERS, *MANAGERS)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        if self._logs is not None:
            for log in [*self.directory.glob("*.log"), *self.directory.glob("nats/*/*.log")]:
                kept = self._logs / self.topology / log.relative_to(self.directory)
                kept.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(log, kept)
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self, *names: str, prefix: Sequence[str] = (), **variables: str) -> None:
        """Start managers (m..) and workers (w..) that don't run; a worker is ready later.

        Args:
            names: of the processes.
            prefix: a command that executes theirs.
            variables: of their environment besides their own.
        """
        for name in names:
            role = "manager" if name.startswith("m") else "worker"
            environment = self.environment(name) | variables
            self.processes.start(name, role, prefix=prefix, **environment)

    def environment(self, name: str) -> dict[str, str]:
        """Environment of a process of this name."""
        url = self.links.to(name, self.servers.addresses, self.servers.tls(name))
        role = NatsRole.RECEIVER if self.topology is Topology.HOSTS else NatsRole.WORKER
        user = NatsRole.MANAGER if name.startswith("m") else role
        nats = self.servers.settings(user, name, url)
        common = variables(nats, ChannelSettings(replicas=self.replicas))
        if self.topology is Topology.DISKS:
            common["MESH_STATE_STORE"] = str(self.store)
        if name.startswith("m"):
            own = {
                "MESH_MANAGER_ID": name,
                "MESH_MANAGER_PORT": "0",
                "MESH_MANAGER_ANONYMOUS": "true",
            }
        else:
            own = {
                "MESH_WORKER_ID": name,
                "MESH_WORKER_STATE_DIR": str(self.directory / "state" / name),
                "MESH_WORKER_LABELS": SIDES.get(name, ""),
                "MESH_WORKER_TAKES_RECEIVERS": str(name == FRONT).lower(),
                "MESH_SPARK_DRIVER_MEMORY": "768m",
                # Databases of the scenarios are on this machine.
                "MESH_RECEIVER_EGRESS": "*:1-65535,127.0.0.1:1-65535",
            }
            if self.topology is Topology.HOSTS:
                own |= {
                    "MESH_WORKER_SPARK": "false",
                    "MESH_WORKER_TAKES_RECEIVERS": "true",
                    "MESH_RECEIVER_LISTEN": "127.0.0.1:0-65535",
                }
        return common | own

    async def mend_servers(self) -> None:
        """Make all servers run and reach each other."""
        # Not in another thread: processes end with the one that started them.
        self.servers.repair()
        await asyncio.to_thread(self.servers.wait_whole)

    async def mend(self) -> None:
        """Undo the changes of scenarios: all servers, managers and workers run, connected."""
        self.links.heal_all()
        await self.mend_servers()
        for name in self.processes.names():
            if name in (*MANAGERS, *WORKERS) and self.processes.is_alive(name):
                self.processes.wake(name)
            elif name in (*MANAGERS, *WORKERS):
                await asyncio.to_thread(self.processes.wait, name)
            else:
                await asyncio.to_thread(self.processes.end, name)
        running = self.processes.names()
        self.start(*(name for name in (*WORKERS, *MANAGERS) if name not in running))

    @asynccontextmanager
    async def look(self) -> AsyncIterator[Outside]:
        """A look from outside, past the links."""
        channels = ChannelSettings(replicas=self.replicas)
        nats = self.servers.settings(NatsRole.MANAGER)
        async with watching(nats, channels) as (client, view):
            outside = Outside(self.processes, client, view, channels)
            # Several sessions that start at once on a busy machine are slow.
            outside.deadline_s = 240.0
            yield outside

    async def mended(self, outside: Outside) -> None:
        """End the fault, and wait until the workers are ready and the managers serve."""
        await self.mend()

        def serve() -> bool:
            records = {n.value.id: n.value for n in outside.view.snapshot().nodes}
            mine = [(self.processes.pid(name), records.get(name)) for name in MANAGERS]
            return all(found and found.pid == pid and found.address for pid, found in mine)

        await outside.until("managers serve", serve)
        await outside.until_ready(*WORKERS)
