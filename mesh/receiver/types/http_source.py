"""Source ``http``: POST requests; 200 follows the broker's ack.

Source ``http-service`` and sink ``http-service-response``: a request waits for an event.

A request has an id, the transport property ``messageId``; see ``mesh.receiver.types.calls``.
"""

from __future__ import annotations

import asyncio
import base64
import codecs
import hmac
import re
from dataclasses import replace
from email.message import Message
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlsplit

import orjson

from mesh.connect.access import check_listen, words
from mesh.connect.contract import RefusedPayloadError, UnavailableError
from mesh.connect.spec import Kind, value_of
from mesh.errors import MeshError
from mesh.receiver.http_server import SERVERS, Response, allowed, unpacked
from mesh.receiver.outcomes import outcomes_of
from mesh.receiver.tls import server_context
from mesh.receiver.types.calls import WaitingRequests, send_answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from mesh.connect.contract import Context, Record
    from mesh.model.values import JsonMapping
    from mesh.receiver.http_server import Request

    Accept = Callable[[bytes, Mapping[str, str], str | None], Awaitable[int]]


#: Answer to a page that asks before it posts; it may post if its origin is allowed.
_PREFLIGHT: Final = (
    (b"access-control-allow-methods", b"POST"),
    (b"access-control-allow-headers", b"authorization, content-type, idempotency-key"),
    (b"access-control-max-age", b"600"),
)
_JSON: Final = (b"content-type", b"application/json")
#: Most query parameters of a request.
_PARAMETERS_MAX: Final = 100
#: Character sets in which bodies stay as they are.
_UTF8: Final = ("utf-8", "ascii")
#: Python's codecs that are no character sets of texts on the web.
_REFUSED: Final = frozenset(
    {"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7"}
)
#: Types of bodies that are texts.
_TEXT: Final = re.compile(r"text/|application/(?:[\w.-]+\+)?(?:json|xml|x-www-form-urlencoded)\b")
#: The character set that an XML document names; it holds no longer.
_DECLARED: Final = re.compile(r"^(<\?xml\b[^>]*?)\s+encoding\s*=\s*(?:\"[^\"]*\"|'[^']*')")

#: Octets that are not UTF-8, with surrogateescape.
_ODD: Final = re.compile("[\udc80-\udcff]")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")


