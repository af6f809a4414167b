"""Inputs of an app in two datacenters: mirrored into the second one, then made its own.

Each datacenter is a JetStream domain with a mesh of its own, and runs the app.  Clients publish in
the first.  The second one's input streams are mirrors of the first one's: same messages, same
sequences, so both compute the same.  ``promote`` takes the mirror off a stream, which then accepts
events itself and continues with the next sequence.

A mirror asks for the sequences after its last one.  Of a stream that was deleted and made again it
skips as many as it has of the former one, and says that none is missing.  So a mirror keeps the
time at which its origin was made, and ``follow`` compares it with the origin itself.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

import orjson
from nats.errors import Error as NatsError

from mesh.errors import MeshError
from mesh.jetstream.channels import ingest_settings, stream_config
from mesh.jetstream.connection import api_call
from mesh.model import names

if TYPE_CHECKING:
    from nats.aio.client import Client

    from mesh.model.app import AppSpec
    from mesh.model.values import JsonObject
    from mesh.settings import ChannelSettings

#: Of a mirror's metadata: when its origin was made.
_ORIGIN: Final = "mesh.origin-created"
#: Wait for the other datacenter's answer, seconds.
_ANSWER_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class MirrorOrigin:
    """A stream of the first datacenter."""

    #: When it was made, as its server writes it; empty if the domain has no such stream.
    created: str = ""
    first_sequence: int = 0
    last_sequence: int = 0


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
    #: The stream that it mirrors; None if the first datacenter doesn't answer.
    origin: MirrorOrigin | None = None


def inputs_of(spec: AppSpec) -> dict[str, str]:
    """The subject of each JetStream stream that clients fill, by its name.

    Raises:
        MeshError: MESH-N124 for an app with sources or sinks of its own: two datacenters would
            receive and send twice.
    """
    connectors = [group.name for group in spec.groups if group.sources or group.sinks]
    foreign = [c.foreign for g in spec.groups for c in (i.channel for i in g.inputs) if c.foreign]
    if connectors or foreign:
        raise MeshError(
            "MESH-N124",
            f'app "{spec.name}" can\'t run in two datacenters at once',
            detail="Its sources and sinks would receive and send in both.",
            hint="Put them into an app of their own, which runs in one of them.",
        )
    inputs = set(spec.external_streams)
    return {
        channel.js_stream(p): channel.subject(p)
        for channel in spec.channels
        for p in range(channel.partitions)
        if channel.js_stream(p) in inputs
    }


async def follow(
    client: Client, spec: AppSpec, domain: str, settings: ChannelSettings
) -> list[FollowedStream]:
    """Make the input streams as mirrors of those of another domain, where they are missing.

    Raises:
        MeshError: MESH-N124 as ``inputs_of``; MESH-N125 when the server refuses one, or one is
            there that accepts events itself; MESH-N126 when a mirror has what its origin has not.
    """
    for name in inputs_of(spec):
        mirror = {"name": name, "external": {"api": f"$JS.{domain}.API"}}
        config = stream_config(name, settings, settings.max_bytes)
        config |= {"mirror": mirror, "mirror_direct": True}
        # In this order: the mirror never has more than its origin a moment later.
        here = await _info(client, name)
        there = await _origin(client, domain, name)
        if here is None:
            await _call(client, "STREAM.CREATE", config | _metadata(there))
            continue
        if _domain_of(here) != domain or there is None or not there.created:
            continue
        metadata = here["config"].get("metadata") or {}
        origin_time = metadata.get(_ORIGIN, "")
        if here["state"]["last_seq"]:
            _expect_same(name, domain, there, origin_time, here["state"])
        if origin_time != there.created:
            config["metadata"] = metadata | _metadata(there)["metadata"]
            await _call(client, "STREAM.UPDATE", config)
    streams = await followed(client, spec)
    local_names = [one.name for one in streams if one.domain != domain]
    if local_names:
        raise MeshError(
            "MESH-N125",
            f"JetStream stream {local_names[0]} is no mirror of domain {domain}",
            hint="Follow before the app is deployed here: its streams are made then.",
        )
    return streams


def _metadata(origin: MirrorOrigin | None) -> JsonObject:
    created = origin.created if origin else ""
    return {"metadata": {_ORIGIN: created}} if created else {}


def _expect_same(
    name: str, domain: str, there: MirrorOrigin, origin_time: str, here: JsonObject
) -> None:
    """Raise MESH-N126 unless the messages of a mirror are its origin's.

    A mirror that was made before its origin, or by an earlier version, does not know when that was
    made, and the origin may be a new one while the mirror is empty.  Then the first message tells:
    it has the time of the origin's server, and none before it is missing.
    """
    last = int(here["last_seq"])
    is_young = _time(there.created) <= _time(here["first_ts"])
    if not origin_time:
        is_same = is_young or not here["messages"]
    else:
        is_whole = is_young and int(here["first_seq"]) <= there.first_sequence
        is_same = origin_time == there.created or is_whole
    if is_same and last <= there.last_sequence:
        return
    why, detail = "has an earlier state", "It skips events until then."
    if not is_same:
        why = f"was made again, at {there.created}"
        detail = "It begins with events of the former stream, and skips as many of the present one."
    ends = f"The mirror is at sequence {last}, and the stream at {there.last_sequence}."
    raise MeshError(
        "MESH-N126",
        f"JetStream stream {name} of domain {domain} {why}",
        detail=f"{ends} {detail}",
        hint=f"Undeploy the app here, or delete its stream {name} if it is not deployed, follow "
        "again, and deploy it. Or promote, which continues after the events that are here.",
    )


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def followed(client: Client, spec: AppSpec) -> list[FollowedStream]:
    """The input streams as they are here; those that are missing are left out."""
    streams = []
    for name in inputs_of(spec):
        info = await _info(client, name)
        if info is None:
            continue
        source, domain = info.get("mirror") or {}, _domain_of(info)
        last, lag = int(info["state"]["last_seq"]), int(source.get("lag", 0))
        origin = await _origin(client, domain, name) if domain else None
        if origin is not None:
            lag = max(origin.last_sequence - last, 0)
        silent_s = source.get("active", -1e9) / 1e9
        streams.append(FollowedStream(name, last, domain, lag, silent_s, origin))
    return streams


def _domain_of(info: JsonObject) -> str:
    """The domain that a stream mirrors; empty for one that accepts events itself."""
    mirror = info["config"].get("mirror") or {}
    api = str((mirror.get("external") or {}).get("api", ""))
    return api.removeprefix("$JS.").removesuffix(".API")


async def promote(client: Client, spec: AppSpec, settings: ChannelSettings) -> list[FollowedStream]:
    """Make the mirrors streams that accept events, each after its last message.

    Raises:
        MeshError: MESH-N124 as ``inputs_of``; MESH-N125 when the server refuses one.
    """
    subjects = inputs_of(spec)
    for stream in await followed(client, spec):
        if stream.domain:
            patterns = [subjects[stream.name], f"{names.marker_subject(stream.name)}.>"]
            config = stream_config(stream.name, settings, settings.max_bytes)
            config |= {"subjects": patterns, "allow_atomic": True}
            version = client.connected_server_version
            config |= ingest_settings(version.major, version.minor)
            await _call(client, "STREAM.UPDATE", config)
    return await followed(client, spec)


async def _origin(client: Client, domain: str, name: str) -> MirrorOrigin | None:
    """A stream of another domain; None if nothing there answers.

    The way between the datacenters lets no ``_INBOX`` pass.
    """
    subject = f"{names.DATACENTER_ANSWERS}.{uuid.uuid4().hex}"
    try:
        answers = await client.subscribe(subject)
        try:
            await client.publish(f"$JS.{domain}.API.STREAM.INFO.{name}", reply=subject)
            answer = await answers.next_msg(timeout=_ANSWER_S)
        finally:
            await answers.unsubscribe()
    except (NatsError, TimeoutError):
        return None
    if not answer.data:
        return None
    info = orjson.loads(answer.data)
    if info.get("error"):
        return MirrorOrigin()
    state = info["state"]
    return MirrorOrigin(info["created"], int(state["first_seq"]), int(state["last_seq"]))


async def _info(client: Client, name: str) -> JsonObject | None:
    info = await _ask(client, "STREAM.INFO", name)
    return None if info.get("error") else info


async def _call(client: Client, call: str, config: JsonObject) -> None:
    answer = await _ask(client, call, config["name"], config)
    if refusal := answer.get("error"):
        raise _refused(config["name"], str(refusal.get("description")))


async def _ask(client: Client, call: str, name: str, query: JsonObject | None = None) -> JsonObject:
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
