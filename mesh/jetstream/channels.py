"""JetStream streams of an app's channels: create, check, delete, and change their retention.

A stream whose retention is extended has its former one in its metadata, so that any manager can
restore it, and so that a retention that a person has set is never shortened.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeout
from nats.js.errors import APIError, NotFoundError, ServiceUnavailableError

from mesh.errors import MeshError
from mesh.jetstream import journal, kv, snapshots
from mesh.jetstream.connection import NO_ROOM, RECONNECT_S, api_call
from mesh.model import names
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping

    from nats.aio.client import Client
    from nats.js import JetStreamContext

    from mesh.control.verification import Retention
    from mesh.model.app import AppSpec
    from mesh.model.cluster import Retired
    from mesh.model.values import JsonObject
    from mesh.settings import ChannelSettings


log = logging.getLogger(__name__)

#: Stream name is in use with another configuration.
_NAME_IN_USE = 10058
#: The server has removed the directory of all streams with the last one, while it created this one.
_NO_STORE = 10049
_OVERLAP = 10065
#: Bytes of a stored message beside its headers and payload, its subject among them, at most.
_OVERHEAD: Final = 1024
_INT32_MAX: Final = (1 << 31) - 1
#: The first version of the server with ingest batches.
_INGEST_SINCE: Final = (2, 14)
#: No suitable peers for placement: a server is away, or there are too few.
_NO_PEERS = 10005
#: Time for servers to become able to place buckets, seconds.
PLACING_S: Final = 30.0
#: Timeout and number of requests.  On three servers the first election of one stream in some
#: hundreds takes 6 s and more, and a response may be lost with a connection.
_CREATE_S = 2.0
_CREATE_TIMES = 10

#: Metadata of a stream: its retention before an extension, seconds.
BEFORE: Final = "mesh.max_age_s"


def js_streams(spec: AppSpec) -> Iterator[tuple[str, str]]:
    """(JetStream stream, subject of its events) for every channel of an app, and for its errors."""
    for channel in spec.channels:
        for partition in range(channel.partitions):
            yield channel.js_stream(partition), channel.subject(partition)
    yield names.error_js_stream(spec.name), names.error_subject(spec.name)


async def ensure_channels(client: Client, spec: AppSpec, settings: ChannelSettings) -> None:
    """Make the streams that aren't there yet; those of an app that makes none must be there.

    Raises:
        MeshError: MESH-N120 when the server refuses one; MESH-N121 and MESH-N122 as
            ``expect_streams``.
    """
    await expect_streams(client.jetstream(), spec)
    errors = names.error_js_stream(spec.name)
    for name, subject in js_streams(spec):
        if spec.creates_channels or name == errors:
            await ensure_stream(client, name, subject, settings, holds_errors=name == errors)


def stream_config(name: str, settings: ChannelSettings, max_bytes: int) -> JsonObject:
    """The configuration of a channel's stream, whether it takes events or mirrors another one."""
    return {
        "name": name,
        "storage": "file",
        "retention": "limits",
        "discard": "old",
        "num_replicas": settings.replicas,
        "max_age": int(settings.max_age_s * 1e9),
        "max_msgs": -1,
        "max_bytes": max_bytes or -1,
        "allow_direct": True,
        # A rollup is a header with which any publisher deletes all events.
        "allow_rollup_hdrs": False,
    }


async def ensure_stream(
    client: Client,
    name: str,
    subject: str,
    settings: ChannelSettings,
    *,
    holds_errors: bool = False,
    first_seq: int = 1,
) -> None:
    """Make a stream of a channel if it isn't there; MESH-N120 when the server refuses it.

    Args:
        client: the connection.
        name: of the stream.
        subject: of its events.
        settings: retention and replicas.
        holds_errors: whether it is an error stream.
        first_seq: the sequence of its first message.
    """
    max_bytes = settings.errors_max_bytes if holds_errors else settings.max_bytes
    config = {
        "name": name,
        # Markers live beside the events they count: an atomic batch is within one stream.
        "subjects": [subject, f"{names.marker_subject(name)}.>"],
        **stream_config(name, settings, max_bytes),
        "allow_atomic": True,
    }
    if max_bytes:
        # A larger one is acknowledged otherwise, and deleted with all others to make room.
        config["max_msg_size"] = min(max(max_bytes - _OVERHEAD, 1), _INT32_MAX)
    config |= _ingest_settings(client)
    if first_seq > 1:
        config["first_seq"] = first_seq
    await _create(client, config)


def ingest_settings(major: int, minor: int) -> dict[str, bool]:
    """Settings of a stream for ingest batches (ADR-50, "fast-ingest"), by the server's version."""
    return {"allow_batched": True} if (major, minor) >= _INGEST_SINCE else {}


def _ingest_settings(client: Client) -> dict[str, bool]:
    version = client.connected_server_version
    return ingest_settings(version.major, version.minor)


