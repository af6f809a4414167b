"""NATS as an operator sees it: servers, the use of JetStream's limits, streams and consumers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.jetstream import channels
from mesh.jetstream.connection import api_call, refusals
from mesh.model import names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nats.aio.client import Client

    from mesh.model.values import JsonMapping

#: Time limit of one call, seconds.
CALL_S: Final = 5.0
#: Part of a limit from which it is close, 0 to 1.
CLOSE: Final = 0.8
#: Consumers of a stream that are shown.
CONSUMERS_MAX: Final = 256
_NOT_FOUND: Final = 10059
#: Of each limit of an account: its name, and the keys of its use and its bound.
_LIMITS: Final = (
    ("Disk", "B", "storage", "max_storage"),
    ("Memory", "B", "memory", "max_memory"),
    ("Streams", "", "streams", "max_streams"),
    ("Consumers", "", "consumers", "max_consumers"),
)


@dataclass(frozen=True, slots=True)
class LimitUse:
    """The use of one limit of the account."""

    name: str
    #: ``B`` for bytes; empty for a number.
    unit: str
    used: int
    #: 0 for none.
    limit: int

    @property
    def ratio(self) -> float:
        """The used part of the limit; 0 without one."""
        return self.used / self.limit if self.limit else 0.0


@dataclass(frozen=True, slots=True)
class StreamCopy:
    """A copy of a stream on another server than its leader."""

    server: str
    #: Operations by which it is behind.
    lag: int
    #: Whether it has followed lately, and whether its server is away.
    is_current: bool
    is_offline: bool


@dataclass(frozen=True, slots=True)
class JetStreamStream:
    """A JetStream stream."""

    name: str
    #: Empty for a stream of no app.
    app: str
    messages: int
    bytes: int
    #: 0 for none.
    bytes_max: int
    #: Time after which its messages expire, seconds; 0 for never.
    age_max_s: float
    replicas: int
    #: Server that leads it; empty where servers form no cluster, or none leads.
    leader: str
    copies: tuple[StreamCopy, ...]
    consumers: int

    @property
    def lag(self) -> int:
        """Operations by which its slowest copy is behind."""
        return max((copy.lag for copy in self.copies), default=0)

    @property
    def late(self) -> tuple[str, ...]:
        """Servers whose copy does not follow, or that are away."""
        return tuple(c.server for c in self.copies if c.is_offline or not c.is_current)

    @property
    def ratio(self) -> float:
        """The used part of its bound in bytes; 0 without one."""
        return self.bytes / self.bytes_max if self.bytes_max else 0.0

    @property
    def rank(self) -> tuple[object, ...]:
        """Place among others: late copies first, then what is nearest to a limit."""
        return -len(self.late), -round(self.ratio, 2), -self.lag, -self.bytes


@dataclass(frozen=True, slots=True)
class JetStreamServer:
    """A server that holds streams of the account."""

    name: str
    leads: int
    holds: int
    #: Streams of which its copy is late, and whether it is away.
    late: int
    is_offline: bool
    #: Of its copies, the greatest.
    lag: int


@dataclass(frozen=True, slots=True)
class NatsState:
    """JetStream at one moment, in the account of the mesh."""

    #: Of the server that the manager is connected to.
    version: str
    servers: tuple[JetStreamServer, ...]
    uses: tuple[LimitUse, ...]
    #: The worst first.
    streams: tuple[JetStreamStream, ...]
    #: Calls of the API of JetStream, and those that were refused.
    calls: int
    call_errors: int
    #: Streams that the reader may not see: number and bytes.
    others: int = 0
    other_bytes: int = 0

    def of(self, sees: Callable[[str], bool], sees_all: bool) -> NatsState:
        """The part that a user may see: the streams of its apps, and those of the mesh itself.

        Args:
            sees: whether the user may see an app.
            sees_all: whether it may see every app, and streams of others.
        """
        if sees_all:
            return self
        shown = [
            one
            for one in self.streams
            if (sees(one.app) if one.app else names.is_mesh_stream(one.name))
        ]
        size = sum(one.bytes for one in self.streams) - sum(one.bytes for one in shown)
        others = len(self.streams) - len(shown)
        return replace(self, streams=tuple(shown), others=others, other_bytes=size)


@dataclass(frozen=True, slots=True)
class JetStreamConsumer:
    """A consumer of a stream."""

    name: str
    is_durable: bool
    #: Messages that it has not got yet, and those that it has got and not acknowledged.
    pending: int
    unacknowledged: int
    redelivered: int
    #: Sequence of the last message that it has got.
    delivered: int
    leader: str


async def nats_state(client: Client) -> NatsState:
    """The state now.

    Raises:
        MeshError: MESH-A503 when NATS does not answer.
    """
    with refusals():
        account = await api_call(client, "INFO", None, CALL_S)
        streams = [stream_of(info) async for info in channels.all_streams(client, CALL_S)]
    version = str(client.connected_server_version)
    limits = account.get("limits") or {}
    calls = account.get("api") or {}
    uses = [
        LimitUse(name, unit, account.get(used, 0), max(0, limits.get(limit, 0)))
        for name, unit, used, limit in _LIMITS
    ]
    return NatsState(
        version,
        tuple(servers_of(streams)),
        tuple(sorted(uses, key=lambda use: -use.ratio)),
        tuple(sorted(streams, key=lambda one: (*one.rank, one.name))),
        calls.get("total", 0),
        calls.get("errors", 0),
    )


def stream_of(info: JsonMapping) -> JetStreamStream:
    """A stream from the server's information about it."""
    config, state, cluster = info["config"], info["state"], info.get("cluster") or {}
    copies = cluster.get("replicas") or []
    name = config["name"]
    return JetStreamStream(
        name,
        app_of(name),
        state.get("messages", 0),
        state.get("bytes", 0),
        max(0, config.get("max_bytes", 0)),
        config.get("max_age", 0) / 1e9,
        config.get("num_replicas", 1),
        cluster.get("leader") or "",
        tuple(
            StreamCopy(c["name"], c.get("lag", 0), bool(c.get("current")), bool(c.get("offline")))
            for c in copies
        ),
        state.get("consumer_count", 0),
    )


