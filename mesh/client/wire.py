"""Messages of ``publish``, ``tap`` and the demo: the view of an ordinary NATS client."""

from __future__ import annotations

import asyncio
import csv
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import nats.errors
import orjson

from mesh.client.deployed import holders
from mesh.clock import SystemClock
from mesh.errors import MeshError
from mesh.jetstream import connection
from mesh.mapping.messages import decode as decode
from mesh.processes.signals import end

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Callable,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from mesh.client.context import ClientContext
    from mesh.jetstream.channel_reader import ChannelMessage
    from mesh.model.values import JsonObject

#: Messages of one look at a channel, and how long it waits for the first, seconds.
_MESSAGES = 1000
#: Most events without an acknowledgement, and time limit of the next one, seconds.
_WINDOW = 500
_ACK_S = 5.0
_WAIT_S = 5.0
#: Of the refusals of a server, in small letters.
_NO_PERMISSION = "permissions violation"


@asynccontextmanager
async def connected(context: ClientContext) -> AsyncIterator[Client]:
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
        # The server answers a request that the login may not make by an error of the connection.
        refused = next((one for one in problems if _NO_PERMISSION in one.lower()), None)
        raise MeshError(
            "MESH-N110",
            f"NATS at {connection.without_login(settings.url)} does not answer",
            detail=f"{refused}." if refused else "A request got no answer in time.",
            hint="Use a login that may do it."
            if refused
            else "Try again: a stream has no leader while a server that ended is replaced.",
        ) from error
    finally:
        is_used = False
        await connection.close(client)


class NoStreamError(Exception):
    """No JetStream stream takes the subject."""


class EventRefusedError(Exception):
    """The server has refused an event; the message is its reason."""


class EventPublisher:
    """Publishes events to a subject with a bounded number of unacknowledged ones.

    ``publish_async`` of nats-py 2.16 is not used: its futures never end on most refusals.
    """

    def __init__(self, client: Client, subject: str) -> None:
        self._client = client
        self._subject = subject
        self._inbox = ""
        self._sent = 0
        self._refusal: Exception | None = None
        self._news = asyncio.Event()
        #: Acknowledged events.
        self.stored = 0

    async def send(self, data: bytes, headers: dict[str, str] | None) -> None:
        """Publish an event; wait while too many are unacknowledged.

        Raises:
            NoStreamError, RefusedError: an answer to this or an earlier event.
            TimeoutError: no answer for ``_ACK_S``.
        """
        if not self._inbox:
            self._inbox = self._client.new_inbox()
            await self._client.subscribe(self._inbox, cb=self._receive)
        await self._client.publish(self._subject, data, reply=self._inbox, headers=headers)
        self._sent += 1
        # The first one alone: where it is refused, no other event is sent.
        await self._wait(0 if self._sent == 1 else _WINDOW)

    async def settle(self) -> None:
        """Wait until every event is acknowledged; the errors are those of ``send``."""
        await self._wait(0)

    async def _wait(self, most: int) -> None:
        while self._refusal is None and self._sent - self.stored > most:
            self._news.clear()
            async with asyncio.timeout(_ACK_S):
                await self._news.wait()
        if self._refusal is not None:
            raise self._refusal

    async def _receive(self, message: Msg) -> None:
        self._news.set()
        if not message.data:
            # The only answer without data is the server's: no client listens to the subject.
            self._refusal = self._refusal or NoStreamError(self._subject)
            return
        error = orjson.loads(message.data).get("error")
        if error is None:
            self.stored += 1
        else:
            self._refusal = self._refusal or EventRefusedError(str(error.get("description")))


async def subscribed(client: Client, app: str, stream: str) -> asyncio.Queue[Msg]:
    """The messages of a stream that arrive from now on.

    Raises:
        MeshError: as ``holders``; MESH-N110, the login may not read them.
    """
    arrived: asyncio.Queue[Msg] = asyncio.Queue()
    for _, subject in await holders(client, app, stream):
        await client.subscribe(subject, cb=arrived.put)
    await client.flush()
    # The server refuses a subscription without an answer to it, before that of the flush.
    refusal = str(client.last_error or "")
    if f"{_NO_PERMISSION} for subscription" in refusal.lower():
        raise _no_events(app, stream, refusal, "Name a stream that the login may read.")
    return arrived