async def update_streams(client: Client, specs: Iterable[AppSpec]) -> None:
    """Update the streams that an earlier version made.

    They allow no rollups, with which any publisher of a stream could delete its events, and take
    ingest batches if the server does.  Streams that an app did not make are left as they are.
    Servers that do not answer are asked again by the next manager.
    """
    ours = {
        name
        for spec in specs
        for name, _ in js_streams(spec)
        if spec.creates_channels or name == names.error_js_stream(spec.name)
    }
    try:
        async for info in all_streams(client, _CREATE_S):
            config = info["config"]
            if config["name"] not in ours:
                continue
            flags = {"allow_rollup_hdrs": False}
            if not config.get("mirror"):
                flags |= _ingest_settings(client)
            if any(bool(config.get(name)) != value for name, value in flags.items()):
                call = f"STREAM.UPDATE.{config['name']}"
                error = (await api_call(client, call, config | flags, _CREATE_S)).get("error")
                log.info("stream updated", extra=fields(stream=config["name"], error=error))
    except (NatsError, TimeoutError) as error:
        log.warning("streams of an earlier version not updated", extra=fields(error=error))


async def all_streams(
    client: Client, timeout_s: float, subject: str | None = None
) -> AsyncIterator[JsonObject]:
    """All streams, or those with a subject that matches, as the server describes them.

    ``timeout_s`` is of one call.
    """
    offset, total = 0, 1
    chosen = {"subject": subject} if subject is not None else {}
    while offset < total:
        answer = await api_call(client, "STREAM.LIST", {"offset": offset, **chosen}, timeout_s)
        page = answer.get("streams") or []
        for info in page:
            yield info
        offset, total = offset + len(page), answer.get("total", 0) if page else 0


async def expect_streams(js: JetStreamContext, spec: AppSpec) -> None:
    """Check the streams that an app needs and that are not made for it.

    Raises:
        MeshError: MESH-N121 for an app with ``@App:transportChannelCreationEnabled('false')`` when
            one is missing, or holds another subject; MESH-N122 when the stream of a source is
            missing.
    """
    await _expect_foreign(js, spec)
    if not spec.creates_channels:
        await _expect(js, spec)


async def _expect_foreign(js: JetStreamContext, spec: AppSpec) -> None:
    """Refuse an app whose sources read streams that don't exist."""
    for group in spec.groups:
        for channel in (i.channel for i in group.inputs if i.channel.foreign):
            try:
                await js.stream_info(channel.foreign)
            except NotFoundError as error:
                raise MeshError(
                    "MESH-N122",
                    f'JetStream stream "{channel.foreign}", which the source of stream '
                    f'"{channel.stream.name}" reads, is not there',
                    hint="Make it first: 'nats stream add'. Names count with their capitals.",
                ) from error


async def ends(js: JetStreamContext, streams: Iterable[str]) -> dict[str, int]:
    """The last sequences of JetStream streams, 0 for one that isn't there."""
    sequences = {}
    for name in streams:
        try:
            sequences[name] = (await js.stream_info(name)).state.last_seq
        except NotFoundError:
            sequences[name] = 0
    return sequences


async def _expect(js: JetStreamContext, spec: AppSpec) -> None:
    """Refuse an app whose streams don't all exist with the subjects that it uses."""
    missing = []
    for name, subject in js_streams(spec):
        if name == names.error_js_stream(spec.name):
            continue
        try:
            held = (await js.stream_info(name)).config.subjects or []
        except NotFoundError:
            held = []
        # By name or by a wildcard; markers must fit as well.
        subjects = (subject, f"{names.marker_subject(name)}.x")
        if not all(any(_covers(one, subject_) for one in held) for subject_ in subjects):
            missing.append(f"{name} (subjects {subject} and {names.marker_subject(name)}.>)")
    if missing:
        raise MeshError(
            "MESH-N121",
            f'app "{spec.name}" makes no JetStream streams, and {len(missing)} of its own are not '
            "there",
            detail=f"Missing, or without these subjects: {', '.join(missing)}.",
            hint="Make them first, with allow_atomic and allow_direct, or leave out "
            "@App:transportChannelCreationEnabled.",
        )


def _covers(pattern: str, subject: str) -> bool:
    """Whether a subject with wildcards takes in ``subject``."""
    ours = subject.split(".")
    for place, token in enumerate(pattern.split(".")):
        if token == ">":
            return len(ours) > place
        if place >= len(ours) or token not in ("*", ours[place]):
            return False
    return len(pattern.split(".")) == len(ours)


async def _create(client: Client, config: JsonObject) -> None:
    # nats-py's StreamConfig has no field for atomic batches yet.
    call = f"STREAM.CREATE.{config['name']}"
    for last in (False,) * (_CREATE_TIMES - 1) + (True,):
        try:
            answer = await api_call(client, call, config, _CREATE_S)
        except TimeoutError:
            if last:
                raise
            continue
        error = answer.get("error")
        if error is None or error.get("err_code") == _NAME_IN_USE:
            return
        if last or error.get("err_code") != _NO_STORE:
            raise MeshError(
                "MESH-N120",
                f"JetStream stream {config['name']} can't be made",
                detail=f"The server says: {error.get('description')}.",
                hint=hint_of(error.get("err_code")),
            )


