"""Connectors whose protocol has no acknowledgement: what is sure when the host is killed.

A source stores no event twice, and keeps their order; what comes after its successor has begun is
stored.  A destination that stays gets each event of a sink, in order; some come again.  A listener
gets no event twice in a connection.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import struct
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import websockets.asyncio.client
import websockets.asyncio.server
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from mesh.connect.contract import Context, NodeAccess
from mesh.jetstream.server import free_port
from mesh.receiver.http_server import HttpServers, Response
from mesh.receiver.tcp_server import message_of, parts_of
from mesh.receiver.types.mqtt import client_of
from mesh.testing.connectors import ConnectorScenario, Stage, conform

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from mesh.receiver.http_server import Request

pytestmark = pytest.mark.nats

SOURCE = """@App:name('{app}')
@source(OPTIONS)
define stream S (n int);
from S select n insert into T;
"""
SINK = """@App:name('{app}')
@sink(OPTIONS)
define stream T (n int);
"""
ROWS = [{"n": n} for n in range(5)]
#: Number of the last event, which is sent until it is stored.
LAST = 99
LOST = (OSError, httpx.HTTPError, websockets.exceptions.WebSocketException)


async def stored(stage: Stage) -> list[int]:
    return [int(row["n"] if "n" in row else row["message"]) for row in await stage.events("S")]


def sure_of(numbers: list[int]) -> tuple[bool, bool, bool]:
    """Whether no event is there twice, whether they are in order, and whether the last one is."""
    first = numbers[: numbers.index(LAST)] if LAST in numbers else numbers
    return len(set(first)) == len(first), first == sorted(first), LAST in numbers


async def sure(stage: Stage) -> tuple[bool, bool, bool]:
    return sure_of(await stored(stage))


def is_whole(found: tuple[bool, bool, bool]) -> bool:
    return found[2]


async def publish(stage: Stage) -> None:
    await stage.publish("T", *ROWS[:2])
    await stage.publish("T", *ROWS[2:])


def access(directory: Path) -> NodeAccess:
    ports = "127.0.0.1:0-65535"
    return NodeAccess((str(directory),), (ports,), egress=(ports,))


async def send_all(
    connect: Callable[[str], AbstractAsyncContextManager[Callable[[int], Awaitable[None]]]],
    stage: Stage,
) -> None:
    """Send the numbers once each, and the last one until it is stored; connect as often as needed.

    ``connect`` gives the function that sends a number to an app.
    """
    numbers = itertools.chain(range(5), itertools.repeat(LAST))

    async def is_stored() -> bool:
        with suppress(*LOST):
            async with connect(stage.spec.name) as send:
                for n in numbers:
                    await send(n)
                    # Each look is a request to the broker; a message without effect is lost.
                    for _ in range(100 if n == LAST else 0):
                        if LAST in await stored(stage):
                            return True
        return False

    await stage.until("the last event", is_stored)


async def conform_source(
    url: str,
    options: str,
    connect: Callable[[str], AbstractAsyncContextManager[Callable[[int], Awaitable[None]]]],
    directory: Path,
    attribute: str = "n int",
) -> None:
    text = SOURCE.replace("OPTIONS", options).replace("n int", attribute)
    text = text.replace("select n", f"select {attribute.partition(' ')[0]}")
    drive = partial(send_all, connect)
    use = ConnectorScenario(text, "receiver-S", drive, sure, is_whole, access)
    moments = await conform(url, use, directory)
    assert {"after read", "before publish", "after publish"} <= set(moments)


@asynccontextmanager
async def to_port(port: int) -> AsyncIterator[asyncio.StreamWriter]:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    with closing(writer):
        yield writer


@pytest.mark.slow
async def test_events_over_tcp_are_stored_at_most_once(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    port = free_port()

    @asynccontextmanager
    async def connect(app: str) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
        async with to_port(port) as writer:

            async def send(n: int) -> None:
                writer.write(message_of("s", app, struct.pack(">iqi", 1, 1, n)))
                await writer.drain()

            yield send

    options = f"type='tcp', context='{{app}}', host='127.0.0.1', port='{port}', @map(type='binary')"
    await conform_source(nats_server.url, options, connect, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
async def test_messages_of_syslog_are_stored_at_most_once(
    nats_server: NatsServer, tmp_path: Path, protocol: str
) -> None:
    port = free_port()

    @asynccontextmanager
    async def by_tcp(_: str) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
        async with to_port(port) as writer:

            async def send(n: int) -> None:
                writer.write(b"<13>%d\n" % n)
                await writer.drain()

            yield send

    @asynccontextmanager
    async def by_udp(_: str) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
        loop = asyncio.get_running_loop()
        transport, __ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, remote_addr=("127.0.0.1", port)
        )
        with closing(transport):

            async def send(n: int) -> None:
                transport.sendto(b"<13>%d" % n)

            yield send

    options = (
        f"type='syslog', host='127.0.0.1', protocol='{protocol}', port='{port}', @map(type='json')"
    )
    connect = by_tcp if protocol == "tcp" else by_udp
    await conform_source(nats_server.url, options, connect, tmp_path, "message string")


@pytest.mark.slow
async def test_messages_to_a_websocket_server_are_stored_at_most_once(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    port = free_port()

    @asynccontextmanager
    async def connect(_: str) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
        url = f"ws://127.0.0.1:{port}"
        async with websockets.asyncio.client.connect(url, proxy=None) as connection:

            async def send(n: int) -> None:
                await connection.send(json.dumps({"n": n}))

            yield send

    options = f"type='websocket-server', host='127.0.0.1', port='{port}', @map(type='json')"
    await conform_source(nats_server.url, options, connect, tmp_path)


@pytest.mark.slow
async def test_messages_of_a_websocket_server_are_stored_at_most_once(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    listening: dict[str, Any] = {}

    async def serve(connection: Any) -> None:
        listening[connection.request.path] = connection
        await connection.wait_closed()

    @asynccontextmanager
    async def connect(app: str) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
        connection = listening.get(f"/{app}")
        if connection is None:
            raise ConnectionRefusedError

        async def send(n: int) -> None:
            await connection.send(json.dumps({"n": n}))

        yield send

    async with websockets.asyncio.server.serve(serve, "127.0.0.1", 0) as server:
        (port,) = {one.getsockname()[1] for one in server.sockets}
        options = f"type='websocket', url='ws://127.0.0.1:{port}/{{app}}', @map(type='json')"
        await conform_source(nats_server.url, options, connect, tmp_path)


@pytest.mark.slow
async def test_each_scrape_is_stored_at_most_once(nats_server: NatsServer, tmp_path: Path) -> None:
    registry = CollectorRegistry()
    gauge = Gauge("scrapes", "Number of the scrape.", registry=registry)

    async def answer(_: Request) -> Response:
        gauge.inc()
        return Response(200, generate_latest(registry))

    servers = HttpServers()
    port = await servers.open("127.0.0.1", 0, "/metrics", answer)
    options = (
        f"type='prometheus', target.url='http://127.0.0.1:{port}/metrics', metric.type='gauge',"
        " metric.name='scrapes', scrape.interval='20 ms', @map(type='keyvalue')"
    )
    text = SOURCE.replace("OPTIONS", options).replace("n int", "value double")
    text = text.replace("select n", "select value")

    async def drive(_: Stage) -> None:
        return

    async def scrapes(stage: Stage) -> tuple[bool, bool, bool]:
        values = [row["value"] for row in await stage.events("S")]
        ascending = sorted(set(values))
        return len(ascending) == len(values), ascending == sorted(values), len(values) >= 3

    try:
        use = ConnectorScenario(text, "receiver-S", drive, scrapes, is_whole, access)
        moments = await conform(nats_server.url, use, tmp_path)
        assert {"after read", "before publish", "after publish"} <= set(moments)
    finally:
        await servers.close("127.0.0.1", port, "/metrics")


@pytest.mark.extended
async def test_messages_of_a_session_over_mqtt_are_stored_at_least_once(
    nats_server: NatsServer, mosquitto: str, tmp_path: Path
) -> None:
    options = f"type='mqtt', url='{mosquitto}', topic='{{app}}/in', @map(type='json')"

    async def send(stage: Stage) -> None:
        def runs() -> bool:
            return any(r.connectors and r.state.value == "running" for r in stage.reports)

        # The session begins with the first connection.
        await stage.until("a session", runs)
        async with client_of(Context("a", "s", {"url": mosquitto}), "sender") as client:
            for row in ROWS:
                await client.publish(f"{stage.spec.name}/in", json.dumps(row), qos=1)

    async def first(stage: Stage) -> list[int]:
        return sorted(set(await stored(stage)))

    use = ConnectorScenario(
        SOURCE.replace("OPTIONS", options), "receiver-S", send, first, lambda n: len(n) == 5, access
    )
    assert await conform(nats_server.url, use, tmp_path)


async def test_a_websocket_server_that_stays_gets_each_event(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    got: dict[str, list[int]] = {}

    async def serve(connection: Any) -> None:
        with suppress(websockets.exceptions.ConnectionClosed):
            async for message in connection:
                numbers = got.setdefault(connection.request.path, [])
                numbers.append(json.loads(message)["event"]["n"])

    async with websockets.asyncio.server.serve(serve, "127.0.0.1", 0) as server:
        (port,) = {one.getsockname()[1] for one in server.sockets}
        options = f"type='websocket', url='ws://127.0.0.1:{port}/{{app}}', @map(type='json')"

        async def arrived(stage: Stage) -> list[int]:
            return list(dict.fromkeys(got.get(f"/{stage.spec.name}", ())))

        use = ConnectorScenario(
            SINK.replace("OPTIONS", options), "sink-T", publish, arrived, lambda n: len(n) == 5,
            access,
        )  # fmt: skip
        moments = await conform(nats_server.url, use, tmp_path)
    assert {"before write", "after write", "after store a position"} <= set(moments)


@asynccontextmanager
async def receiving(port: int) -> AsyncIterator[dict[str, list[int]]]:
    """Numbers that a server of the original's protocol gets, by context."""
    got: dict[str, list[int]] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError), closing(writer):
            while True:
                _, size = struct.unpack(">bi", await reader.readexactly(5))
                context, events = parts_of(await reader.readexactly(size))
                numbers = got.setdefault(context, [])
                numbers.extend(n for _, n in struct.iter_unpack(">qi", events[4:]))

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield got
    finally:
        server.close()


