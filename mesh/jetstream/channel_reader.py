"""Reader of a channel by sequence: a pull consumer without acks, made again after any loss.

Reading a range of a JetStream stream once, without a consumer: batches of direct gets.

Source:
    github.com/nats-io/nats-architecture-and-design, ADR-31, "batched requests".
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

import orjson
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.errors import NotFoundError

from mesh.clock import SystemClock
from mesh.jetstream.connection import api_call, api_subject
from mesh.model import names
from pyspark_nats.protocol import jetstream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from mesh.model.values import JsonObject


#: Messages and bytes of one request, and its duration, seconds.
_MESSAGES: Final = 1000
_BYTES: Final = 16 << 20
_EXPIRES_S: Final = 5.0
#: Bytes of a message besides its payload.
_HEAD_ROOM: Final = 64 << 10
#: The server deletes a consumer that is not used for this time, seconds.
_UNUSED_S: Final = 60.0
#: Time limit for an answer that is asked for again soon, seconds.
_COUNTED_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class ChannelMessage:
    """A message of a channel."""

    sequence: int
    data: bytes
    content_type: str | None
    #: When the server stored it, milliseconds since 1970.
    time_ms: int
    subject: str = ""
    headers: Mapping[str, str] | None = None


class ChannelReader:
    """Messages of a channel after a sequence, in order and without gaps."""

    def __init__(self, client: Client, js_stream: str, subject: str, after: int) -> None:
        self._client = client
        self._js_stream, self._subject = js_stream, subject
        self._after = after
        self._name = ""
        self._inbox = ""
        self._subscription: Subscription | None = None
        self._arrived: deque[Msg] = deque()
        self._news = asyncio.Event()
        #: ``wake`` was called, and no call of ``next`` has ended because of it.
        self._is_woken = False
        self._clock = SystemClock()
        #: Messages that the open request may still bring, and when it was sent.
        self._open, self._request_at_s = 0, 0.0
        self._delivered = 0
        #: The consumer is gone, or a message was lost on the way.
        self._is_lost = False
        #: Messages that the stream has after the last one that was returned.
        self.pending = 0
        #: How often a consumer was made.
        self.generation = 0

    async def next(self, limit: int, wait_s: float) -> list[ChannelMessage]:
        """Up to ``limit`` messages, as soon as there are any; none after ``wait_s``.

        Raises:
            NotFoundError: there is no such stream.
            NatsError, TimeoutError, OSError: the server doesn't answer, or refuses.
        """
        if self._is_lost:
            await self.close()
        return await self._next(limit, wait_s)

    async def _next(self, limit: int, wait_s: float) -> list[ChannelMessage]:
        if not self._name:
            await self._make()
        messages: list[ChannelMessage] = []
        self._news.clear()
        self._take(limit, messages)
        if messages:
            return messages
        if self._open and self._clock.monotonic_s() > self._request_at_s + 2 * _EXPIRES_S:
            # Not even the end of the request has arrived.
            self._is_lost = True
            return messages
        if not self._open:
            await self._ask()
        if not self._is_woken:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._news.wait()
        self._is_woken = False
        self._take(limit, messages)
        return messages

    def _take(self, limit: int, messages: list[ChannelMessage]) -> None:
        """Move messages that have arrived to ``messages``, up to a gap."""
        while self._arrived and len(messages) < limit and not self._is_lost:
            message = self._arrived.popleft()
            headers = message.headers or {}
            # A message of the stream has its own subject, and any headers that its publisher likes.
            if message.subject == self._inbox:
                self._ended(headers.get("Status", ""), headers.get("Description", ""))
                continue
            words = message.reply.split(".")
            at = 7 if len(words) >= 11 else 5
            if int(words[at + 1]) != self._delivered + 1:
                self._is_lost = True
                break
            self._delivered += 1
            self._open -= 1
            self._after = int(words[at])
            self.pending = int(words[at + 3])
            messages.append(
                ChannelMessage(
                    self._after,
                    message.data,
                    headers.get("Content-Type"),
                    int(words[at + 2]) // 1_000_000,
                    message.subject,
                    headers,
                )
            )
        self._open = max(0, self._open)

    def _ended(self, status: str, text: str) -> None:
        """A request has ended, and perhaps the consumer."""
        self._open = 0
        is_served = status == "409" and text.startswith(jetstream.SERVED)
        self._is_lost = status not in ("404", "408") and not is_served

    async def count(self) -> None:
        """Have the server count what the stream has after the last message that was returned.

        Without an answer the earlier count stays.
        """
        if name := self._name:
            with contextlib.suppress(NatsError, TimeoutError, OSError):
                pending = await self._counted(name)
                if name == self._name:
                    self.pending = pending

    async def _counted(self, name: str) -> int:
        call = f"CONSUMER.INFO.{self._js_stream}.{name}"
        answer = await api_call(self._client, call, timeout_s=_COUNTED_S)
        if "error" in answer:
            # The consumer was not used for long, and is gone.
            answer = await self._create(f"mesh_{secrets.token_hex(6)}", _COUNTED_S)
            return int(answer["num_pending"])
        return (
            int(answer["num_pending"]) + int(answer["delivered"]["consumer_seq"]) - self._delivered
        )

    async def _make(self) -> None:
        name = f"mesh_{secrets.token_hex(6)}"
        answer = await self._create(name, _UNUSED_S)
        self.pending = int(answer.get("num_pending", 0))
        self._inbox = self._client.new_inbox()
        self._subscription = await self._client.subscribe(
            self._inbox, cb=self._received, pending_bytes_limit=4 * _BYTES
        )
        self._name, self._delivered, self._open = name, 0, 0
        self.generation += 1

    async def _create(self, name: str, unused_s: float) -> JsonObject:
        """Make a consumer after the last message that was returned; the server's answer."""
        config: JsonObject = {
            "name": name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self._after + 1,
            "ack_policy": "none",
            "filter_subject": self._subject,
            "inactive_threshold": int(unused_s * 1e9),
            "mem_storage": True,
            "num_replicas": 1,
        }
        call = f"CONSUMER.CREATE.{self._js_stream}.{name}"
        if not set("*>") & set(self._subject):
            # Permissions are given by it; a subject to publish to has no wildcard.
            call = f"{call}.{self._subject}"
        query = {"stream_name": self._js_stream, "config": config}
        answer = await api_call(self._client, call, query)
        if (error := answer.get("error")) is not None:
            about = str(error.get("description"))
            raise NotFoundError(description=about) if error.get("code") == 404 else NatsError(about)
        return answer

    async def _received(self, message: Msg) -> None:
        self._arrived.append(message)
        self._news.set()

    async def _ask(self) -> None:
        bytes_max = max(_BYTES, self._client.max_payload + _HEAD_ROOM)
        expires_ns = int(_EXPIRES_S * 1e9)
        query = {"batch": _MESSAGES, "max_bytes": bytes_max, "expires": expires_ns}
        await self._client.publish(
            api_subject(self._client, f"CONSUMER.MSG.NEXT.{self._js_stream}.{self._name}"),
            orjson.dumps(query),
            reply=self._inbox,
        )
        self._open, self._request_at_s = _MESSAGES, self._clock.monotonic_s()

    def wake(self) -> None:
        """End the wait of a call of ``next``: of this one, or the next one if none waits."""
        self._is_woken = True
        self._news.set()

    async def close(self) -> None:
        """End the subscription; the consumer expires."""
        subscription, self._subscription, self._name = self._subscription, None, ""
        self._arrived.clear()
        self._is_lost = False
        if subscription is not None:
            with contextlib.suppress(NatsError, OSError, ValueError):
                await subscription.unsubscribe()


