"""Source ``nats``: a JetStream stream by sequence, or core subjects.

The position of a stream is the last sequence that was read, and when the stream was created: one
that was created again is read from its beginning.  Core subjects have no position.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import orjson
from nats.errors import Error as NatsError

from mesh.connect.contract import Batch, UnavailableError
from mesh.jetstream.channel_reader import ChannelReader
from mesh.jetstream.connection import api_subject
from mesh.model.access import check_stream
from mesh.receiver.nats_server import connect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from mesh.connect.contract import Context
    from mesh.model.values import JsonMapping, JsonObject

#: Messages of a batch, and the longest wait for one, seconds.
_MESSAGES_MAX: Final = 1000
_WAIT_S: Final = 1.0
_ANSWER_S: Final = 5.0
#: Messages and bytes of core subjects that wait; NATS drops further ones.
_WAITING_MAX: Final = 65_536
_WAITING_BYTES: Final = 64 << 20


class NatsSource:
    """See ``mesh.connect.contract.Source``."""

    def __init__(self) -> None:
        self._client: Client | None = None
        #: A connection of its own, which it closes.
        self._connection: Client | None = None
        self._reader: ChannelReader | None = None
        self._position: JsonObject = {}

    async def open(self, context: Context, position: JsonMapping | None) -> None:
        """Continue the stream after the position, or subscribe."""
        options = context.options
        stream, subject = options.get("stream"), options.get("destination") or ">"
        if not stream or options.get("server.urls"):
            self._connection = await connect(context, "source")
        else:
            check_stream(context.app, str(stream), context.access.reads)
        self._client = self._connection or context.client
        assert self._client is not None
        try:
            if stream:
                await self._open_stream(str(stream), subject, dict(position or {}))
            else:
                await self._subscribe(subject, options.get("queue.group.name") or "")
        except (NatsError, OSError, TimeoutError) as error:
            raise UnavailableError(f"{error}" or type(error).__name__) from error

    async def _open_stream(self, stream: str, subject: str, position: JsonObject) -> None:
        assert self._client is not None
        info = await self._info(stream)
        if position.get("created") != info["created"]:
            position = {"sequence": 0, "created": info["created"]}
        self._position, self._stream, self._consumer_number = position, stream, 0
        self._reader = ChannelReader(self._client, stream, subject, position["sequence"])

    async def _info(self, stream: str) -> JsonObject:
        assert self._client is not None
        call = api_subject(self._client, f"STREAM.INFO.{stream}")
        answer = await self._client.request(call, timeout=_ANSWER_S)
        info: JsonObject = orjson.loads(answer.data)
        if "error" in info:
            raise UnavailableError(f"stream {stream}: {info['error'].get('description')}")
        return info

    async def _subscribe(self, subject: str, queue: str) -> None:
        assert self._client is not None
        self._arrived: asyncio.Queue[Msg] = asyncio.Queue()

        async def received(message: Msg) -> None:
            await self._arrived.put(message)

        await self._client.subscribe(
            subject,
            queue=queue,
            cb=received,
            pending_msgs_limit=_WAITING_MAX,
            pending_bytes_limit=_WAITING_BYTES,
        )
        await self._client.flush(int(_ANSWER_S))

    async def read(self) -> Batch | None:
        """Messages that have arrived, with subject, sequence, time and headers as properties."""
        assert self._client is not None
        if self._client.is_closed:
            raise UnavailableError("the connection was lost")
        try:
            return await (self._read_core() if self._reader is None else self._read_stream())
        except (NatsError, OSError, TimeoutError) as error:
            raise UnavailableError(f"{error}" or type(error).__name__) from error

    async def _read_stream(self) -> Batch | None:
        assert self._reader is not None
        messages = await self._reader.next(_MESSAGES_MAX, _WAIT_S)
        if self._reader.generation != self._consumer_number:
            # The stream may have gone with the consumer before it.
            created = (await self._info(self._stream))["created"]
            if created != self._position["created"]:
                raise UnavailableError(f"stream {self._stream} was made again")
            self._consumer_number = self._reader.generation
        if not messages:
            return None
        self._position = {**self._position, "sequence": messages[-1].sequence}
        properties = [
            _named(
                one.headers,
                subject=one.subject,
                sequence=str(one.sequence),
                sequencenumber=str(one.sequence),
                timestamp=str(one.time_ms),
            )
            for one in messages
        ]
        created = self._position["created"]
        names = [f"{created}-{one.sequence}" for one in messages]
        return Batch([one.data for one in messages], self._position, properties, names)

    async def _read_core(self) -> Batch | None:
        messages = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_WAIT_S):
                messages.append(await self._arrived.get())
        while not self._arrived.empty() and len(messages) < _MESSAGES_MAX:
            messages.append(self._arrived.get_nowait())
        if not messages:
            return None
        properties = [_named(one.headers, subject=one.subject) for one in messages]
        return Batch([one.data for one in messages], {"core": True}, properties)

    async def check(self, context: Context) -> Batch | None:
        """The first messages; without a queue group, whose members would miss them."""
        options = {**context.options, "queue.group.name": None}
        try:
            await self.open(replace(context, options=options), None)
            return await self.read()
        finally:
            await self.close()

    async def committed(self, position: JsonMapping) -> None:
        """A stream keeps its messages, read or not."""

    async def close(self) -> None:
        """End the subscription, and the connection if it is the source's own."""
        reader, self._reader = self._reader, None
        connection, self._connection = self._connection, None
        if reader is not None:
            await reader.close()
        if connection is not None:
            with contextlib.suppress(NatsError, OSError, TimeoutError):
                await connection.close()


def _named(headers: Mapping[str, str] | None, **properties: str) -> dict[str, str]:
    return {name.lower(): value for name, value in (headers or {}).items()} | properties
