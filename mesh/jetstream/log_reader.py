"""Reading a range of a JetStream stream once, without a consumer: batches of direct gets.

Source:
    github.com/nats-io/nats-architecture-and-design, ADR-31, "batched requests".
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.errors import NotFoundError

from mesh.jetstream.connection import api_subject
from mesh.model import names

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from mesh.model.values import JsonObject

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
