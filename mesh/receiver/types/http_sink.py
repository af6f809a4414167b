"""Sink ``http``: a request for each payload, in order; ``Idempotency-Key`` is the record's key.

Sink ``http-call`` and source ``http-call-response``: answers to requests become events.

The source takes the answers of some statuses; see ``mesh.receiver.types.calls``.

OAuth 2 login of HTTP sinks: a token, which is fetched once and again after a 401.

The options decide on the grant, as in the reference engine: ``oauth.username`` is ``password``,
``refresh.token`` is ``refresh_token``, neither is ``client_credentials``.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import httpx
import orjson
from nats.errors import NoRespondersError

from mesh.connect.access import check_egress, check_url, path_of
from mesh.connect.contract import Options, UnavailableError
from mesh.connect.spec import Kind, value_of
from mesh.errors import MeshError
from mesh.files.whole_files import replacing
from mesh.http.web_answers import ANSWER_MAX, WebAnswer, ask
from mesh.model import names
from mesh.receiver.outcomes import is_outage, reason_of, sent
from mesh.receiver.tls import client_context
from mesh.receiver.types.calls import CallResponse, hand_over
from mesh.telemetry import traces

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mesh.connect.contract import Context, NodeAccess, Record
    from mesh.model.values import JsonMapping


#: Statuses after which the same request may succeed.
_AGAIN: Final = (408, 425, 429)
_NO_REQUEST: Final = (
    httpx.InvalidURL,
    httpx.UnsupportedProtocol,
    httpx.LocalProtocolError,
    ValueError,
)
_LOGIN: Final = re.compile(r"//[^/@]*@")
_RETRY_AFTER_MAX_S: Final = 300.0

_STATUSES: Final = range(100, 600)
#: Bytes of a file that an answer is written to.
_FILE_MAX: Final = 64 << 20


class HttpSink:
    """See ``mesh.connect.contract.Sink``."""

    state: JsonMapping | None = None

    def __init__(self) -> None:
        self._client: httpx.AsyncClient | None = None

    async def open(self, context: Context, state: JsonMapping | None) -> None:
        """Prepare a client; the first request connects."""
        options = self._options = context.options
        login = None
        if options.get("basic.auth.username") and options.get("basic.auth.enabled") is not False:
            login = (options["basic.auth.username"], options.get("basic.auth.password") or "")
        self._access = context.access
        url = str(options["publisher.url"])
        if "{{" not in url:
            self._check(url)
        verify = client_context(options) or True
        if options.get("ssl.verification.disabled"):
            verify = client_context(options) or ssl.create_default_context()
            verify.check_hostname = False
            verify.verify_mode = ssl.CERT_NONE
        elif options.get("hostname.verification.enabled") is False:
            verify = client_context(options) or ssl.create_default_context()
            verify.check_hostname = False
        self._oauth = None if login else login_of(options, self._access)
        self._at_once = max(1, int(options.get("max.concurrent") or 1))
        self._type = context.content_type
        self._client = httpx.AsyncClient(
            auth=login,
            verify=verify,
            proxy=self._proxy(),
            timeout=int(options.get("socket.idle.timeout") or 6000) / 1000,
            follow_redirects=False,
            # The environment of the worker is not the app's.
            trust_env=False,
            limits=httpx.Limits(max_connections=self._at_once),
        )

    async def check(self, context: Context) -> None:
        """Ask for the options of the address, unless it depends on the event."""
        await self.open(context, None)
        try:
            if "{{" not in str(context.options["publisher.url"]) and self._client is not None:
                await ask(self._client, "OPTIONS", context.options["publisher.url"])
        except (httpx.HTTPError, OSError) as error:
            raise UnavailableError(f"{error}" or type(error).__name__) from error
        finally:
            await self.close()

    async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
        """Send the records, ``max.concurrent`` at a time."""
        return await sent(self._send, records, self._at_once)

    async def _send(self, record: Record) -> str | None:
        assert self._client is not None
        options = {**self._options, **record.options}
        try:
            if "publisher.url" in record.options:
                self._check(options["publisher.url"])
            pairs = options.get("headers") or []
            if isinstance(pairs, str):
                pairs = value_of(Kind.PAIRS, pairs)
            answer = await self._request(self._client, options, record, pairs)
        except MeshError as error:
            return str(error)
        except _NO_REQUEST as error:
            # An event's values have made it so, and another attempt would be the same.
            return f"the request can't be made: {_LOGIN.sub('//', str(error))}"
        except (httpx.HTTPError, OSError) as error:
            if "publisher.url" in record.options and _has_no_host(error):
                return f"{options['publisher.url']}: {error}"
            raise UnavailableError(reason_of(error)) from error
        return await self._settled(record, answer)

    def _answer_max(self) -> int:
        """Bytes of an answer that are read; of this sink only its reason is used."""
        return ANSWER_MAX

    async def _request(
        self,
        client: httpx.AsyncClient,
        options: Options,
        record: Record,
        pairs: Sequence[tuple[str, str]],
    ) -> WebAnswer:
        """The answer; a token that is refused is replaced once."""
        headers = [
            ("Content-Type", self._type), *pairs, ("Idempotency-Key", record.key),
            *traces.outgoing(pairs),
        ]  # fmt: skip
        where = client, options["method"], options["publisher.url"], self._answer_max()
        if self._oauth is None:
            return await ask(*where, content=record.payload, headers=headers)
        stale = ""
        while True:
            token = await self._oauth.token(client, stale)
            login = ("Authorization", f"Bearer {token}")
            answer = await ask(*where, content=record.payload, headers=[*headers, login])
            if answer.response.status_code != httpx.codes.UNAUTHORIZED or stale:
                return answer
            stale = token

    async def _settled(self, record: Record, answer: WebAnswer) -> str | None:
        """The outcome of a record by the answer."""
        response = answer.response
        if response.is_success:
            return None
        if response.status_code in _AGAIN or response.is_server_error:
            after = _seconds(response.headers.get("retry-after", ""))
            raise UnavailableError(f"answered {response.status_code}", retry_after_s=after)
        return f"answered {response.status_code}: {answer.text(200)}"

    def _proxy(self) -> httpx.Proxy | None:
        options = self._options
        host, port = options.get("proxy.host"), int(options.get("proxy.port") or 8080)
        if not host:
            return None
        check_egress(self._access, host, port)
        login = None
        if options.get("proxy.username"):
            login = (options["proxy.username"], options.get("proxy.password") or "")
        return httpx.Proxy(f"http://{host}:{port}", auth=login)

    def _check(self, url: str) -> None:
        check_url(self._access, url, 443 if urlsplit(url).scheme == "https" else 80)

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


def _has_no_host(error: BaseException | None) -> bool:
    """Whether a request failed since its host has no address."""
    while error is not None:
        if isinstance(error, socket.gaierror):
            return error.errno in (socket.EAI_NONAME, socket.EAI_FAIL)
        error = error.__cause__ or error.__context__
    return False


def _seconds(text: str) -> float | None:
    return min(float(text), _RETRY_AFTER_MAX_S) if text.isdecimal() else None


class HttpCall(HttpSink):
    """See ``mesh.connect.contract.Sink``."""

    takes_events = True

    async def open(self, context: Context, state: JsonMapping | None) -> None:
        """Prepare a client."""
        await super().open(context, state)
        self._mesh, self._app = context.client, context.app

    def _answer_max(self) -> int:
        """Bytes of an answer that a file, or else a message of NATS, may have."""
        is_file = self._options.get("downloading.enabled")
        return _FILE_MAX if is_file else int(self._mesh.max_payload)

    async def _settled(self, record: Record, answer: WebAnswer) -> str | None:
        """Hand an answer to the source of its status; without one, as the sink ``http`` does."""
        response = answer.response
        payload, flaw = answer.content, answer.flaw
        if self._options.get("downloading.enabled") and response.is_success and not flaw:
            try:
                payload = await self._downloaded(record, payload)
            except MeshError as error:
                return str(error)
            except (OSError, ValueError) as error:
                if is_outage(error):
                    raise UnavailableError(reason_of(error)) from error
                return reason_of(error)
        subject = names.call_subject(self._app, self._options["sink.id"], response.status_code)
        try:
            refused = await hand_over(
                self._mesh, subject, record, payload, response.headers.items(), flaw
            )
        except NoRespondersError:
            return await super()._settled(record, answer)
        return f"the answer {response.status_code} can't be read: {refused}" if refused else None

    async def _downloaded(self, record: Record, body: bytes) -> bytes:
        """Write a body to the file of the options; its path.  A repeat writes the same file."""
        target = record.options.get("download.path") or self._options["download.path"]
        path = path_of(self._access, str(target))
        await asyncio.to_thread(_write_whole, Path(path), body)
        return path.encode()


class HttpCallResponse(CallResponse):
    """See ``mesh.connect.contract.Server``."""

    def _statuses(self, context: Context) -> Iterable[int]:
        takes = re.compile(str(context.options["http.status.code"]))
        return [status for status in _STATUSES if takes.fullmatch(str(status))]


def _write_whole(path: Path, body: bytes) -> None:
    """Write a file that others see once it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, path.with_name(f".{path.name}.part")) as file:
        file.write(body)


