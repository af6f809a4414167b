"""Sink ``http``: answers that are tried again, dynamic addresses, and values without a request.

OAuth of HTTP sinks: the grants, one request for a token, a new one after a 401; a proxy.
"""

from __future__ import annotations

import asyncio
import base64
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import pytest

from mesh.connect.contract import Context, NodeAccess, Record, UnavailableError
from mesh.errors import MeshError
from mesh.receiver.http_server import HttpServers, Request, Response
from mesh.receiver.types.http_sink import HttpSink
from tests.support.connectors import staged
from tests.support.sink_apps import APP, SINK, endpoints, events, numbers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from mesh.jetstream.server import NatsServer


pytestmark = pytest.mark.nats


@pytest.mark.parametrize("status", [408, 429, 500, 503])
async def test_these_answers_are_tried_again(nats_server: NatsServer, status: int) -> None:
    async with endpoints() as (end,):
        end.statuses = [200, status, status]
        async with staged(nats_server, APP.format(SINK.format(end.url))) as stage:
            await stage.publish("T", *events(0, 3))
            stage.start("sink-T")
            await stage.until("3 events", lambda: len(end.bodies) == 3)
            assert numbers(end) == [0, 1, 2]
            assert await stage.errors() == []


@pytest.mark.parametrize("enabled", ["", ", basic.auth.enabled='false'"])
async def test_a_dynamic_address_and_a_reference(
    nats_server: NatsServer, caplog: Any, enabled: str
) -> None:
    sink = (
        f"@sink(type='http', ref='vault'{enabled}, "
        "publisher.url='{}?k={{{{k}}}}', "
        "headers=\"'X-N:{{{{n}}}}'\", @map(type='json', @payload('{{{{n}}}}')))"
    )

    async with endpoints() as (end,):
        text = APP.format(sink.format(end.url))
        async with staged(nats_server, text) as stage:
            await stage.publish("T", *events(4, 5))
            stage.start("sink-T")
            await stage.until("1 event", lambda: len(end.bodies) == 1)
            assert end.bodies == [4]
            assert end.heads[0]["x-n"] == "4"
            login = end.heads[0].get("authorization", "none")
            assert login.startswith("none" if enabled else "Basic ")
            assert "hunter2" not in caplog.text
            assert not any("hunter2" in str(r) for r in stage.reports)


async def test_values_that_make_no_request_are_refused_and_hold_nothing_up(
    nats_server: NatsServer,
) -> None:
    sink = (
        "@sink(type='http', publisher.url='{}?k=1', headers=\"'X-K:{{{{k}}}}'\", @map(type='json'))"
    )

    async with (
        endpoints() as (end,),
        staged(nats_server, APP.format(sink.format(end.url))) as stage,
    ):
        values = ("a", "b\r\nX-Other: c", "d\x00", "\u00e9\u65e5")
        await stage.publish("T", *({"k": k, "n": n} for n, k in enumerate(values)))
        stage.start("sink-T")
        await stage.until("the last", lambda: 3 in numbers(end))
        assert numbers(end) == [0, 3]
        assert not any("x-other" in head for head in end.heads)
        assert [head["x-k"] for head in end.heads] == ["a", values[-1]]

        async def entries() -> bool:
            return len(await stage.errors()) == 2

        await stage.until("2 entries", entries)


CLIENT = {"consumer.key": "id", "consumer.secret": "hunter2"}
BASIC = "Basic " + base64.b64encode(b"id:hunter2").decode()


class Scene:
    """A server with tokens; each is good for so many requests."""

    def __init__(self, good_for: int = 100) -> None:
        self.servers, self.port = HttpServers(), 0
        self.good_for, self.left = good_for, 0
        self.forms: list[dict[str, str]] = []
        self.logins: list[str] = []
        self.bodies: list[bytes] = []
        self.is_closed = False

    async def open(self) -> None:
        self.port = await self.servers.open("127.0.0.1", 0, "/token", self._token)
        await self.servers.open("127.0.0.1", self.port, "/in", self._take)

    async def close(self) -> None:
        for path in ("/token", "/in"):
            await self.servers.close("127.0.0.1", self.port, path)

    async def _token(self, request: Request) -> Response:
        body = await request.body(1 << 16)
        if self.is_closed:
            return Response(400, b'{"error":"invalid_client","secret":"hunter2"}')
        self.forms.append(dict(parse_qsl((body or b"").decode())))
        self.logins.append(request.headers.get("authorization", ""))
        self.left = self.good_for
        number = len(self.forms)
        return Response(200, b'{"access_token":"t%d","refresh_token":"r%d"}' % (number, number))

    async def _take(self, request: Request) -> Response:
        body = await request.body(1 << 16)
        is_current = request.headers.get("authorization") == f"Bearer t{len(self.forms)}"
        if not is_current or not self.left:
            return Response(401)
        self.left -= 1
        self.bodies.append(body or b"")
        return Response(200)

    async def sink(self, options: Mapping[str, Any], access: NodeAccess | None = None) -> HttpSink:
        sink = HttpSink()
        base = f"http://127.0.0.1:{self.port}"
        given = {"publisher.url": f"{base}/in", "method": "POST", "token.url": f"{base}/token"}
        await sink.open(Context("a", "T", {**given, **options}, access or NodeAccess()), None)
        return sink


