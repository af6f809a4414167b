"""Sizes, replicas and snapshots of apps as JetStream has them, for the leader's metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nats.js import api

from mesh.jetstream import channels
from mesh.model import names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nats.aio.client import Client

    from mesh.model.cluster import AppRecord
    from mesh.model.values import JsonMapping

#: Time limit of one call, seconds.
CALL_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class ChannelSize:
    """One JetStream stream of an app."""

    app: str
    js_stream: str
    bytes: int
    #: Part of its bound in bytes that is used, 0 to 1; None without a bound.
    limit_ratio: float | None
    #: Operations by which its slowest replica is behind.
    replica_lag: int


@dataclass(frozen=True, slots=True)
class Surveyed:
    """Everything, as of one look."""

    channels: tuple[ChannelSize, ...] = ()
    #: By app and group: time at which its newest snapshot was stored, seconds since 1970.
    snapshots_s: Mapping[tuple[str, str], float] | None = None


async def survey(client: Client, apps: Iterable[AppRecord]) -> Surveyed:
    """Look at the streams and snapshots of these apps; errors of NATS pass."""
    records = list(apps)
    return Surveyed(await _channels(client, records), await _snapshots(client, records))


async def _channels(client: Client, apps: list[AppRecord]) -> tuple[ChannelSize, ...]:
    owner = {
        name: app.spec.name
        for app in apps
        for channel in app.spec.channels
        for name in channel.js_streams
    }
    owner |= {names.error_js_stream(app.spec.name): app.spec.name for app in apps}
    return tuple(
        [
            size_of(info, owner[info["config"]["name"]])
            async for info in channels.all_streams(client, CALL_S)
            if info["config"]["name"] in owner
        ]
    )


def size_of(info: JsonMapping, app: str) -> ChannelSize:
    """The size of a stream from the server's information about it."""
    size, most = info["state"]["bytes"], info["config"].get("max_bytes", -1)
    replicas = (info.get("cluster") or {}).get("replicas") or []
    lag = max((replica.get("lag", 0) for replica in replicas), default=0)
    ratio = size / most if most > 0 else None
    return ChannelSize(app, info["config"]["name"], size, ratio, lag)


async def _snapshots(client: Client, apps: list[AppRecord]) -> dict[tuple[str, str], float]:
    """By app and group, from the times of the manifests; their contents are not sent."""
    groups = {
        f"{app.incarnation}.{group.name}": (app.spec.name, group.name)
        for app in apps
        for group in app.spec.groups
    }
    times_s: dict[tuple[str, str], float] = {}
    start = f"$KV.{names.SNAPSHOTS_BUCKET}."
    subscription = await client.jetstream().subscribe(
        f"{start}>",
        ordered_consumer=True,
        config=api.ConsumerConfig(
            deliver_policy=api.DeliverPolicy.LAST_PER_SUBJECT, headers_only=True
        ),
    )
    try:
        info = await subscription.consumer_info()
        delivered = info.delivered.consumer_seq if info.delivered is not None else 0
        left = (info.num_pending or 0) + delivered
        while left:
            message = await subscription.next_msg(CALL_S)
            left = message.metadata.num_pending
            key = message.subject.removeprefix(start).rpartition(".")[0]
            is_deleted = "KV-Operation" in (message.headers or {})
            if key in groups and not is_deleted:
                at_s = message.metadata.timestamp.timestamp()
                times_s[groups[key]] = max(times_s.get(groups[key], 0.0), at_s)
    finally:
        await subscription.unsubscribe()
    return times_s
