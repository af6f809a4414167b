"""Connectors whose protocol has no acknowledgement: what is sure when the host is killed.

A source stores no event twice, and keeps their order; what comes after its successor has begun is
stored.  A destination that stays gets each event of a sink, in order; some come again.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import struct
from contextlib import asynccontextmanager, closing, suppress
from typing import TYPE_CHECKING, Any

import pytest
import websockets.asyncio.server
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from mesh.connect.contract import Context, NodeAccess
from mesh.jetstream.server import free_port
from mesh.receiver.http_server import HttpServers, Response
from mesh.receiver.tcp_server import message_of, parts_of
from mesh.receiver.types.mqtt import client_of
from mesh.testing.connectors import ConnectorScenario, Stage, conform

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
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


async def stored(stage: Stage) -> list[int]:
    return [row["n"] for row in await stage.events("S")]


async def sure(stage: Stage) -> tuple[bool, bool, bool]:
    """Whether no event is stored twice, whether they are in order, and whether the last one is."""
    numbers = await stored(stage)
    first = numbers[: numbers.index(LAST)] if LAST in numbers else numbers
    return len(set(first)) == len(first), first == sorted(first), LAST in numbers


def is_whole(found: tuple[bool, bool, bool]) -> bool:
    return found[2]


async def publish(stage: Stage) -> None:
    await stage.publish("T", *ROWS[:2])
    await stage.publish("T", *ROWS[2:])


def access(directory: Path) -> NodeAccess:
    ports = "127.0.0.1:0-65535"
    return NodeAccess((str(directory),), (ports,), egress=(ports,))


async def test_events_over_tcp_are_stored_at_most_once(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    port = free_port()

    async def send(stage: Stage) -> None:
        numbers = itertools.chain(range(5), itertools.repeat(LAST))

        async def is_stored() -> bool:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                with closing(writer):
                    for n in numbers:
                        event = struct.pack(">iqi", 1, 1, n)
                        writer.write(message_of("s", stage.spec.name, event))
                        await writer.drain()
                        # Each look is a request to the broker; a message without effect is lost.
                        for _ in range(100 if n == LAST else 0):
                            if LAST in await stored(stage):
                                return True
            return False

        await stage.until("the last event", is_stored)

    options = f"type='tcp', context='{{app}}', host='127.0.0.1', port='{port}', @map(type='binary')"
    use = ConnectorScenario(
        SOURCE.replace("OPTIONS", options), "receiver-S", send, sure, is_whole, access
    )
    moments = await conform(nats_server.url, use, tmp_path)
    assert {"after read", "before publish", "after publish"} <= set(moments)


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