async def test_a_tcp_server_that_stays_gets_each_event(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    port = free_port()
    async with receiving(port) as got:
        options = f"type='tcp', url='tcp://127.0.0.1:{port}/{{app}}', @map(type='binary')"

        async def arrived(stage: Stage) -> list[int]:
            return list(dict.fromkeys(got.get(stage.spec.name, ())))

        use = ConnectorScenario(
            SINK.replace("OPTIONS", options), "sink-T", publish, arrived, lambda n: len(n) == 5,
            access,
        )  # fmt: skip
        moments = await conform(nats_server.url, use, tmp_path)
    assert {"before write", "after write", "after store a position"} <= set(moments)


async def test_each_event_is_logged(
    nats_server: NatsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mesh.receiver.types.log_sink")

    async def logged(stage: Stage) -> list[int]:
        start = f"{stage.spec.name} : T : "
        lines = [record.getMessage() for record in caplog.records]
        found = [json.loads(one.removeprefix(start)) for one in lines if one.startswith(start)]
        return list(dict.fromkeys(one["event"]["n"] for one in found))

    use = ConnectorScenario(
        SINK.replace("OPTIONS", "type='log', @map(type='json')"), "sink-T", publish, logged,
        lambda n: len(n) == 5,
    )  # fmt: skip
    moments = await conform(nats_server.url, use, tmp_path)
    assert {"before write", "after write", "after store a position"} <= set(moments)


class Listener:
    """One that comes back after each loss, and the numbers that it gets, by app."""

    def __init__(self, listen: Callable[[str, list[list[int]]], Awaitable[None]]) -> None:
        #: Connects to an app and adds what comes to a list of the lists; ends with the connection.
        self._listen = listen
        self._got: dict[str, list[list[int]]] = {}

    async def drive(self, stage: Stage) -> None:
        """Listen, and publish the last event until it has come."""
        got = self._got.setdefault(stage.spec.name, [])

        async def listen() -> None:
            while True:
                with suppress(*LOST):
                    await self._listen(stage.spec.name, got)
                await asyncio.sleep(0)

        async def has_come() -> bool:
            await stage.publish("T", {"n": LAST})
            return any(LAST in numbers for numbers in got)

        listening = asyncio.create_task(listen())
        await stage.until("a connection", lambda: got)
        await stage.publish("T", *ROWS)
        await stage.until("the last event", has_come)
        listening.cancel()

    async def outcome(self, stage: Stage) -> tuple[bool, bool, bool]:
        """As of ``sure``, of each list."""
        found = [sure_of(numbers) for numbers in self._got.get(stage.spec.name, [])]
        return all(f[0] for f in found), all(f[1] for f in found), any(f[2] for f in found)


@pytest.mark.slow
async def test_a_listener_that_names_its_last_event_gets_none_twice(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    port, last = free_port(), dict[str, str]()

    async def listen(app: str, got: list[list[int]]) -> None:
        headers = {"Last-Event-ID": last[app]} if app in last else {}
        url = f"http://127.0.0.1:{port}/{app}"
        async with httpx.AsyncClient() as web, web.stream("GET", url, headers=headers) as answer:
            name = ""
            async for line in answer.aiter_lines():
                if line == ": listening":
                    # One list for all connections.
                    got[:] = got or [[]]
                elif line.startswith("id: "):
                    name = line
                elif line.startswith("data: "):
                    last[app] = name.removeprefix("id: ")
                    got[0].append(json.loads(line.removeprefix("data: "))["event"]["n"])

    listener = Listener(listen)
    options = f"type='sse-server', server.url='http://127.0.0.1:{port}/{{app}}', @map(type='json')"
    use = ConnectorScenario(
        SINK.replace("OPTIONS", options), "sink-T", listener.drive, listener.outcome, is_whole,
        access,
    )  # fmt: skip
    moments = await conform(nats_server.url, use, tmp_path)
    assert {"before write", "after write", "after store a position"} <= set(moments)


@pytest.mark.slow
async def test_a_listener_of_a_websocket_gets_no_event_twice_in_a_connection(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    port = free_port()

    async def listen(_: str, got: list[list[int]]) -> None:
        url = f"ws://127.0.0.1:{port}"
        async with websockets.asyncio.client.connect(url, proxy=None) as connection:
            numbers: list[int] = []
            got.append(numbers)
            async for message in connection:
                n = json.loads(message)["event"]["n"]
                numbers.append(n)

    listener = Listener(listen)
    options = f"type='websocket-server', host='127.0.0.1', port='{port}', @map(type='json')"
    use = ConnectorScenario(
        SINK.replace("OPTIONS", options), "sink-T", listener.drive, listener.outcome, is_whole,
        access,
    )  # fmt: skip
    moments = await conform(nats_server.url, use, tmp_path)
    assert {"before write", "after write", "after store a position"} <= set(moments)
