"""Inputs of an app in two datacenters: mirrored into the second one, then made its own.

Each datacenter is a JetStream domain with a mesh of its own, and runs the app.  Clients publish in
the first.  The second one's input streams are mirrors of the first one's: same messages, same
sequences, so both compute the same.  ``promote`` takes the mirror off a stream, which then accepts
events itself and continues with the next sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nats.errors import Error as NatsError

from mesh.errors import MeshError
from mesh.jetstream.channels import stream_config
from mesh.jetstream.connection import api_call
from mesh.model import names

if TYPE_CHECKING:
    from nats.aio.client import Client

    from mesh.model.app import AppSpec
    from mesh.settings import ChannelSettings


@dataclass(frozen=True, slots=True)
class FollowedStream:
    """An input stream of the second datacenter."""

    name: str
    last_sequence: int
    #: The domain that it mirrors; empty for one that accepts events itself.
    domain: str
    #: Messages of the first datacenter that are not here yet, as last heard.
    lag: int
    #: Seconds since the first datacenter was heard; below 0 for never.
    silent_s: float


def inputs_of(spec: AppSpec) -> dict[str, str]:
    """The subject of each JetStream stream that clients fill, by its name.

    Raises:
        MeshError: MESH-N124 for an app with sources or sinks of its own: two datacenters would
            receive and send twice.
    """
    doors = [group.name for group in spec.groups if group.sources or group.sinks]
    foreign = [c.foreign for g in spec.groups for c in (i.channel for i in g.inputs) if c.foreign]
    if doors or foreign:
        raise MeshError(
            "MESH-N124",
            f'app "{spec.name}" can\'t run in two datacenters at once',
            detail="Its sources and sinks would receive and send in both.",
            hint="Put them into an app of their own, which runs in one of them.",
        )
    given = set(spec.given_streams)
    return {
        channel.js_stream(p): channel.subject(p)
        for channel in spec.channels
        for p in range(channel.partitions)
        if channel.js_stream(p) in given
    }


async def follow(
    client: Client, spec: AppSpec, domain: str, settings: ChannelSettings
) -> list[FollowedStream]:
    """Make the input streams as mirrors of those of another domain, where they are missing.

    Raises:
        MeshError: MESH-N124 as ``inputs_of``; MESH-N125 when the server refuses one, or one is
            there that accepts events itself.
    """
    for name in inputs_of(spec):
        mirror = {"name": name, "external": {"api": f"$JS.{domain}.API"}}
        if await _info(client, name) is None:
            config = stream_config(name, settings, settings.max_bytes)
            config |= {"mirror": mirror, "mirror_direct": True}
            await _call(client, "STREAM.CREATE", config)
    found = await followed(client, spec)
    own = [one.name for one in found if one.domain != domain]
    if own:
        raise MeshError(
            "MESH-N125",
            f"JetStream stream {own[0]} is no mirror of domain {domain}",
            hint="Follow before the app is deployed here: its streams are made then.",
        )
    return found


async def followed(client: Client, spec: AppSpec) -> list[FollowedStream]:
    """The input streams as they are here; those that are missing are left out."""
    found = []
    for name in inputs_of(spec):
        info = await _info(client, name)
        if info is None:
            continue
        source = info.get("mirror") or {}
        api = str((source.get("external") or {}).get("api", ""))
        found.append(
            FollowedStream(
                name,
                int(info["state"]["last_seq"]),
                api.removeprefix("$JS.").removesuffix(".API"),
                int(source.get("lag", 0)),
                source.get("active", -1e9) / 1e9,
            )
        )
    return found


async def promote(client: Client, spec: AppSpec, settings: ChannelSettings) -> list[FollowedStream]:
    """Make the mirrors streams that accept events, each after its last message.

    Raises:
        MeshError: MESH-N124 as ``inputs_of``; MESH-N125 when the server refuses one.
    """
    subjects = inputs_of(spec)
    for stream in await followed(client, spec):
        if stream.domain:
            own = [subjects[stream.name], f"{names.marker_subject(stream.name)}.>"]
            config = stream_config(stream.name, settings, settings.max_bytes)
            config |= {"subjects": own, "allow_atomic": True}
            await _call(client, "STREAM.UPDATE", config)
    return await followed(client, spec)


async def _info(client: Client, name: str) -> dict[str, Any] | None:
    found = await _ask(client, "STREAM.INFO", name)
    return None if found.get("error") else found


async def _call(client: Client, call: str, config: dict[str, Any]) -> None:
    answer = await _ask(client, call, config["name"], config)
    if refusal := answer.get("error"):
        raise _refused(config["name"], str(refusal.get("description")))


async def _ask(
    client: Client, call: str, name: str, query: dict[str, Any] | None = None
) -> dict[str, Any]:
    try:
        return await api_call(client, f"{call}.{name}", query)
    except (NatsError, TimeoutError) as error:
        raise _refused(name, f"{type(error).__name__}: {error}") from error


def _refused(name: str, why: str) -> MeshError:
    return MeshError(
        "MESH-N125",
        f"JetStream stream {name} can't be followed or promoted",
        detail=f"The server says: {why}.",
    )
