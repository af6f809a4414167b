"""Source ``http-service`` and sink ``http-service-response``: a request waits for an event.

A request has an id, the transport property ``messageId``.  The sink of any worker sends its payload
to the subject of that id, at which the source's host waits: an answer needs no common process.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import secrets
from typing import TYPE_CHECKING, Any, Final

import orjson
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from mesh.connect.spec import Kind, value_of
from mesh.model import names
from mesh.receiver.http_server import Response
from mesh.receiver.outcomes import outcomes_of
from mesh.receiver.types.http_source import HttpSource, said

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from mesh.connect.contract import Context, Record
    from mesh.receiver.http_server import Request

    Accept = Callable[[bytes, Mapping[str, str], str | None], Awaitable[int]]

#: An id is a part of a subject.
_ID: Final = re.compile(r"[0-9a-f]{16}\.[0-9]{1,15}\Z")
_ANSWER_S: Final = 5.0
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")


class HttpServiceSource(HttpSource):
    """See ``mesh.connect.contract.Server``."""

    def __init__(self) -> None:
        super().__init__()
        self._token = secrets.token_hex(8)
        self._number = 0
        self._waiting: dict[str, asyncio.Future[Response]] = {}
        self._subscription: Subscription | None = None

    async def open(self, context: Context, accept: Accept) -> None:
        """Subscribe to answers, and accept requests."""
        self._timeout_s = int(context.options["connection.timeout"]) / 1000
        subject = names.answer_subject(f"{self._token}.*")
        self._subscription = await context.client.subscribe(subject, cb=self._answered)
        await super().open(context, accept)

    async def close(self) -> None:
        """Accept nothing more; requests that wait are not answered."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            with contextlib.suppress(NatsError, OSError):
                await subscription.unsubscribe()
        await super().close()

    async def _answered(self, message: Msg) -> None:
        waiting = self._waiting.get(".".join(message.subject.split(".")[-2:]))
        if waiting is None or waiting.done():
            await message.respond(b"late")
            return
        given: dict[str, Any] = orjson.loads(message.data)
        headers = tuple((n.lower().encode(), v.encode()) for n, v in given["headers"])
        waiting.set_result(Response(200, base64.b64decode(given["payload"]), headers))
        await message.respond(b"")

    async def _answer(self, request: Request, accept: Accept, limit: int) -> Response:
        self._number += 1
        own = f"{self._token}.{self._number}"
        waiting: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting[own] = waiting

        async def with_id(body: bytes, properties: Mapping[str, str], key: str | None) -> int:
            # A repeated request would wait for the answer to the first one: no key.
            return await accept(body, {**properties, "messageid": own}, None)

        try:
            first = await super()._answer(request, with_id, limit)
            if first.status != 200:
                return first
            async with asyncio.timeout(self._timeout_s):
                return await waiting
        except TimeoutError:
            return said(504, {"reason": "no answer in time"})
        finally:
            del self._waiting[own]


class HttpServiceResponse:
    """See ``mesh.connect.contract.Sink``."""

    state: Mapping[str, Any] | None = None

    async def open(self, context: Context, state: Mapping[str, Any] | None) -> None:
        """Keep the host's connection."""
        self._client, self._options = context.client, context.options
        self._type = context.content_type

    async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
        """Answer the requests of the records."""
        found = await asyncio.gather(*map(self._send, records), return_exceptions=True)
        return outcomes_of(found)

    async def _send(self, record: Record) -> str | None:
        options = {**self._options, **record.options}
        own = str(options["message.id"])
        if not _ID.match(own):
            return f'"{own[:80]}" is no id of a request'
        try:
            pairs = options.get("headers") or []
            pairs = value_of(Kind.PAIRS, pairs) if isinstance(pairs, str) else pairs
        except ValueError as error:
            return f"headers: {error}"
        if any(not _HEADER.match(n) or set("\r\n\0") & set(v) for n, v in pairs):
            return "a header has a character that HTTP refuses"
        named = [name.lower() for name, _ in pairs]
        pairs = [*pairs, *([] if "content-type" in named else [("content-type", self._type)])]
        payload = base64.b64encode(record.payload).decode()
        answer = orjson.dumps({"headers": pairs, "payload": payload})
        if len(answer) > self._client.max_payload:
            return f"an answer of {len(record.payload)} bytes is too large for NATS"
        try:
            reply = await self._client.request(names.answer_subject(own), answer, timeout=_ANSWER_S)
        except NoRespondersError:
            return "no request waits for the answer"
        return "no request waits for the answer" if reply.data else None

    async def close(self) -> None:
        """The connection is the host's."""
