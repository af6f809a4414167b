"""Answers to requests of connectors: none takes more memory than its limit."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import tracemalloc
import zlib
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import httpx
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.api import oidc
from mesh.api.oidc import Provider
from mesh.api.sign_in import SignIn
from mesh.clock import SystemClock
from mesh.connect.contract import Context, NodeAccess, Record, UnavailableError
from mesh.errors import MeshError
from mesh.http.web_answers import ask
from mesh.manager.history import query_range
from mesh.receiver import opened
from mesh.receiver.http_server import HttpServers, Request, Response
from mesh.receiver.types.http_sink import HttpCall, HttpSink
from mesh.receiver.types.prometheus import PrometheusSink
from mesh.settings import OidcSettings
from mesh.testing.connectors import staged
from tests.support.examples import examples
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from mesh.jetstream.server import NatsServer

LIMIT: Final = 1000
#: Of 64 MB.
BOMB: Final = gzip.compress(bytes(64 << 20), 1)
PEAK_MAX: Final = 32 << 20
#: Of a token that names a key.
TOKEN_HEAD: Final = base64.urlsafe_b64encode(b'{"kid":"k"}').decode().rstrip("=")
PACKED: Final = gzip.compress(b"x" * LIMIT)


async def asked(content: bytes, encoding: str = "", **more: Any) -> tuple[bytes, str]:
    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["accept-encoding"])
        headers = {"content-encoding": encoding} if encoding else {}
        return httpx.Response(200, headers=headers, stream=httpx.ByteStream(content))

    seen: list[str] = []
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        found = await ask(client, "GET", "http://h/", LIMIT, **more)
    assert seen == [dict(more.get("headers", ())).get("accept-encoding", "identity")]
    return found.content, found.flaw


async def test_an_answer_is_read_and_unpacked_up_to_its_limit() -> None:
    assert await asked(b"x" * LIMIT) == (b"x" * LIMIT, "")
    assert await asked(b"x" * (LIMIT + 1)) == (b"x" * LIMIT, "it has more than 1000 bytes")
    given = [("accept-encoding", "gzip")]
    assert await asked(PACKED, "gzip", headers=given) == (b"x" * LIMIT, "")
    members = b"".join(gzip.compress(b"%d," % n) for n in range(250))
    assert await asked(members + bytes(9), "gzip") == (
        b"".join(b"%d," % n for n in range(250)), "",
    )  # fmt: skip
    assert (await asked(members[:-1], "gzip"))[1] == "it is cut off"
    assert await asked(zlib.compress(b"abc"), "deflate") == (b"abc", "")
    assert await asked(BOMB, "gzip") == (bytes(LIMIT), "it has more than 1000 bytes")
    assert await asked(b"", "gzip") == (b"", "")
    assert (await asked(PACKED[:-9], "gzip"))[1] == "it is cut off"
    assert (await asked(b"no gzip", "gzip"))[1] == 'it does not have its encoding "gzip"'
    assert await asked(BOMB, "br") == (b"", 'it has the encoding "br", which is not read')


@settings(max_examples=examples(60))
@given(
    st.binary(max_size=64), st.integers(1, 100), st.integers(0, 200),
    st.sampled_from(["", "identity", "gzip", "x-gzip", "deflate", "br", "gzip, gzip", "x"]),
    st.booleans(),
)  # fmt: skip
def test_no_answer_is_larger_than_its_limit_or_raises(
    content: bytes, times: int, cut: int, encoding: str, is_packed: bool
) -> None:
    whole = content * times
    sent = gzip.compress(whole) if is_packed else whole
    sent = sent[: len(sent) - cut] if cut < 100 else sent + content
    found, flaw = asyncio.run(asked(sent, encoding))
    assert len(found) <= LIMIT
    if encoding in ("", "identity"):
        assert (found, flaw != "") == (sent[:LIMIT], len(sent) > LIMIT)
    if flaw == "" and is_packed and encoding == "gzip":
        assert whole.startswith(found)


def test_connectors_and_managers_ask_by_that_function_only() -> None:
    # The command and its tests are processes of one person; a worker asks nobody but NATS.
    folders = ("api", "dashboard", "jetstream", "manager", "receiver", "worker")
    calls = (".get(url", ".post(url", "client.get(", "client.post(", "client.request(*",
             "client.stream(", "httpx.get(", "httpx.post(", "urlopen(")  # fmt: skip
    files = [path for folder in folders for path in (ROOT / "mesh" / folder).rglob("*.py")]
    assert not [(path.name, call) for path in files for call in calls if call in path.read_text()]


@asynccontextmanager
async def bombs(path: str = "/") -> AsyncIterator[str]:
    """The URL of a server whose answers are bombs."""

    async def answer(_: Request) -> Response:
        return Response(200, BOMB, ((b"content-encoding", b"gzip"),))

    servers = HttpServers()
    port = await servers.open("127.0.0.1", 0, path, answer)
    try:
        yield f"http://127.0.0.1:{port}{path}"
    finally:
        await servers.close("127.0.0.1", port, path)


@pytest.fixture
def bounded() -> Iterator[None]:
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < PEAK_MAX


def context(url: str, **more: Any) -> Context:
    mesh: Any = SimpleNamespace(max_payload=1 << 20)
    options = {"publisher.url": url, "method": "POST", "sink.id": "c", **more}
    return Context("a", "T", options, NodeAccess(), client=mesh)


@pytest.mark.usefixtures("bounded")
async def test_no_answer_of_a_server_fills_the_memory_of_all_connectors() -> None:
    records = [Record("k", b'{"event":{"v":1}}')]
    async with bombs() as url:
        # The events are there, whatever the answer has.
        sink = HttpSink()
        await sink.open(context(url), None)
        assert await sink.write(records) == [None]
        login = {"token.url": url, "consumer.key": "k"}
        await sink.open(context(url, **login), None)
        with pytest.raises(UnavailableError, match=r"token\.url gives no token"):
            await sink.write(records)
        with pytest.raises(UnavailableError, match="the schema registry gave no schema"):
            await opened._schema(url)
        gateway = {
            "metric.type": "counter", "value.attribute": "v", "publish.mode": "pushgateway",
            "push.url": url, "push.operation": "push", "job": "j",
        }  # fmt: skip
        metric = PrometheusSink()
        await metric.open(context(url, **gateway), None)
        with pytest.raises(UnavailableError, match="404"):
            await metric.write([Record("k", b'{"v":1}')])
        call, told = HttpCall(), context(url)

        async def request(subject: str, data: bytes, **_: float) -> Any:
            said.append(orjson.loads(data))
            return SimpleNamespace(data=b'{"refused":"so it is"}')

        said: list[Any] = []
        told.client.request = request
        await call.open(told, None)
        assert await call.write(records) == ["the answer 200 can't be read: so it is"]
        assert said == [{"flaw": "it has more than 1048576 bytes"}]
        for one in (sink, metric, call):
            await one.close()


@pytest.mark.slow
@pytest.mark.usefixtures("bounded")
async def test_no_answer_of_a_provider_or_of_prometheus_fills_the_memory_of_a_manager() -> None:
    discovery, queries = "/.well-known/openid-configuration", "/api/v1/query_range"
    async with bombs(discovery) as described, bombs() as url, bombs(queries) as asked_:
        issuer = described.removesuffix(discovery)
        for keys in ("", url):
            options = OidcSettings(issuer=issuer, audience="m", jwks_url=keys)
            provider = Provider(options, SystemClock())
            with pytest.raises(MeshError, match="can't be read") as refused:
                await provider.claims(f"{TOKEN_HEAD}.e30.e30", "m")
            assert "it has more than 1048576 bytes" in str(refused.value.detail)
        sign_in = SignIn(provider, "c", "s", "openid")
        with pytest.raises(MeshError) as refused:
            await sign_in._call("POST", url)
        assert "it has more than 1048576 bytes" in str(refused.value.detail)
        with pytest.raises(MeshError, match="MESH-A502") as refused:
            await query_range(asked_.removesuffix(queries), "app", "Shop", 600, 780, 60)
        assert "it has more than 1048576 bytes" in str(refused.value.detail)


async def test_an_answer_of_a_provider_that_never_ends_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(oidc, "_TIMEOUT_S", 0.3)

    ended = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        left = asyncio.create_task(reader.read())
        with contextlib.suppress(ConnectionError):
            while not left.done():
                writer.write(b" ")
                await asyncio.wait([left], timeout=0.05)
        writer.close()
        ended.set()

    async with await asyncio.start_server(drip, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        settings_ = OidcSettings(issuer=f"http://127.0.0.1:{port}", audience="m")
        with pytest.raises(MeshError) as refused:
            await Provider(settings_, SystemClock()).metadata()
        await ended.wait()
    assert refused.value.detail == "TimeoutError: ."


CALL = """@App:name('Large')
@sink(type='http-call', sink.id='c', publisher.url='URL', @map(type='json'))
define stream T (n int);
@source(type='http-call-response', sink.id='c', @map(type='json',
        @attributes(what='$.v', again='$.v')))
