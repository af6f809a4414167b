"""Answers to calls, on their way from the sink that has called to the source that stores them.

The source may run on another worker.  It subscribes to the subjects of the answers that it takes;
the sink asks at the subject of an answer, and is done with its event once the source has stored it.

Requests that wait for an event: a sink of any worker sends its payload to the subject of an id.

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

from mesh.connect.contract import RefusedPayloadError, UnavailableError
from mesh.model import names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from mesh.connect.contract import Context, Record
    from mesh.model.values import JsonObject


_ANSWER_S: Final = 15.0
#: In place of a status, for answers that have none: no status of HTTP.
NO_STATUS: Final = 0

#: An id is a part of a subject.
_ID: Final = re.compile(r"[0-9a-f]{16}\.[0-9]{1,15}\Z")
_EVENT_S: Final = 5.0
#: Requests of a source that are answered, whose answers may come again.
_ANSWERED_MAX: Final = 10_000


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
        #: Key of the event that has answered each of the last requests.
        self._answered: dict[str, str] = {}
        self._subscription: Subscription | None = None

    async def open(self, client: Client) -> None:
        """Subscribe to answers."""
        subject = names.answer_subject(self._token, "*")
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
        request_id = ".".join(message.subject.split(".")[-2:])
        waiting = self._waiting.get(request_id)
        answer = orjson.loads(message.data)
        if waiting is None or waiting.done():
            # A sink repeats its answer when its host was killed before it had stored its position.
            is_repeat = self._answered.get(request_id) == answer["key"]
            await message.respond(b"" if is_repeat else b"late")
            return
        self._answered[request_id] = answer["key"]
        if len(self._answered) > _ANSWERED_MAX:
            del self._answered[next(iter(self._answered))]
        headers = [(name, value) for name, value in answer["headers"]]
        waiting.set_result(Answered(base64.b64decode(answer["payload"]), headers))
        await message.respond(b"")


async def send_answer(
    client: Client, request_id: str, record: Record, headers: Sequence[tuple[str, str]]
) -> str | None:
    """Answer the request of an id; None, or the reason why nothing has got the answer.

    A repeat with the key of the answer that has arrived is no failure.

    Raises:
        NatsError, TimeoutError, OSError: the mesh's servers are away.
    """
    if not _ID.match(request_id):
        return f'"{request_id[:80]}" is no id of a request'
    encoded = base64.b64encode(record.payload).decode()
    answer = orjson.dumps({"headers": headers, "payload": encoded, "key": record.key})
    if len(answer) > client.max_payload:
        return f"an answer of {len(record.payload)} bytes is too large for NATS"
    try:
        subject = names.answer_subject(*request_id.split("."))
        reply = await client.request(subject, answer, timeout=_EVENT_S)
    except NoRespondersError:
        return "no request waits for the answer"
    return "no request waits for the answer" if reply.data else None


async def hand_over(
    client: Client,
    subject: str,
    record: Record,
    payload: bytes,
    headers: Iterable[tuple[str, str]],
    flaw: str = "",
) -> str | None:
    """Have the source of a subject store an answer; None, or the reason why it can't be read.

    Args:
        client: a connection to the mesh's servers.
        subject: of the answer.
        record: the record that was sent; its attributes are properties of the answer.
        payload: the answer.
        headers: of the answer, properties as well.
        flaw: the reason why ``payload`` is not the whole answer; empty if it is.

    Raises:
        NoRespondersError: no source takes answers at the subject.
        UnavailableError: the answer is not stored now.
    """
    question = {
        "payload": base64.b64encode(payload).decode(),
        "properties": {
            **{name.lower(): value for name, value in headers},
            **{name.lower(): _text(value) for name, value in (record.event or {}).items()},
        },
        "key": record.key,
    }
    request = orjson.dumps(question)
    if not flaw and len(request) > client.max_payload:
        flaw = f"it has {len(payload)} bytes, too many for NATS"
    if flaw:
        # The source refuses it: the request was sent, and another answer would be the same.
        request = orjson.dumps({"flaw": flaw})
    try:
        reply = await client.request(subject, request, timeout=_ANSWER_S)
    except NoRespondersError:
        raise
    except (NatsError, TimeoutError, OSError) as error:
        raise UnavailableError(f"the answer was not stored: {error}") from error
    said = orjson.loads(reply.data)
    if "away" in said:
        raise UnavailableError(f"the answer was not stored: {said['away']}")
    refused: str | None = said.get("refused")
    return refused


class CallResponse:
    """Source of the answers that a sink gets; see ``mesh.connect.contract.Server``."""

    def __init__(self) -> None:
        self.endpoint = ""
        self._subscriptions: list[Subscription] = []

    async def open(
        self,
        context: Context,
        accept: Callable[[bytes, Mapping[str, str], str | None], Awaitable[int]],
    ) -> None:
        """Subscribe to the answers."""

        async def received(message: Msg) -> None:
            question: JsonObject = orjson.loads(message.data)
            try:
                if "flaw" in question:
                    raise RefusedPayloadError(question["flaw"])
                payload = base64.b64decode(question["payload"])
                await accept(payload, question["properties"], question["key"])
                answer: JsonObject = {}
            except RefusedPayloadError as error:
                answer = {"refused": str(error)}
            except UnavailableError as error:
                answer = {"away": str(error)}
            await message.respond(orjson.dumps(answer))

        for status in self._statuses(context):
            subject = names.call_subject(context.app, context.options["sink.id"], status)
            self._subscriptions.append(
                await context.client.subscribe(subject, queue=context.stream, cb=received)
            )

    def _statuses(self, context: Context) -> Iterable[int]:
        """Statuses of the answers that it takes."""
        return (NO_STATUS,)

    async def close(self) -> None:
        """Take no more answers."""
        subscriptions, self._subscriptions = self._subscriptions, []
        for one in subscriptions:
            with contextlib.suppress(NatsError, OSError):
                await one.unsubscribe()


def _text(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