_KEYS: Final = ("consumer.key", "body.consumer.key")


class OAuth:
    """The tokens of one sink; nothing of them is in an error's text."""

    def __init__(self, options: Options, access: NodeAccess) -> None:
        self._url = str(options["token.url"])
        check_url(access, self._url, 443 if self._url.startswith("https:") else 80)
        self._login = None
        if options.get("consumer.key"):
            self._login = (str(options["consumer.key"]), str(options.get("consumer.secret") or ""))
        self._form = {"grant_type": "client_credentials"}
        if options.get("oauth.username"):
            self._form = {
                "grant_type": "password",
                "username": str(options["oauth.username"]),
                "password": str(options.get("oauth.password") or ""),
            }
        elif options.get("refresh.token"):
            self._form = {
                "grant_type": "refresh_token",
                "refresh_token": str(options["refresh.token"]),
            }
        if options.get("oauth.scope"):
            self._form["scope"] = str(options["oauth.scope"])
        if options.get("body.consumer.key"):
            self._form["client_id"] = str(options["body.consumer.key"])
            self._form["client_secret"] = str(options.get("body.consumer.secret") or "")
        self._token = ""
        self._fetching = asyncio.Lock()

    async def token(self, client: httpx.AsyncClient, stale: str = "") -> str:
        """The token; another one than ``stale``, which was refused.

        Requests that wait for a token at the same time wait for one request.

        Raises:
            UnavailableError: there is none now.
        """
        async with self._fetching:
            if not self._token or self._token == stale:
                self._token = await self._fetched(client)
            return self._token

    async def _fetched(self, client: httpx.AsyncClient) -> str:
        try:
            auth = httpx.BasicAuth(*self._login) if self._login else httpx.USE_CLIENT_DEFAULT
            answer = await ask(client, "POST", self._url, data=self._form, auth=auth)
        except (httpx.HTTPError, OSError) as error:
            said = str(error) or type(error).__name__
            raise UnavailableError(f"token.url gives no token: {said}") from error
        try:
            is_token = answer.response.is_success
            document = orjson.loads(answer.content) if is_token else {}
            token = document["access_token"]
        except (ValueError, KeyError, TypeError):
            raise UnavailableError(
                f"token.url gives no token: it answered {answer.response.status_code}"
            ) from None
        if document.get("refresh_token") and self._form["grant_type"] == "refresh_token":
            # A server that replaces refresh tokens takes each of them once.
            self._form["refresh_token"] = str(document["refresh_token"])
        return str(token)


def login_of(options: Options, access: NodeAccess) -> OAuth | None:
    """The login of the options; None without one.

    Raises:
        MeshError: MESH-C131 for a login without an address or a client.
    """
    names = ("token.url", "oauth.username", "refresh.token", *_KEYS)
    if not any(options.get(name) for name in names):
        return None
    if not options.get("token.url") or not any(options.get(name) for name in _KEYS):
        raise MeshError(
            "MESH-C131",
            "a login with OAuth needs token.url, and consumer.key or body.consumer.key",
            hint="Give them in the reference of the sink: ref='name'.",
        )
    return OAuth(options, access)