def hint_of(err_code: int | None) -> str | None:
    """The remedy for a stream that can't be made."""
    if err_code == _OVERLAP:
        return "Another stream holds the subject mesh.>, or a part of it: 'nats stream ls'."
    if err_code in NO_ROOM:
        return (
            "JetStream has no room for the bytes that a channel reserves: lower channels.max_bytes,"
            " undeploy apps, or raise max_file_store of the servers, or the limits of the account."
        )
    return None


async def _unchecked() -> None:
    """Allow a deletion."""


async def delete_retired(
    js: JetStreamContext,
    spec: AppSpec,
    retired: Retired,
    check: Callable[[], Awaitable[None]] = _unchecked,
) -> None:
    """Delete the streams that an app has no more, with all they hold, if they were made for it.

    Args:
        js: the connection.
        spec: the app as it is now.
        retired: what it has no more.
        check: called right before each deletion; raises if there must be none.
    """
    if spec.creates_channels:
        gone = [name for channel in retired.channels for name in channel.js_streams]
        await _delete(js, gone, check)


async def delete_channels(
    js: JetStreamContext,
    spec: AppSpec,
    check: Callable[[], Awaitable[None]] = _unchecked,
) -> None:
    """Delete an app's streams with all they hold, but for those that were not made for it.

    Args:
        js: the connection.
        spec: the app.
        check: called right before each deletion; raises if there must be none.
    """
    errors = names.error_js_stream(spec.name)
    streams = [name for name, _ in js_streams(spec) if spec.creates_channels or name == errors]
    await _delete(js, streams, check)


async def _delete(
    js: JetStreamContext, streams: Iterable[str], check: Callable[[], Awaitable[None]]
) -> None:
    for name in streams:
        await check()
        with contextlib.suppress(NotFoundError):
            await js.delete_stream(name)


async def ensure_buckets(js: JetStreamContext, settings: ChannelSettings) -> None:
    """Make the buckets of the control plane, the journal and snapshots, if they aren't there.

    Servers that have just started can't place them until they have found each other, and a cluster
    that has just lost one not until it is back: for so long this waits, up to ``PLACING_S``.

    Raises:
        MeshError: MESH-N123 when they can't be placed.
    """
    deadline_s = asyncio.get_running_loop().time() + PLACING_S
    while True:
        try:
            await _ensure_buckets(js, settings)
        except (APIError, NatsTimeout) as error:
            said = error.description if isinstance(error, APIError) else "nothing in time"
            passes = isinstance(error, (ServiceUnavailableError, NatsTimeout))
            if not passes and getattr(error, "err_code", None) != _NO_PEERS:
                raise
            if asyncio.get_running_loop().time() > deadline_s:
                raise MeshError(
                    "MESH-N123",
                    f"buckets of {settings.replicas} replicas can't be made",
                    detail=f"The server says: {said}.",
                    hint="Are as many servers up, and is JetStream enabled on them?",
                ) from error
        else:
            return
        await asyncio.sleep(RECONNECT_S)


async def _ensure_buckets(js: JetStreamContext, settings: ChannelSettings) -> None:
    for bucket in (names.CONTROL_BUCKET, names.APPS_BUCKET, names.STATUS_BUCKET):
        await kv.ensure_bucket(js, bucket, settings.replicas)
    await journal.ensure_stream(js, settings.replicas)
    await snapshots.ensure_buckets(js, settings.replicas)


async def change(client: Client, retention: Retention) -> bool:
    """Change the retention of a stream; whether the server has accepted it.

    Raises:
        TimeoutError: NATS did not answer; others of NATS.
    """
    info = await api_call(client, f"STREAM.INFO.{retention.js_stream}")
    config = info.get("config")
    if config is None:
        return False
    metadata = config.get("metadata") or {}
    if retention.group:
        metadata.setdefault(BEFORE, f"{config.get('max_age', 0) / 1e9:g}")
    else:
        metadata.pop(BEFORE, None)
    config |= {"metadata": metadata, "max_age": int(retention.max_age_s * 1e9)}
    # The window of duplicates may not be longer.
    config["duplicate_window"] = min(config.get("duplicate_window", 0), config["max_age"])
    answer = await api_call(client, f"STREAM.UPDATE.{retention.js_stream}", config)
    return "error" not in answer


async def ages_s(client: Client, sequences: Mapping[str, int], now_s: float) -> dict[str, float]:
    """By stream: the age of a message; none for one that is not there (yet)."""
    ages = {}
    for js_stream, sequence in sequences.items():
        try:
            message = await client.jetstream().get_msg(js_stream, sequence)
        except NotFoundError:
            continue
        if message.time is not None:
            ages[js_stream] = now_s - message.time.timestamp()
    return ages
