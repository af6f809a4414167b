"""Requests that wait for an event: a sink of any worker sends its payload to the subject of an id.

Source and sink need no common process.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import secrets
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from mesh.model import names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

#: An id is a part of a subject.
_ID: Final = re.compile(r"[0-9a-f]{16}\.[0-9]{1,15}\Z")
_ANSWER_S: Final = 5.0


class Answered(NamedTuple):
    """An answer as its sink has sent it."""

    payload: bytes
    headers: Sequence[tuple[str, str]]


class WaitingRequests:
    """The requests of one source, by id."""

    def __init__(self) -> None:
        self._token = secrets.token_hex(8)
        self._number = 0
        self._waiting: dict[str, asyncio.Future[Answered]] = {}
        self._subscription: Subscription | None = None

    async def open(self, client: Client) -> None:
        """Subscribe to answers."""
        subject = names.answer_subject(f"{self._token}.*")
        self._subscription = await client.subscribe(subject, cb=self._received)

    async def close(self) -> None:
        """Take no more answers."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            with contextlib.suppress(NatsError, OSError):
                await subscription.unsubscribe()

    @contextlib.contextmanager
    def request(self) -> Iterator[tuple[str, asyncio.Future[Answered]]]:
        """Id of a new request, and its answer; it waits until the block ends."""
        self._number += 1
        request_id = f"{self._token}.{self._number}"
        waiting: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = waiting
        try:
            yield request_id, waiting
        finally:
            del self._waiting[request_id]

    async def _received(self, message: Msg) -> None:
        waiting = self._waiting.get(".".join(message.subject.split(".")[-2:]))
        if waiting is None or waiting.done():
            await message.respond(b"late")
            return
        answer = orjson.loads(message.data)
        headers = [(name, value) for name, value in answer["headers"]]
        waiting.set_result(Answered(base64.b64decode(answer["payload"]), headers))
        await message.respond(b"")


async def send_answer(
    client: Client, request_id: str, payload: bytes, headers: Sequence[tuple[str, str]]
) -> str | None:
    """Answer the request of an id; None, or the reason why nothing has got the answer.

    Raises:
        NatsError, TimeoutError, OSError: the mesh's servers are away.
    """
    if not _ID.match(request_id):
        return f'"{request_id[:80]}" is no id of a request'
    encoded = base64.b64encode(payload).decode()
    answer = orjson.dumps({"headers": headers, "payload": encoded})
    if len(answer) > client.max_payload:
        return f"an answer of {len(payload)} bytes is too large for NATS"
    try:
        reply = await client.request(names.answer_subject(request_id), answer, timeout=_ANSWER_S)
    except NoRespondersError:
        return "no request waits for the answer"
    return "no request waits for the answer" if reply.data else None