#: Messages and bytes of one request.
_BATCH: Final = 500
_BATCH_BYTES: Final = 4 << 20
#: Time for the next message of a response, seconds.
_ANSWER_S: Final = 5.0
#: Time between reads of a copy that has not all that the leader has, seconds; and their number.
_BEHIND_S: Final = 0.1
_BEHIND_MAX: Final = 100
#: Statuses of a response: its end, nothing found, and too many subjects.
_END, _NOTHING, _TOO_MANY = "204", "404", "413"
#: Headers that the server adds.
_SERVERS: Final = ("Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp")
_MORE: Final = ("Nats-Num-Pending", "Nats-Last-Sequence", "Nats-UpTo-Sequence")


@dataclass(frozen=True, slots=True)
class LogMessage:
    """A stored message."""

    sequence: int
    #: When the server stored it, milliseconds since 1970.
    time_ms: int
    subject: str
    data: bytes
    #: The publisher's headers.
    headers: dict[str, str]

    @property
    def event_time_ms(self) -> int | None:
        """The time that its publisher gave it; None without one."""
        text = self.headers.get(names.EVENT_TIME_HEADER, "")
        return int(text) if text.isdigit() else None


async def read(
    client: Client, js_stream: str, first: int, last: int, subject: str = ">"
) -> AsyncIterator[LogMessage]:
    """The stored messages of a range, in order; those that are gone are left out.

    Args:
        client: the connection.
        js_stream: one with ``allow_direct``.
        first: lowest sequence.
        last: highest sequence; the iteration ends there or at the stream's end.
        subject: of the messages, with wildcards.

    Raises:
        NatsTimeoutError: a server doesn't answer, or does not get what the stream's leader has.
        NatsError: no server has the stream, or it refuses.
    """
    at, tries = first, 0
    while at <= last:
        request = {
            "seq": at, "batch": min(_BATCH, last - at + 1), "max_bytes": _BATCH_BYTES,
            "next_by_subj": subject,
        }  # fmt: skip
        messages = await _batch(client, js_stream, request)
        for one in messages:
            if one.sequence > last:
                return
            yield one
        if messages:
            at, tries = messages[-1].sequence + 1, 0
        elif not await _has(client, js_stream, at, last, subject):
            return
        elif (tries := tries + 1) == _BEHIND_MAX:
            raise NatsTimeoutError
        else:
            await asyncio.sleep(_BEHIND_S)