define stream S (what string, again string);
from S select what insert into U;
"""


@pytest.mark.nats
async def test_an_answer_that_is_too_large_for_nats_is_recorded_and_asked_for_once(
    nats_server: NatsServer,
) -> None:
    asked: list[int] = []
    # One that is larger than a message, one that is as base64, and one that is as an event.
    sizes = (1, 2 << 20, 900_000, 600_000, 1)
    bodies = [orjson.dumps({"v": "x" * size}) for size in sizes]

    async def answer(request: Request) -> Response:
        n = orjson.loads(await request.body(1000) or b"")["event"]["n"]
        asked.append(n)
        return Response(200, bodies[n])

    servers = HttpServers()
    port = await servers.open("127.0.0.1", 0, "/", answer)
    try:
        text = CALL.replace("URL", f"http://127.0.0.1:{port}/")
        async with staged(nats_server.url, text) as stage:
            await stage.until_running(stage.start("receiver-S"))
            await stage.publish("T", *({"n": n} for n in range(len(bodies))))
            stage.start("sink-T")

            async def all_done() -> bool:
                return len(await stage.events("S")) == 2 and len(await stage.errors()) == 3

            await stage.until("2 answers and 3 refusals", all_done)
            reasons = [entry["reason"] for entry in await stage.errors()]
            assert await stage.events("S") == [{"what": "x", "again": "x"}] * 2
    finally:
        await servers.close("127.0.0.1", port, "/")
    assert asked == [0, 1, 2, 3, 4]
    assert [reason.partition(":")[0] for reason in reasons] == ["the answer 200 can't be read"] * 3
    assert "it has more than" in reasons[0]
    assert "it has 900008 bytes, too many for NATS" in reasons[1]
    assert "the events need" in reasons[2]