class HttpSource:
    """See ``mesh.connect.contract.Server``."""

    def __init__(self) -> None:
        self.endpoint = ""
        self._at: tuple[str, int, str] | None = None
        self._login = b""

    async def open(
        self,
        context: Context,
        accept: Callable[[bytes, Mapping[str, str], str | None], Awaitable[int]],
    ) -> None:
        """Bind the address, and answer requests."""
        options = context.options
        url = str(options["receiver.url"]).replace("{app}", context.app)
        url = url.replace("{stream}", context.stream)
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise MeshError(
                "MESH-C133",
                f"receiver.url {url} is not served",
                hint="Write http://host:port/path or https://host:port/path.",
            )
        tls = server_context(options) if parts.scheme == "https" else None
        port = parts.port if parts.port is not None else 8280
        check_listen(context.access, parts.hostname, port)
        if options.get("basic.auth.enabled"):
            login = f"{options['basic.auth.username']}:{options['basic.auth.password']}"
            self._login = base64.b64encode(login.encode())
        path = parts.path or "/"
        limit = int(options.get("max.body") or 1 << 20)
        origins = words(options.get("allow.origin"))

        async def handle(request: Request) -> Response:
            answer = await self._answer(request, accept, limit)
            return replace(answer, headers=(*answer.headers, *allowed(request, origins)))

        bound = await SERVERS.open(parts.hostname, port, path, handle, tls, context.access)
        self._at = parts.hostname, bound, path
        self.endpoint = f"{parts.scheme}://{parts.hostname}:{bound}{path}"

    async def close(self) -> None:
        """Serve the path no more."""
        if self._at is not None:
            at, self._at = self._at, None
            await SERVERS.close(*at)

    async def _answer(
        self,
        request: Request,
        accept: Callable[[bytes, Mapping[str, str], str | None], Awaitable[int]],
        limit: int,
    ) -> Response:
        if request.method == "OPTIONS":
            return Response(204, b"", _PREFLIGHT)
        if request.method != "POST":
            return said(405, {"reason": "events are posted"}, (b"allow", b"POST"))
        credentials = request.headers.get("authorization", "").encode("latin-1", "replace")
        if self._login and not hmac.compare_digest(credentials, b"Basic " + self._login):
            return said(401, {"reason": "login"}, (b"www-authenticate", b'Basic realm="mesh"'))
        codings = [one.lower() for one in words(request.headers.get("content-encoding"))]
        packings = [one for one in codings if one != "identity"]
        if packings not in ([], ["gzip"], ["x-gzip"]):
            return said(415, {"reason": "bodies are plain, or gzip"}, (b"accept-encoding", b"gzip"))
        try:
            body = await request.body(limit)
            if body is not None and packings:
                body = unpacked(body, limit)
            if body is not None:
                body = in_utf8(body, request.headers.get("content-type", ""))
        except ConnectionResetError:
            return Response(400)
        except ValueError as error:
            return said(400, {"index": 0, "reason": str(error)})
        if body is None:
            return said(413, {"reason": f"the body has more than {limit} bytes"})
        properties = dict(request.headers)
        if request.query:
            properties |= parameters_of(request.query)
        try:
            # An empty key names no request: two of them are not the same one.
            count = await accept(body, properties, request.headers.get("idempotency-key") or None)
        except RefusedPayloadError as error:
            status = 413 if error.is_too_large else 400
            return said(status, {"index": error.index, "reason": str(error)})
        except UnavailableError as error:
            after = str(max(1, round(error.retry_after_s or 1.0))).encode()
            status = 429 if error.is_busy else 503
            return said(status, {"reason": str(error)}, (b"retry-after", after))
        return said(200, {"accepted": count})


def parameters_of(query: str) -> dict[str, str]:
    """The parameters of a query as properties; one that is no UTF-8 is none."""
    pairs = parse_qsl(query, keep_blank_values=True, errors="surrogateescape")[:_PARAMETERS_MAX]
    return {f"_{name}".lower(): value for name, value in pairs if not _ODD.search(name + value)}


def said(status: int, values: JsonMapping, *headers: tuple[bytes, bytes]) -> Response:
    """An answer with values as JSON."""
    return Response(status, orjson.dumps(values), (_JSON, *headers))


def in_utf8(body: bytes, content_type: str) -> bytes:
    """A body of text in UTF-8; one of another kind, or without a character set, as it is.

    Raises:
        ValueError: the character set is unknown, or the body is not in it; it names the set.
    """
    if not _TEXT.match(content_type.strip().lower()):
        return body
    message = Message()
    message["content-type"] = content_type
    charset = message.get_content_charset()
    if not charset:
        return body
    try:
        name = codecs.lookup(charset).name
        if name in _UTF8:
            return body
        if name.replace("_", "-") in _REFUSED:
            raise LookupError
        text = body.decode(name)
    except UnicodeDecodeError as error:
        raise ValueError(
            f'the body is not in charset "{charset}", at byte {error.start}'
        ) from error
    except LookupError as error:
        raise ValueError(f'the body has charset "{charset}", which is not read') from error
    return _DECLARED.sub(r"\1", text.removeprefix("\ufeff")).encode()


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
        return await send_answer(self._client, str(options["message.id"]), record, pairs)

    def _headers(self, pairs: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
        """The headers of an answer; ValueError for some that none may have."""
        if any(not _HEADER.match(n) or set("\r\n\0") & set(v) for n, v in pairs):
            raise ValueError("one has a character that HTTP refuses")
        named = [name.lower() for name, _ in pairs]
        return [*pairs, *([] if "content-type" in named else [("content-type", self._type)])]

    async def close(self) -> None:
        """The connection is the host's."""
