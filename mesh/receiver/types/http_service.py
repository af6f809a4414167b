"""Source ``http-service`` and sink ``http-service-response``: a request waits for an event.

A request has an id, the transport property ``messageId``; see ``mesh.receiver.types.answers``.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

from mesh.connect.spec import Kind, value_of
from mesh.receiver.http_server import Response
from mesh.receiver.outcomes import outcomes_of
from mesh.receiver.types.answers import WaitingRequests, send_answer
from mesh.receiver.types.http_source import HttpSource, said

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from mesh.connect.contract import Context, Record
    from mesh.model.values import JsonMapping
    from mesh.receiver.http_server import Request

    Accept = Callable[[bytes, Mapping[str, str], str | None], Awaitable[int]]

_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")


class HttpServiceSource(HttpSource):
    """See ``mesh.connect.contract.Server``."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting = WaitingRequests()

    async def open(self, context: Context, accept: Accept) -> None:
        """Subscribe to answers, and accept requests."""
        self._timeout_s = int(context.options["connection.timeout"]) / 1000
        await self._waiting.open(context.client)
        await super().open(context, accept)

    async def close(self) -> None:
        """Accept nothing more; requests that wait are not answered."""
        await self._waiting.close()
        await super().close()

    async def _answer(self, request: Request, accept: Accept, limit: int) -> Response:
        with self._waiting.request() as (request_id, waiting):

            async def with_id(body: bytes, properties: Mapping[str, str], key: str | None) -> int:
                # A repeated request would wait for the answer to the first one: no key.
                return await accept(body, {**properties, "messageid": request_id}, None)

            first = await super()._answer(request, with_id, limit)
            if first.status != 200:
                return first
            try:
                async with asyncio.timeout(self._timeout_s):
                    answer = await waiting
            except TimeoutError:
                return said(504, {"reason": "no answer in time"})
            headers = tuple((n.lower().encode(), v.encode()) for n, v in answer.headers)
            return Response(200, answer.payload, headers)


class HttpServiceResponse:
    """See ``mesh.connect.contract.Sink``."""

    state: JsonMapping | None = None

    async def open(self, context: Context, state: JsonMapping | None) -> None:
        """Keep the host's connection."""
        self._client, self._options = context.client, context.options
        self._type = context.content_type

    async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
        """Answer the requests of the records."""
        results = await asyncio.gather(*map(self._send, records), return_exceptions=True)
        return outcomes_of(results)

    async def _send(self, record: Record) -> str | None:
        options = {**self._options, **record.options}
        try:
            pairs = options.get("headers") or []
            pairs = self._headers(value_of(Kind.PAIRS, pairs) if isinstance(pairs, str) else pairs)
        except ValueError as error:
            return f"headers: {error}"
        return await send_answer(self._client, str(options["message.id"]), record.payload, pairs)

    def _headers(self, pairs: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
        """The headers of an answer; ValueError for some that none may have."""
        if any(not _HEADER.match(n) or set("\r\n\0") & set(v) for n, v in pairs):
            raise ValueError("one has a character that HTTP refuses")
        named = [name.lower() for name, _ in pairs]
        return [*pairs, *([] if "content-type" in named else [("content-type", self._type)])]

    async def close(self) -> None:
        """The connection is the host's."""