async def _has(client: Client, js_stream: str, first: int, last: int, subject: str) -> bool:
    """Whether the leader has one of a range: what answers direct gets may be behind."""
    try:
        message = await client.jetstream().get_msg(js_stream, first, subject=subject, next=True)
    except NotFoundError:
        return False
    return (message.seq or 0) <= last


async def last_of_each(
    client: Client, js_stream: str, subject: str, before: int
) -> list[LogMessage]:
    """The last message of each subject before a sequence; none of more than 1,024 subjects.

    Args:
        client: the connection.
        js_stream: one with ``allow_direct``.
        subject: of the messages, with wildcards.
        before: a sequence, up to which the stream was read.
    """
    if before <= 1:
        return []
    return await _batch(client, js_stream, {"multi_last": [subject], "up_to_seq": before - 1})


async def _batch(client: Client, js_stream: str, request: JsonObject) -> list[LogMessage]:
    messages, ended = await direct_get(client, js_stream, request)
    if (status := ended["Status"]) not in (_END, _NOTHING, _TOO_MANY):
        raise NatsError(ended.get("Description", status))
    return [_message(one) for one in messages]


async def direct_get(
    client: Client, js_stream: str, request: JsonObject
) -> tuple[list[Msg], dict[str, str]]:
    """The answers to one direct get of several messages, and the headers that end them.

    Raises:
        NatsTimeoutError: a server doesn't answer.
        NoRespondersError: no server has the stream.
    """
    answers: asyncio.Queue[Msg] = asyncio.Queue()
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox, cb=answers.put)
    try:
        call = api_subject(client, f"DIRECT.GET.{js_stream}")
        await client.publish(call, json.dumps(request).encode(), reply=inbox)
        messages: list[Msg] = []
        while True:
            try:
                async with asyncio.timeout(_ANSWER_S):
                    message = await answers.get()
            except TimeoutError as error:
                raise NatsTimeoutError from error
            headers = message.headers or {}
            # A message has a sequence, whatever other headers its publisher gave it.
            if "Nats-Sequence" in headers:
                messages.append(message)
                continue
            if headers.get("Status") == "503":
                # As while a server starts: what it has not told is not known to be missing.
                raise NoRespondersError
            if "Status" in headers:
                return messages, headers
            messages.append(message)
    finally:
        await subscription.unsubscribe()


def _message(message: Msg) -> LogMessage:
    headers = message.headers or {}
    stored = datetime.fromisoformat(headers["Nats-Time-Stamp"])
    return LogMessage(
        int(headers["Nats-Sequence"]),
        int(stored.timestamp() * 1000),
        headers["Nats-Subject"],
        message.data,
        {k: v for k, v in headers.items() if k not in _SERVERS and k not in _MORE},
    )