@asynccontextmanager
async def serving(*, good_for: int = 100) -> AsyncIterator[Scene]:
    server = Scene(good_for)
    await server.open()
    try:
        yield server
    finally:
        await server.close()


def records(count: int) -> list[Record]:
    return [Record(f"k{n}", b"%d" % n) for n in range(count)]


@pytest.mark.parametrize(
    ("options", "login", "form"),
    [
        (CLIENT, BASIC, {"grant_type": "client_credentials"}),
        (
            CLIENT | {"oauth.username": "u", "oauth.password": "p", "oauth.scope": "s"},
            BASIC,
            {"grant_type": "password", "username": "u", "password": "p", "scope": "s"},
        ),
        (
            {"body.consumer.key": "id", "body.consumer.secret": "x", "refresh.token": "r0"},
            "",
            {
                "grant_type": "refresh_token",
                "refresh_token": "r0",
                "client_id": "id",
                "client_secret": "x",
            },
        ),
    ],
)
async def test_the_options_decide_on_the_grant(
    options: dict[str, str], login: str, form: dict[str, str]
) -> None:
    async with serving() as server:
        sink = await server.sink(options)
        assert await sink.write(records(3)) == [None] * 3
        assert (server.logins, server.forms) == ([login], [form])
        await sink.close()


async def test_a_token_that_ends_is_replaced_once_for_all_requests() -> None:
    async with serving(good_for=6) as server:
        options = {**CLIENT, "refresh.token": "r0", "max.concurrent": 4}
        sink = await server.sink(options)
        # Two requests of the second four meet the end of a token.
        assert await sink.write(records(8)) == [None] * 8
        assert sorted(server.bodies) == [b"%d" % n for n in range(8)]
        # The server replaces refresh tokens, and each is used once.
        assert [form["refresh_token"] for form in server.forms] == ["r0", "r1"]
        await sink.close()


async def test_an_event_that_a_new_token_does_not_open_is_refused() -> None:
    async with serving(good_for=0) as server:
        sink = await server.sink(CLIENT)
        (outcome,) = await sink.write(records(1))
        assert (outcome or "").startswith("answered 401")
        assert len(server.forms) == 2
        await sink.close()


async def test_without_a_token_the_sink_waits_and_says_no_secret() -> None:
    async with serving() as server:
        server.is_closed = True
        sink = await server.sink(CLIENT)
        with pytest.raises(UnavailableError) as waits:
            await sink.write(records(1))
        assert str(waits.value) == "token.url gives no token: it answered 400"
        server.is_closed = False
        assert await sink.write(records(1)) == [None]
        await sink.close()
        with pytest.raises(MeshError, match=r"needs token\.url"):
            await server.sink({"token.url": None, **CLIENT})
        only = NodeAccess(egress=(f"127.0.0.1:{server.port}",))
        with pytest.raises(MeshError, match="may not connect"):
            await server.sink({**CLIENT, "token.url": "https://login.example.org/t"}, only)


async def test_requests_go_through_a_proxy() -> None:
    asked: list[bytes] = []

    async def proxied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    proxy = await asyncio.start_server(proxied, "127.0.0.1", 0)
    async with proxy:
        port = proxy.sockets[0].getsockname()[1]
        options = {
            "publisher.url": "http://inside.example.org/in",
            "method": "POST",
            "proxy.host": "127.0.0.1",
            "proxy.port": port,
            "proxy.username": "id",
            "proxy.password": "hunter2",
        }
        sink = HttpSink()
        await sink.open(Context("a", "T", options), None)
        assert await sink.write(records(1)) == [None]
        await sink.close()
        head = asked[0].decode().lower()
        assert head.startswith("post http://inside.example.org/in http/1.1")
        assert f"proxy-authorization: {BASIC}".lower() in head
        only = Context("a", "T", options, NodeAccess(egress=("inside.example.org:80",)))
        with pytest.raises(MeshError, match="may not connect"):
            await HttpSink().open(only, None)
