"""Connections that send nothing, or slowly, do not keep others out."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import socket
import ssl
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn

from mesh.api.server import ApiServer, listen
from mesh.clock import SystemClock
from mesh.http import certificate as certificates
from mesh.http import connections
from mesh.processes.signals import end
from mesh.settings import ManagerSettings
from tests.support.api import OPEN, FakeService, served

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

#: Longer than any test: what ends, ends for another reason.
LONG_S = 600.0
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def port_of(api: ApiServer) -> int:
    return int(api.url.rpartition(":")[2])


class Client:
    """A raw connection from a loopback address."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, api: ApiServer, source: str = "127.0.0.1") -> Client:
        made = await asyncio.open_connection("127.0.0.1", port_of(api), local_addr=(source, 0))
        return cls(*made)

    async def health(self) -> bytes:
        """The status line."""
        self.writer.write(HEALTH)
        async with asyncio.timeout(60):
            head = await self.reader.readuntil(b"\r\n\r\n")
            await self.reader.readuntil(b"\n")
        return head.partition(b"\r\n")[0]

    async def until_closed(self) -> None:
        async with asyncio.timeout(60):
            with contextlib.suppress(ConnectionError):
                assert await self.reader.read() == b""
        await self.close()

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


@pytest.mark.parametrize("sent", [b"", b"GET /health HT", HEALTH[:-2], HEALTH + HEALTH[:-2]])
async def test_a_connection_whose_head_does_not_end_is_closed(sent: bytes) -> None:
    # The first request of two has to be in time.
    hasty = replace(OPEN, head_timeout_s=2.0 if sent.startswith(HEALTH) else 0.05)
    async with served(FakeService(), hasty) as api:
        client = await Client.connect(api)
        if sent.startswith(HEALTH):
            assert await client.health() == b"HTTP/1.1 200 OK"
        client.writer.write(sent.removeprefix(HEALTH))
        await client.until_closed()


def test_bytes_that_trickle_do_not_prolong_the_time() -> None:
    async def run() -> int:
        async with served(FakeService(), replace(OPEN, head_timeout_s=0.01)) as api:
            client = await Client.connect(api)
            client.writer.write(b"GET /health HTTP/1.1\r\nX: ")
            # The server shares the loop.  In all, the bytes are too few to fill a head.
            sent = 0
            while sent < 15_000 and not client.reader.at_eof() and not client.reader.exception():
                client.writer.write(b"x")
                sent += 1
                await asyncio.sleep(0)
            await client.until_closed()
            return sent

    assert asyncio.run(run()) < 15_000