async def live(arrived: asyncio.Queue[Msg]) -> AsyncGenerator[ChannelMessage, None]:
    """Messages of a stream as they arrive, as a client that subscribes gets them."""
    from mesh.jetstream.channel_reader import ChannelMessage

    clock = SystemClock()
    while True:
        message = await arrived.get()
        headers = message.headers or {}
        kind = headers.get("Content-Type")
        yield ChannelMessage(0, message.data, kind, clock.wall_ms(), message.subject, headers)


async def stored(client: Client, app: str, stream: str) -> AsyncGenerator[ChannelMessage, None]:
    """Messages of a stream from the oldest on, of each channel in order and without gaps.

    Raises:
        MeshError: MESH-N111, no JetStream stream holds them; MESH-N110, the server refuses.
        TimeoutError: the server doesn't answer.
    """
    from nats.js.errors import NotFoundError

    from mesh.jetstream.channel_reader import ChannelReader
    from mesh.model import names

    readers = [ChannelReader(client, *one, 0) for one in await holders(client, app, stream)]
    reading: dict[asyncio.Task[list[ChannelMessage]], ChannelReader] = {}
    try:
        while True:
            for reader in set(readers) - {*reading.values()}:
                reading[asyncio.create_task(reader.next(_MESSAGES, _WAIT_S))] = reader
            done, _ = await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                del reading[task]
                for message in task.result():
                    yield message
    except NotFoundError as error:
        subject = names.subject(app, stream)
        raise MeshError("MESH-N111", f'no channel holds "{subject}"', hint="mesh apps") from error
    except nats.errors.TimeoutError:
        raise
    except nats.errors.Error as error:
        hint = "Try again; 'nats server check jetstream' tells more."
        raise _no_events(app, stream, str(error), hint) from error
    finally:
        await end(reading)


def _no_events(app: str, stream: str, reason: str, hint: str) -> MeshError:
    from mesh.model import names

    subject = names.subject(app, stream)
    return MeshError(
        "MESH-N110", f'NATS gives no events of "{subject}"', detail=f"{reason}.", hint=hint
    )


def json_lines(lines: Iterable[str]) -> Iterator[bytes]:
    """The unchanged lines, without blank ones."""
    return (line.strip().encode() for line in lines if line.strip())


def csv_events(lines: Iterable[str], schema: Mapping[str, str]) -> Iterator[bytes]:
    """CSV rows below a line of names as JSON objects, typed by ``schema`` (name to SiddhiQL type).

    An empty field is null; a column that the stream does not have stays text.

    Raises:
        MeshError: MESH-U122 with the line number, for a value that its type does not allow, for a
            row that has more or fewer fields than the first line, and for one that lacks a name.
    """
    reader = csv.reader(lines)
    names = [name.strip() for name in next(reader, [])]
    _check_names(names, schema)
    readers = [_READERS.get(schema.get(name, ""), str) for name in names]
    for row in reader:
        if not row:
            continue
        if len(row) != len(names):
            raise MeshError(
                "MESH-U122", f"line {reader.line_num} has {len(row)} fields, not {len(names)}"
            )
        event: JsonObject = {}
        for name, read, text in zip(names, readers, row, strict=True):
            try:
                event[name] = read(text.strip()) if text else None
            except ValueError as error:
                raise MeshError(
                    "MESH-U122",
                    f'line {reader.line_num}: "{name}" is {schema[name]}, not {text!r}',
                ) from error
        yield orjson.dumps(event)


def _check_names(names: Sequence[str], schema: Mapping[str, str]) -> None:
    """Refuse a line of names that lacks an attribute: no event of it could be read."""
    from mesh.plan.diagnostics import nearest

    missing = [name for name in schema if name not in names]
    if not missing:
        return
    others = [name for name in names if name not in schema]
    meant = next((one for one in others if nearest(one, missing[:1]) is not None), None)
    hint = f'Did you mean "{missing[0]}" by "{meant}"?'
    if meant is None:
        hint = "The first line has the names of the columns, separated by commas."
    raise MeshError(
        "MESH-U122",
        f'line 1 has no column "{missing[0]}"',
        detail=f"Columns: {', '.join(names) or 'none'}.",
        hint=hint,
    )


def _bool(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.lower()]
    except KeyError as error:
        raise ValueError(text) from error


_READERS: dict[str, Callable[[str], object]] = {
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "bool": _bool,
}
