"""Three nats-servers on this machine that form one cluster, and can be killed one by one."""

from __future__ import annotations

import json
import signal
import urllib.request
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from mesh.jetstream import server
from tests.support.processes import look_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broker import Broker

#: An election after a kill needs 4 to 8 s, joining again a few more; a longer time is a fault.
DEADLINE_S = 90.0


@dataclass
class Node:
    """One server of the cluster; its ports and files stay the same over restarts."""

    name: str
    port: int
    http_port: int
    directory: Path
    running: server.NatsServer | None = None

    @property
    def url(self) -> str:
        """URL for clients."""
        return f"nats://127.0.0.1:{self.port}"


class Cluster:
    """Three nodes, n1 to n3, each with its own store."""

    def __init__(self, directory: Path) -> None:
        ports = server.free_ports(9)
        self._routes = ports[6:]
        self.nodes = {
            f"n{at + 1}": Node(f"n{at + 1}", ports[at], ports[3 + at], directory / f"n{at + 1}")
            for at in range(3)
        }
        for node, route in zip(self.nodes.values(), self._routes, strict=True):
            node.directory.mkdir(parents=True)
            node.directory.joinpath("nats.conf").write_text(self._configuration(node, route))
            self._start(node)
        look_until(self._is_whole, self.process("n1"), "a cluster of three", DEADLINE_S)

    def _configuration(self, node: Node, route: int) -> str:
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self._routes)
        return (
            f"server_name: {node.name}\n"
            f"http: 127.0.0.1:{node.http_port}\n"
            f"cluster {{ name: lab, listen: 127.0.0.1:{route}, routes: [{routes}] }}\n"
        )

    def _start(self, node: Node) -> None:
        arguments = ["-c", str(node.directory / "nats.conf")]
        node.running = server.start(node.directory, port=node.port, arguments=arguments)

    def urls(self, *, first: str = "") -> str:
        """The option ``servers``, the node ``first`` named first."""
        ordered = sorted(self.nodes.values(), key=lambda node: node.name != first)
        return ",".join(node.url for node in ordered)

    def kill(self, name: str) -> None:
        """Kill -9 a node."""
        self.process(name).send_signal(signal.SIGKILL)
        self.process(name).wait()

    def restart(self, name: str) -> None:
        """Start a node that was killed or stopped; it may still have to catch up."""
        self._start(self.nodes[name])

    def terminate(self, name: str) -> None:
        """End a node in good order."""
        running = self.nodes[name].running
        assert running is not None
        running.stop()

    def process(self, name: str) -> Any:
        """The node's process."""
        running = self.nodes[name].running
        assert running is not None
        return running.process

    def stop(self) -> None:
        """End all nodes."""
        for name in self.nodes:
            if self.process(name).poll() is None:
                self.kill(name)

    # --- state of the cluster

    def meta_leader(self) -> str:
        """The leader of the meta group, which makes streams and consumers; "" for none."""
        found = {self._monitored(node).get("leader", "") for node in self._alive()}
        return found.pop() if len(found) == 1 else ""

    def _is_whole(self) -> bool:
        """Whether all nodes follow one leader."""
        if len(self._alive()) < 3 or not self.meta_leader():
            return False
        leader = self._monitored(self.nodes[self.meta_leader()])
        peers = leader.get("replicas", [])
        return len(peers) == 2 and all(p["current"] and not p.get("offline") for p in peers)

    def _alive(self) -> list[Node]:
        return [
            node
            for node in self.nodes.values()
            if node.running is not None and node.running.process.poll() is None
        ]

    def _monitored(self, node: Node) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{node.http_port}/jsz", timeout=2
            ) as answer:
                found: dict[str, Any] = json.load(answer).get("meta_cluster") or {}
                return found
        except OSError:
            return {}

    def leader_of(self, broker: Broker, stream: str) -> str:
        """The node that leads ``stream``; waits for one."""
        return str(broker.call(f"STREAM.INFO.{stream}")["cluster"]["leader"])

    def wait_for_replicas(self, broker: Broker, *streams: str) -> None:
        """Wait until every node runs and every replica of ``streams`` has caught up."""

        def is_current(stream: str) -> bool:
            found = broker.call(f"STREAM.INFO.{stream}")["cluster"]
            replicas = found.get("replicas", [])
            return len(replicas) == 2 and all(
                replica["current"] and not replica.get("offline") for replica in replicas
            )

        node = self.process("n1")
        look_until(self._is_whole, node, "a cluster of three again", DEADLINE_S)
        for stream in streams:
            what = f"replicas of {stream}"
            look_until(partial(is_current, stream), node, what, DEADLINE_S)


def create_replicated(broker: Broker, name: str, subject: str = "") -> None:
    """Create a stream with three replicas for exactly-once rows, of ``ev.{name}``."""
    broker.create(name, subject or f"ev.{name}", num_replicas=3)