SLOW_BODY = b"POST /siddhi-apps HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"Content-Length: 100000\r\n\r\n", b""),
        (b"Content-Length: 100000\r\n\r\n", b"x"),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    ],
)
async def test_a_request_whose_body_does_not_end_is_closed(
    head: bytes, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    hasty = replace(OPEN, head_timeout_s=LONG_S, body_timeout_s=0.05)
    service = FakeService()
    async with served(service, hasty) as api:
        client = await Client.connect(api)
        client.writer.write(SLOW_BODY + head)
        # Bytes that trickle do not prolong the time.
        with contextlib.suppress(ConnectionError):
            while body and not client.reader.at_eof() and not client.reader.exception():
                client.writer.write(body)
                await client.writer.drain()
                await asyncio.sleep(0)
        await client.until_closed()
    assert service.texts == {}
    assert not caplog.records


@contextlib.asynccontextmanager
async def raw(application: Any, bounds: connections.ConnectionLimits) -> AsyncIterator[int]:
    """An application on a free port."""
    config = uvicorn.Config(application, lifespan="off", ws="none", log_config=None)
    config.load()
    server = connections.BoundedServer(config, bounds)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        serving = asyncio.create_task(server.serve([listening]))
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            await serving


async def test_a_body_that_this_side_does_not_read_is_no_fault_of_its_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = asyncio.Event()
    original = connections.TimedProtocol._late

    def noted(protocol: connections.TimedProtocol) -> None:
        original(protocol)
        late.set()

    monkeypatch.setattr(connections.TimedProtocol, "_late", noted)

    async def read(scope: Any, receive: Any, send: Any) -> None:
        await late.wait()
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async with raw(read, connections.ConnectionLimits(8, LONG_S, 0.05)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n")
        writer.write(b"x" * 100_000)
        async with asyncio.timeout(60):
            await late.wait()
            writer.write(b"x" * 100_000)
            assert (await reader.readline()).startswith(b"HTTP/1.1 204")
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("head", [b"", b"Connection: close\r\n"])
@pytest.mark.parametrize("parts", [1, 5])
async def test_a_client_that_does_not_read_its_answer_leaves_its_place(
    head: bytes, parts: int
) -> None:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for left in reversed(range(parts)):
            part = {"type": "http.response.body", "body": b"x" * 20_000_000}
            await send({**part, "more_body": left > 0})

    async with raw(answer, connections.ConnectionLimits(1, LONG_S, 0.05)) as port:
        silent = await asyncio.open_connection("127.0.0.1", port, limit=1000)
        silent[1].write(b"GET / HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n")
        other = await asyncio.open_connection("127.0.0.1", port)
        other[1].write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(60):
            assert (await other[0].readline()).startswith(b"HTTP/1.1 200")
        for _, writer in (silent, other):
            writer.transport.abort()


async def test_an_address_with_its_share_of_connections_leaves_room_for_others() -> None:
    async with served(
        FakeService(), replace(OPEN, connections_max=4, head_timeout_s=LONG_S)
    ) as api:
        silent = [await Client.connect(api, "127.0.0.2") for _ in range(10)]
        for one in silent[2:]:
            await one.until_closed()
        client = await Client.connect(api)
        assert await client.health() == b"HTTP/1.1 200 OK"
        assert await silent[0].health() == b"HTTP/1.1 200 OK"
        for one in (client, *silent):
            await one.close()


async def test_a_client_above_the_number_waits_until_another_leaves() -> None:
    async with served(
        FakeService(), replace(OPEN, connections_max=2, head_timeout_s=LONG_S)
    ) as api:
        silent = [await Client.connect(api, f"127.0.0.{n}") for n in (2, 3)]
        # Both are accepted: they are answered.
        for one in silent:
            assert await one.health() == b"HTTP/1.1 200 OK"
        client = await Client.connect(api)
        answer = asyncio.create_task(client.health())
        assert await silent[1].health() == b"HTTP/1.1 200 OK"
        assert not answer.done()
        await silent[0].close()
        assert await answer == b"HTTP/1.1 200 OK"
        for one in (client, silent[1]):
            await one.close()


@pytest.mark.slow
async def test_a_tls_handshake_that_does_not_begin_is_ended(tmp_path: Path) -> None:
    certificate, key = certificates.self_signed(tmp_path, SystemClock().wall_ms())
    settings = ManagerSettings(
        port=0, anonymous=True, tls_cert=str(certificate), tls_key=str(key),
        head_timeout_s=2.0, connections_max=2,
    )  # fmt: skip
    async with served(FakeService(), settings) as api:
        silent = await Client.connect(api)
        await silent.until_closed()
        context = ssl.create_default_context(cafile=str(certificate))
        made = await asyncio.open_connection("localhost", port_of(api), ssl=context)
        client = Client(*made)
        assert await client.health() == b"HTTP/1.1 200 OK"
        await client.close()


async def test_an_error_of_the_system_does_not_end_the_acceptance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "ACCEPT_REST_S", 0.0)
    real = connections.Acceptor._accept
    failures = [OSError(errno.EMFILE, "Too many open files")] * 3

    async def accept(acceptor: connections.Acceptor) -> Any:
        if failures:
            raise failures.pop()
        return await real(acceptor)

    monkeypatch.setattr(connections.Acceptor, "_accept", accept)
    async with served(FakeService(), OPEN) as api:
        client = await Client.connect(api)
        assert await client.health() == b"HTTP/1.1 200 OK"
        await client.close()
    assert not failures


@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_that_comes_with_the_end_is_not_lost(turns: int) -> None:
    served: list[connections.TimedProtocol] = []

    def make() -> connections.TimedProtocol:
        config = uvicorn.Config(silent_app, lifespan="off")
        config.load()
        bounds = connections.ConnectionLimits(8, LONG_S, LONG_S)
        protocol = connections.TimedProtocol(
            bounds, config=config, server_state=uvicorn.server.ServerState(), app_state={}
        )
        served.append(protocol)
        return protocol

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        acceptor = connections.Acceptor(
            listening, make, None, connections.ConnectionLimits(8, 1.0, 1.0)
        )
        accepting = asyncio.create_task(acceptor.run())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with socket.create_connection(listening.getsockname()):
            for _ in range(turns):
                await asyncio.sleep(0)
            await end([accepting])
            # A socket that nothing refers to fails the test.
            gc.collect()
            for protocol in served:
                protocol.transport.abort()
                await protocol.closed.wait()


async def silent_app(scope: Any, receive: Any, send: Any) -> None:
    """Answer nothing."""


async def test_an_api_that_accepts_no_more_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wrong(_: connections.Acceptor) -> None:
        raise KeyError("what nobody thought of")

    monkeypatch.setattr(connections.Acceptor, "run", wrong)
    listener = listen(OPEN)
    async with asyncio.timeout(60):
        # The manager supervises it, and ends with it.
        await ApiServer(FakeService().as_manager, OPEN, listener).run()


async def test_an_api_that_is_cancelled_reports_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    api = ApiServer(FakeService().as_manager, OPEN, listen(OPEN))
    running = asyncio.create_task(api.run())
    async with asyncio.timeout(60):
        client = await Client.connect(api)
        assert await client.health() == b"HTTP/1.1 200 OK"
        await end([running])
        await client.close()
    assert running.cancelled()
    assert [one.message for one in caplog.records if one.levelname == "ERROR"] == []


async def test_an_api_that_is_cancelled_answers_nobody_any_more() -> None:
    """A thread that a later request begins would keep the process."""
    asked, ended = asyncio.Event(), asyncio.Event()

    class Slow(FakeService):
        async def flows(self) -> Any:
            asked.set()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                ended.set()

    api = ApiServer(Slow().as_manager, OPEN, listen(OPEN))
    running = asyncio.create_task(api.run())
    async with asyncio.timeout(60):
        kept, waiting = await Client.connect(api), await Client.connect(api)
        assert await kept.health() == b"HTTP/1.1 200 OK"
        waiting.writer.write(b"GET /overview HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asked.wait()
        await end([running])
        assert ended.is_set()
        await kept.until_closed()
        await waiting.until_closed()


def test_answers_of_kept_connections_do_not_wait_for_acks() -> None:
    listener = listen(OPEN)
    try:
        # Of such sockets asyncio takes Nagle's algorithm away.
        assert listener.sockets.proto == socket.IPPROTO_TCP
    finally:
        listener.close()
