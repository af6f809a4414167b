"""Hostile clients of HTTP sources: silent connections, and requests of any form, amid good ones."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import httpx
import pytest

from mesh.connect.contract import NodeAccess
from tests.support.connectors import staged

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats

APP: Final = """@App:name('Doors')
@source(type='http', receiver.url='http://127.0.0.1:0/in', max.body='10000', @map(type='json'))
define stream S (k string, n int);
from S select k insert into T;
"""
GOOD: Final = b'{"event":{"k":"a","n":1}}'
#: Longer than any test: what ends, ends for another reason.
LONG_S: Final = 600.0
#: After it the client leaves.
UNANSWERED_S: Final = 2.0
LISTEN: Final = ("127.0.0.1:0-65535",)


def head(*lines: bytes, method: bytes = b"POST") -> bytes:
    return b"\r\n".join(
        [method + b" /in HTTP/1.1", b"Host: x", b"Connection: close", *lines, b"", b""]
    )


def post(body: bytes, *lines: bytes) -> bytes:
    return head(b"Content-Length: %d" % len(body), *lines) + body


DEEP: Final = b'{"event":' + b"[" * 4000 + b"]" * 4000 + b"}"
HOSTILE: Final = (
    b"\x00" * 100,
    b"\x16\x03\x01\x02\x00\x01\x00",
    head(method=b"PO ST"),
    head(b"Content-Length: -1"),
    head(b"Content-Length: 9999999999999"),
    head(b"Content-Length: 5", b"Content-Length: 6") + b"12345",
    head(b"Transfer-Encoding: chunked") + b"ffffffffffffffff\r\n",
    head(b"Transfer-Encoding: chunked", b"Content-Length: 3") + b"0\r\n\r\n",
    head(b"X: " + b"y" * 100_000),
    head(*(b"H%d: v" % n for n in range(5000))),
    post(b""),
    post(b"\xff\xfe" * 10),
    post(DEEP),
    post(b'{"event":{"k":"\\ud800","n":1}}'),
    post(b'{"event":{"k":"a","n":' + b"9" * 5000 + b"}}"),
    post(b'{"event":{"k":"a","n":1e999}}'),
    post(b'[{"event":[]},{"event":5},5,null]'),
    post(gzip.compress(b" " * 10_000_000), b"Content-Encoding: gzip"),
    post(gzip.compress(GOOD)[:-9], b"Content-Encoding: gzip"),
    post(GOOD, b"Content-Encoding: gzip, gzip"),
    post(GOOD, b"Idempotency-Key: \xff\xfe\xf0"),
    post(GOOD, b"Idempotency-Key: " + b"k" * 30_000),
    post(GOOD, b"traceparent: 00-\xff-\x00-zz"),
    post(GOOD, b"Authorization: Basic \xff\xff"),
    post(GOOD, b"Nats-Rollup: all", b"Nats-Msg-Id: 1", b"Nats-Expected-Stream: other"),
    post(b"x" * 20_000),
    post(b"x" * 100)[:-50],
)


async def sent(url: str, data: bytes, source: str = "127.0.0.1") -> bytes:
    """The answer to octets, if one comes: a request that is not whole has none."""
    at = urlsplit(url)
    assert at.hostname is not None
    reader, writer = await asyncio.open_connection(at.hostname, at.port, local_addr=(source, 0))
    try:
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(UNANSWERED_S):
                writer.write(data)
                return await reader.read()
        return b""
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@pytest.mark.slow
async def test_requests_of_any_form_fail_alone(nats_server: NatsServer) -> None:
    access = NodeAccess(listen=LISTEN, head_timeout_s=LONG_S)
    async with staged(nats_server, APP, access) as stage, httpx.AsyncClient() as client:
        instance = stage.start("receiver-S")
        url = (await stage.until_running(instance)).connectors[0].endpoint
        accepted = 0
        for one in HOSTILE:
            found, good = await asyncio.gather(
                sent(url, one), client.post(url, content=GOOD), return_exceptions=True
            )
            assert not isinstance(good, BaseException)
            assert good.status_code == 200, one[:100]
            assert isinstance(found, bytes)
            # Refused, or taken where the form is good; never an error of the server's own.
            assert not found.startswith(b"HTTP/1.1 5"), (one[:200], found)
            accepted += found.startswith(b"HTTP/1.1 200")
        assert 0 < accepted < len(HOSTILE)
        assert len(await stage.events("S")) >= len(HOSTILE)
        assert stage.reports[-1].restarts == 0


async def test_silent_connections_leave_room_for_others(nats_server: NatsServer) -> None:
    access = NodeAccess(listen=LISTEN, connections_max=4, head_timeout_s=LONG_S)
    async with staged(nats_server, APP, access) as stage, httpx.AsyncClient() as client:
        instance = stage.start("receiver-S")
        url = (await stage.until_running(instance)).connectors[0].endpoint
        at = urlsplit(url)
        silent: list[Any] = [
            await asyncio.open_connection(at.hostname, at.port, local_addr=("127.0.0.2", 0))
            for _ in range(10)
        ]
        async with asyncio.timeout(60):
            for reader, _ in silent[2:]:
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
            assert (await client.post(url, content=GOOD)).status_code == 200
        for _, writer in silent:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def test_a_request_whose_head_does_not_end_is_closed(nats_server: NatsServer) -> None:
    access = NodeAccess(listen=LISTEN, head_timeout_s=0.05)
    async with staged(nats_server, APP, access) as stage:
        instance = stage.start("receiver-S")
        at = urlsplit((await stage.until_running(instance)).connectors[0].endpoint)
        reader, writer = await asyncio.open_connection(at.hostname, at.port)
        writer.write(b"POST /in HT")
        async with asyncio.timeout(60):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_a_request_whose_body_trickles_is_closed_and_stores_nothing(
    nats_server: NatsServer,
) -> None:
    access = NodeAccess(listen=LISTEN, head_timeout_s=LONG_S, body_timeout_s=1.0)
    async with staged(nats_server, APP, access) as stage, httpx.AsyncClient() as client:
        instance = stage.start("receiver-S")
        url = (await stage.until_running(instance)).connectors[0].endpoint
        at = urlsplit(url)
        reader, writer = await asyncio.open_connection(at.hostname, at.port)
        writer.write(head(b"Content-Length: 5000", b"Content-Type: application/json"))
        async with asyncio.timeout(60):
            with contextlib.suppress(ConnectionError):
                while not reader.at_eof() and not reader.exception():
                    writer.write(b" ")
                    await writer.drain()
                    await asyncio.sleep(0)
                assert await reader.read() == b""
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        assert (await client.post(url, content=GOOD)).status_code == 200
        assert len(await stage.events("S")) == 1