def app_of(js_stream: str) -> str:
    """The app whose events or errors a stream holds; empty for none."""
    return names.app_of_error_js_stream(js_stream) or names.app_of_js_stream(js_stream) or ""


def servers_of(streams: Sequence[JetStreamStream]) -> list[JetStreamServer]:
    """The servers that hold streams; those that are away or late first."""
    leads = Counter(one.leader for one in streams if one.leader)
    copies: dict[str, list[StreamCopy]] = {name: [] for name in leads}
    for one in streams:
        for copy in one.copies:
            copies.setdefault(copy.server, []).append(copy)
    servers = [
        JetStreamServer(
            name,
            leads[name],
            leads[name] + len(held),
            sum(not copy.is_current for copy in held),
            any(copy.is_offline for copy in held),
            max((copy.lag for copy in held), default=0),
        )
        for name, held in copies.items()
    ]
    return sorted(servers, key=lambda one: (not one.is_offline, -one.late, -one.lag, one.name))


async def consumers_of(client: Client, stream: str) -> Sequence[JetStreamConsumer]:
    """The consumers of a stream, those with the most messages before them first.

    Raises:
        MeshError: MESH-A404 for a stream that is not there, MESH-A503 when NATS does not answer.
    """
    with refusals():
        answer = await api_call(client, f"CONSUMER.LIST.{stream}", {"offset": 0}, CALL_S)
    error = answer.get("error") or {}
    if error.get("err_code") == _NOT_FOUND:
        raise MeshError("MESH-A404", f'JetStream stream "{stream}" is not there')
    consumers = [
        JetStreamConsumer(
            info["name"],
            bool((info.get("config") or {}).get("durable_name")),
            info.get("num_pending", 0),
            info.get("num_ack_pending", 0),
            info.get("num_redelivered", 0),
            (info.get("delivered") or {}).get("stream_seq", 0),
            (info.get("cluster") or {}).get("leader") or "",
        )
        for info in (answer.get("consumers") or [])[:CONSUMERS_MAX]
    ]
    return sorted(consumers, key=lambda one: (-one.pending, -one.unacknowledged, one.name))
