"""Messages of ``publish``, ``tap`` and the demo: the view of an ordinary NATS client."""

from __future__ import annotations

import asyncio
import contextlib
import csv
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import nats.errors
import orjson

from mesh.errors import MeshError
from mesh.jetstream import connection
from mesh.mapping.messages import decode as decode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping

    from nats.aio.client import Client

    from mesh.cli.context import Context


@asynccontextmanager
async def connected(context: Context) -> AsyncIterator[Client]:
    """A connection that fails at once without an answer, with MESH-N110; so do its requests."""

    async def quiet(error: Exception) -> None:
        """Keep the error: the call that it belongs to raises another one."""
        problems.append(str(error) or type(error).__name__)

    is_used = is_lost = False
    user = asyncio.current_task()

    async def ended() -> None:
        """Wake a wait for messages, which would not end."""
        nonlocal is_lost
        if is_used and user is not None:
            is_lost = True
            user.cancel()

    problems: list[str] = []
    settings = context.nats_settings
    client = connection.new_client(settings)
    options: dict[str, Any] = {
        "servers": connection.servers_of(settings),
        "allow_reconnect": False,
        # Also for the first connection, which is otherwise retried for two minutes.
        "max_reconnect_attempts": 1,
        "reconnect_time_wait": 0.1,
        "connect_timeout": 5,
        "error_cb": quiet,
        "closed_cb": ended,
    }
    try:
        await client.connect(**options, **connection.login(settings))
    except (OSError, nats.errors.Error, TimeoutError) as error:
        await connection.close(client)
        reason = problems[-1] if problems else str(error) or type(error).__name__
        raise MeshError(
            "MESH-N110",
            f"NATS at {connection.without_login(settings.url)} can't be reached",
            detail=f"{reason}.",
            hint="--nats or MESH_NATS_URL says where it is.",
        ) from error
    is_used = True
    try:
        yield client
    except asyncio.CancelledError as error:
        if not is_lost:
            raise
        raise MeshError(
            "MESH-N110",
            f"NATS at {connection.without_login(settings.url)} has ended the connection",
            detail=f"{problems[-1] if problems else 'The socket was closed'}.",
            hint="Try again; what --from-start has printed comes again.",
        ) from error
    except TimeoutError as error:
        raise MeshError(
            "MESH-N110",
            f"NATS at {connection.without_login(settings.url)} does not answer",
            detail="A request got no answer in time.",
            hint="Try again: a stream has no leader while a server that ended is replaced.",
        ) from error
    finally:
        is_used = False
        await connection.close(client)


async def holders(client: Client, app: str, stream: str) -> list[tuple[str, str]]:
    """(JetStream stream, subject) of the channels that hold all events of a stream, each once.

    That is the plain channel for an app that is not deployed, or has no such stream.
    """
    from mesh.model import codec, names
    from mesh.model.cluster import AppRecord

    channel = None
    with contextlib.suppress(nats.errors.Error):
        bucket = await client.jetstream().key_value(names.APPS_BUCKET)
        value = (await bucket.get(names.app_key(app))).value
        if value is not None:
            channel = codec.decode(AppRecord, value).spec.whole_channel(stream)
    if channel is None:
        return [(names.js_stream(app, stream), names.subject(app, stream))]
    return [(channel.js_stream(p), channel.subject(p)) for p in range(channel.partitions)]


def json_lines(lines: Iterable[str]) -> Iterator[bytes]:
    """The unchanged lines, without blank ones."""
    return (line.strip().encode() for line in lines if line.strip())


def csv_events(lines: Iterable[str], schema: Mapping[str, str]) -> Iterator[bytes]:
    """CSV rows below a line of names as JSON objects, typed by ``schema`` (name to SiddhiQL type).

    An empty field is null; a column that the stream does not have stays text.

    Raises:
        MeshError: MESH-U122 with the line number, for a value that its type does not allow and for
            a row that has more or fewer fields than the first line.
    """
    reader = csv.reader(lines)
    names = [name.strip() for name in next(reader, [])]
    readers = [_READERS.get(schema.get(name, ""), str) for name in names]
    for row in reader:
        if not row:
            continue
        if len(row) != len(names):
            raise MeshError(
                "MESH-U122", f"line {reader.line_num} has {len(row)} fields, not {len(names)}"
            )
        event: dict[str, Any] = {}
        for name, read, text in zip(names, readers, row, strict=True):
            try:
                event[name] = read(text.strip()) if text else None
            except ValueError as error:
                raise MeshError(
                    "MESH-U122",
                    f'line {reader.line_num}: "{name}" is {schema[name]}, not {text!r}',
                ) from error
        yield orjson.dumps(event)


def _bool(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.lower()]
    except KeyError as error:
        raise ValueError(text) from error


_READERS: dict[str, Callable[[str], Any]] = {
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "bool": _bool,
}
