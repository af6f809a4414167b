"""Interruptions of a run, measured from outside: of each stream's leader, the load and the outputs.

A probe asks the leaders of streams, and that of the cluster, many times a second over a connection
to a server that stays.  The time without an answer is that of an election.  Interruptions of the
load and of outputs are read from the times at which the servers stored the messages.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bench.chaos.servers import SYSTEM_USER
from mesh.clock import SystemClock
from mesh.jetstream.connection import close, connect
from mesh.model.nats_roles import NatsRole

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from bench.chaos.servers import Servers

#: The cluster itself, beside names of streams.
CLUSTER: Final = "the cluster"
#: Time before a fault whose messages count: the last of them begins the interruption.
BEFORE_FAULT_MS: Final = 1000.0
#: Interval of requests, seconds.
_PROBE_S: Final = 0.1
#: An answer may take so long, seconds.
_ANSWER_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Outage:
    """The longest interruptions after a fault, seconds."""

    #: Of the leaders, by stream and ``CLUSTER``.
    elections: dict[str, float] = field(default_factory=dict)
    #: Of the events that are stored.
    load_s: float = 0.0
    #: Of the outputs, by stream.
    outputs: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        elections: dict[str, float],
        load_ms: Sequence[float],
        outputs_ms: Mapping[str, Sequence[float]],
        since_ms: float,
    ) -> Outage:
        """The interruptions after ``since_ms``, by the times at which messages were stored."""

        def longest_s(times: Sequence[float]) -> float:
            return longest([at_ms for at_ms in times if at_ms >= since_ms]) / 1000

        outputs = {name: longest_s(times) for name, times in outputs_ms.items()}
        return cls(elections, longest_s(load_ms), outputs)

    @property
    def election_s(self) -> float:
        """The longest election."""
        return max(self.elections.values(), default=0.0)

    @property
    def output_s(self) -> float:
        """The longest interruption of an output."""
        return max(self.outputs.values(), default=0.0)

    @property
    def excess_s(self) -> float:
        """The time for which outputs stopped longer than the servers elected."""
        return max(0.0, self.output_s - self.election_s)


class LeaderProbe:
    """Requests to the leaders of streams, from a fault on."""

    def __init__(self, servers: Servers, survivor: str, streams: Iterable[str]) -> None:
        """Ask nothing yet.

        Args:
            servers: of the cluster.
            survivor: the server to ask through.
            streams: to ask about; the cluster's own leader is asked too.
        """
        self._servers = servers
        self._survivor = survivor
        self._subjects = {name: f"$JS.API.STREAM.INFO.{name}" for name in streams}
        self._subjects[CLUSTER] = "$JS.API.INFO"
        self._clock = SystemClock()
        #: Times of the answered requests, seconds, by stream.
        self._answered: dict[str, list[float]] = {name: [] for name in self._subjects}
        self._client: Client | None = None
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Connect, and ask from now on."""
        host, port = self._servers.addresses[self._servers.names.index(self._survivor)]
        settings = self._servers.settings(NatsRole.MANAGER, url=f"nats://{host}:{port}")
        self._client = await connect(settings, "chaos probe")
        self._task = asyncio.create_task(self._ask(self._client))

    async def end(self) -> dict[str, float]:
        """Stop; the longest time without an answer by stream, seconds."""
        assert self._client is not None
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await close(self._client)
        return {name: max(0.0, longest(at) - _PROBE_S) for name, at in self._answered.items()}

    async def _ask(self, client: Client) -> None:
        inbox = client.new_inbox()
        asked: dict[str, tuple[str, float]] = {}

        async def answered(message: Msg) -> None:
            name, at_s = asked.pop(message.subject, ("", 0.0))
            if name and "error" not in json.loads(message.data):
                self._answered[name].append(at_s)

        await client.subscribe(f"{inbox}.*", cb=answered)
        number = 0
        while True:
            now_s = self._clock.monotonic_s()
            for name, subject in self._subjects.items():
                number += 1
                asked[f"{inbox}.{number}"] = name, now_s
                await client.publish(subject, reply=f"{inbox}.{number}")
            asked = {key: one for key, one in asked.items() if now_s - one[1] < _ANSWER_S}
            await asyncio.sleep(_PROBE_S)


def longest(times: Sequence[float]) -> float:
    """The longest time between two of ``times``, which are sorted first."""
    ordered = sorted(times)
    return max((b - a for a, b in itertools.pairwise(ordered)), default=0.0)


async def lead(servers: Servers, client: Client, wanted: Mapping[str, str]) -> None:
    """Have streams, and ``CLUSTER``, led by given servers, by name.

    Raises:
        TimeoutError: they are not.
    """
    system = await connect(servers.settings(SYSTEM_USER), "chaos system")
    try:
        async with asyncio.timeout(60):
            for name, server in wanted.items():
                while await leader_of(client, system, name) != server:
                    await _ask_to_lead(client, system, name, server)
                    await asyncio.sleep(0.2)
    finally:
        await close(system)


async def leader_of(client: Client, system: Client, name: str) -> str:
    """The server that leads a stream, or the cluster; empty for none."""
    try:
        if name == CLUSTER:
            reply = await system.request("$SYS.REQ.SERVER.PING.JSZ", b"{}", timeout=2)
            found = json.loads(reply.data).get("data", {}).get("meta_cluster", {})
        else:
            reply = await client.request(f"$JS.API.STREAM.INFO.{name}", b"", timeout=2)
            found = json.loads(reply.data).get("cluster", {})
    except TimeoutError:
        return ""
    return str(found.get("leader", ""))


async def _ask_to_lead(client: Client, system: Client, name: str, server: str) -> None:
    call = "META.LEADER.STEPDOWN" if name == CLUSTER else f"STREAM.LEADER.STEPDOWN.{name}"
    wanted = json.dumps({"placement": {"preferred": server}}).encode()
    try:
        await (system if name == CLUSTER else client).request(f"$JS.API.{call}", wanted, timeout=3)
    except TimeoutError:
        # The leader may be gone before the previous one has answered.
        return
