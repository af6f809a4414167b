"""Sources of every type with a real server, which get two good values and a bad one between."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aio_pika
import httpx
import sqlalchemy as sa
import websockets.asyncio.client
import websockets.asyncio.server

from mesh.connect.contract import NodeAccess
from mesh.jetstream.server import free_port
from mesh.receiver.http_server import HttpServers, Request, Response
from mesh.receiver.tcp_server import message_of
from mesh.receiver.types.in_memory import subject_of
from mesh.receiver.types.listeners import sse_event
from mesh.store.engine import engine_of
from tests.receiver.test_mqtt import client
from tests.support import databases
from tests.support.connectors import first_position
from tests.support.databases import PASSWORD, USER
from tests.support.grpc_ends import grpc_end, status

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
    from pathlib import Path

    import pytest

    from mesh.jetstream.server import NatsServer
    from mesh.testing.connectors import Stage

#: Payloads; the second one is no event.
PAYLOADS = (b'{"n":1}', b'{"n":"x"}', b'{"n":3}')
MAP = "@map(type='json')"
#: For a bad value beside the payload.
KEYED = "@map(type='json', @attributes(n='n', k='trp:k'))"


@dataclass
class Use:
    """A source, and the other side that sends to it."""

    #: The annotation, and the attributes of its stream.
    source: str
    #: Sends the values once the source runs.
    send: Callable[[Stage], Awaitable[None]]
    #: A part of the reason in the error stream; empty if the sender has got it instead.
    reason: str = "n"
    attributes: str = "n int"
    more: str = ""
    access: NodeAccess = field(default_factory=lambda: NodeAccess(listen=("127.0.0.1:0-65535",)))


async def file_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    root: Path = request.getfixturevalue("tmp_path") / "in"

    def write() -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(root)
        # The name of the last one is no UTF-8.
        for name, text in ((b"a.csv", "1\nx\n"), (b"b.csv", "3\n"), (b"\xe9.csv", "4\n")):
            with open(os.fsencode(root) + b"/" + name, "w", encoding="utf-8") as file:
                file.write(text)

    async def send(stage: Stage) -> None:
        await asyncio.to_thread(write)
        await stage.until(
            "the name",
            lambda: "no UTF-8" in str([d.error for r in stage.reports for d in r.connectors]),
        )

    await asyncio.to_thread(os.mkdir, root)
    given = f"dir.uri='{root}', tailing='false', file.polling.interval='20', @map(type='csv')"
    yield Use(f"@source(type='file', {given})", send, access=NodeAccess((str(root),)))


async def file_events_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    root: Path = request.getfixturevalue("tmp_path") / "in"

    def write() -> None:
        # The name of the file is the number.
        for name in ("1", "2x", "3"):
            (root / name).write_text("")

    async def send(stage: Stage) -> None:
        await asyncio.to_thread(write)

    await asyncio.to_thread(os.mkdir, root)
    given = f"dir.uri='{root}', monitoring.interval='20'"
    fields = "@map(type='keyvalue', implicit.cast.enable='true', @attributes(n='filename'))"
    source = f"@source(type='fileeventlistener', {given}, {fields})"
    yield Use(source, send, access=NodeAccess((str(root),)))


async def http_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    url = f"http://127.0.0.1:{free_port()}/in"

    async def send(_: Stage) -> None:
        async with httpx.AsyncClient(verify=False) as web:
            answers = [await web.post(url, content=one) for one in PAYLOADS]
        assert [one.status_code for one in answers] == [200, 400, 200]

    yield Use(f"@source(type='http', receiver.url='{url}', {MAP})", send, reason="")


async def service_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    url = f"http://127.0.0.1:{free_port()}/in"

    async def send(_: Stage) -> None:
        async with httpx.AsyncClient(verify=False) as web:
            answers = [await web.post(url, content=one) for one in PAYLOADS]
        # Nothing answers the good ones.
        assert [one.status_code for one in answers] == [504, 400, 504]

    given = f"source.id='s', receiver.url='{url}', connection.timeout='50', {MAP}"
    yield Use(f"@source(type='TYPE', {given})", send, reason="")


async def grpc_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    url = f"grpc://127.0.0.1:{free_port()}/p.A/B"

    async def send(_: Stage) -> None:
        found = [(await status(url, one))[0] for one in PAYLOADS]
        assert found == ["OK", "INVALID_ARGUMENT", "OK"]

    yield Use(f"@source(type='grpc', receiver.url='{url}', {MAP})", send, reason="")


async def grpc_service_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    url = f"grpc://127.0.0.1:{free_port()}/p.A/B"

    async def send(_: Stage) -> None:
        found = [(await status(url, one))[0] for one in PAYLOADS]
        # Nothing answers the good ones.
        assert found == ["DEADLINE_EXCEEDED", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED"]

    given = f"source.id='s', receiver.url='{url}', service.timeout='50', {MAP}"
    yield Use(f"@source(type='grpc-service', {given})", send, reason="")


async def grpc_call_response_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    payloads = list(PAYLOADS)

    async def send(stage: Stage) -> None:
        await stage.publish("U", {"n": 1}, {"n": 2}, {"n": 3})
        stage.start("sink-U")

    async with grpc_end(lambda _: payloads.pop(0)) as end:
        url = f"grpc://127.0.0.1:{end.port}/p.A/B"
        more = f"@sink(type='grpc-call', sink.id='c', publisher.url='{url}', {MAP})"
        more += " define stream U (n int);"
        source = f"@source(type='grpc-call-response', sink.id='c', {MAP})"
        yield Use(source, send, "the answer can't be read", more=more)


async def rdbms_call_response_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    root: Path = request.getfixturevalue("tmp_path")

    async def send(stage: Stage) -> None:
        # An int of a stream has 32 bits.
        await stage.publish("U", {"n": 1}, {"n": 1 << 40}, {"n": 3})
        stage.start("sink-U")

    given = f"jdbc.url='jdbc:sqlite:{root}/calls.db', statement='select ?', parameters='n'"
    more = f"@sink(type='rdbms-call', sink.id='c', {given}, columns='n long') "
    more += "define stream U (n long);"
    source = "@source(type='rdbms-call-response', sink.id='c')"
    access = NodeAccess((str(root),))
    yield Use(source, send, "the rows can't be read", more=more, access=access)


async def prometheus_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    ready = asyncio.Event()

    async def answer(_: Request) -> Response:
        values = [1, 1 << 40, 3] if ready.is_set() else []
        lines = [f'm{{at="{at}"}} {value}' for at, value in enumerate(values)]
        ready.clear()
        return Response(200, "\n".join(["# TYPE m gauge", *lines, ""]).encode())

    servers = HttpServers()
    port = await servers.open("127.0.0.1", free_port(), "/metrics", answer)

    async def send(_: Stage) -> None:
        ready.set()

    # An int of a stream has 32 bits.
    url = f"http://127.0.0.1:{port}/metrics"
    given = f"target.url='{url}', metric.name='m', metric.type='gauge', scrape.interval='20 ms'"
    fields = "@map(type='keyvalue', @attributes(n='value'))"
    access = NodeAccess(egress=(f"127.0.0.1:{port}",))
    yield Use(f"@source(type='prometheus', {given}, {fields})", send, access=access)
    await servers.close("127.0.0.1", port, "/metrics")


async def call_response_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    payloads = list(PAYLOADS)

    async def answer(_: Request) -> Response:
        return Response(200, payloads.pop(0))

    servers = HttpServers()
    port = await servers.open("127.0.0.1", free_port(), "/in", answer)

    async def send(stage: Stage) -> None:
        await stage.publish("U", {"n": 1}, {"n": 2}, {"n": 3})
        stage.start("sink-U")

    url = f"http://127.0.0.1:{port}/in"
    more = f"@sink(type='http-call', sink.id='c', publisher.url='{url}', {MAP})"
    source = f"@source(type='TYPE', sink.id='c', {MAP})"
    more += " define stream U (n int);"
    yield Use(source, send, "the answer 200 can't be read", more=more)
    await servers.close("127.0.0.1", port, "/in")


async def nats_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    server: NatsServer = request.getfixturevalue("nats_server")

    async def send(stage: Stage) -> None:
        await stage.js.add_stream(name="IN", subjects=["in.>"])
        for payload in PAYLOADS:
            await stage.js.publish("in.a", payload)

    given = f"server.urls='{server.url}', stream='IN', {MAP}"
    yield Use(f"@source(type='nats', {given})", send)


async def in_memory_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    async def send(stage: Stage) -> None:
        await first_position(stage, b"sequence")
        for payload in PAYLOADS:
            await stage.js.publish(subject_of("t"), payload)

    yield Use("@source(type='inMemory', topic='t', @map(type='passThrough'))", send)


async def kafka_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    kafka = request.getfixturevalue("kafka")
    kafka.create("bad-values")

    async def send(_: Stage) -> None:
        for number, header in ((1, b"a"), (2, b"\xff"), (3, "ü".encode())):
            headers = {"k": header, "other": b"\xfe"}
            await asyncio.to_thread(kafka.send, "bad-values", b'{"n":%d}' % number, headers=headers)

    given = f"bootstrap.servers='{kafka.servers}', topic.list='bad-values', group.id='g'"
    source = f"@source(type='kafka', {given}, {KEYED})"
    yield Use(source, send, 'property "k" is no text', "n int, k string")


async def rabbitmq_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    uri = request.getfixturevalue("rabbitmq")

    async def send(_: Stage) -> None:
        connection = await aio_pika.connect(uri)
        async with connection:
            exchange = await (await connection.channel()).get_exchange("bad-values", ensure=False)
            for number, header in ((1, b"a"), (2, b"\xff"), (3, b"c")):
                message = aio_pika.Message(b'{"n":%d}' % number, headers={"k": bytearray(header)})
                await exchange.publish(message, "r")

    given = f"uri='{uri}', exchange.name='bad-values', routing.key='r', {KEYED}"
    source = f"@source(type='rabbitmq', {given})"
    yield Use(source, send, 'property "k" is no text', "n int, k string")


async def email_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    dovecot = request.getfixturevalue("dovecot")

    async def send(_: Stage) -> None:
        mails = [b"Subject: a\r\n\r\n" + one for one in PAYLOADS]
        await asyncio.to_thread(dovecot.put, "bad-values", *mails)

    given = f"host='127.0.0.1', port='{dovecot.port}', ssl.enable='false', username='bad-values'"
    given += f", tls.ca='{dovecot.authority}', password='secret', polling.interval='20 ms', {MAP}"
    access = NodeAccess((str(dovecot.directory),), egress=(f"127.0.0.1:{dovecot.port}",))
    yield Use(f"@source(type='email', {given})", send, access=access)


async def mqtt_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    url = request.getfixturevalue("mosquitto")

    async def send(_: Stage) -> None:
        async with client(url, name="sends-bad-values") as other:
            for payload in PAYLOADS:
                await other.publish("bad-values", payload, qos=1)

    yield Use(f"@source(type='mqtt', url='{url}', topic='bad-values', {MAP})", send)


async def websocket_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    ready, payloads = asyncio.Event(), list(PAYLOADS)

    async def serve(connection: Any) -> None:
        await ready.wait()
        while payloads:
            await connection.send(payloads.pop(0))
        await connection.wait_closed()

    async def send(_: Stage) -> None:
        ready.set()

    async with websockets.asyncio.server.serve(serve, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        yield Use(f"@source(type='websocket', url='ws://127.0.0.1:{port}', {MAP})", send)


async def websocket_server_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    port = free_port()

    async def send(_: Stage) -> None:
        uri = f"ws://127.0.0.1:{port}"
        async with websockets.asyncio.client.connect(uri, proxy=None) as connection:
            for payload in PAYLOADS:
                await connection.send(payload)

    given = f"host='127.0.0.1', port='{port}'"
    yield Use(f"@source(type='websocket-server', {given}, {MAP})", send)


async def sse_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    ready, servers = asyncio.Event(), HttpServers()

    async def stream(last: str) -> AsyncGenerator[bytes]:
        yield b": listening\n\n"
        await ready.wait()
        for number, payload in enumerate(PAYLOADS, 1):
            if number > int(last or 0):
                yield sse_event(str(number), payload)
        await asyncio.Event().wait()

    async def answer(asked: Request) -> Response:
        last = asked.headers.get("last-event-id", "")
        headers = ((b"content-type", b"text/event-stream"),)
        return Response(200, b"", headers, stream(last))

    async def send(_: Stage) -> None:
        ready.set()

    port = await servers.open("127.0.0.1", 0, "/events", answer)
    try:
        url = f"http://127.0.0.1:{port}/events"
        yield Use(f"@source(type='sse', event.source.url='{url}', {MAP})", send)
    finally:
        await servers.close("127.0.0.1", port, "/events")


async def tcp_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    port = free_port()

    async def send(_: Stage) -> None:
        writer = (await asyncio.open_connection("127.0.0.1", port))[1]
        for payload in PAYLOADS:
            writer.write(message_of("s", "c", payload))
        writer.close()
        await writer.wait_closed()

    yield Use(f"@source(type='tcp', context='c', host='127.0.0.1', port='{port}', {MAP})", send)


async def syslog_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    port = free_port()

    async def send(_: Stage) -> None:
        writer = (await asyncio.open_connection("127.0.0.1", port))[1]
        writer.write(b"<13>1 - - - - - - 1\n<13>1 - - - - - - x\n<13>1 - - - - - - 3\n")
        writer.close()
        await writer.wait_closed()

    fields = "@map(type='keyvalue', implicit.cast.enable='true', @attributes(n='message'))"
    yield Use(f"@source(type='syslog', protocol='tcp', port='{port}', {fields})", send)


async def cdc_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    path: Path = request.getfixturevalue("tmp_path")
    database = databases.new_database(request.getfixturevalue("postgresql"), path, "bad_values")

    def execute(*statements: str) -> None:
        with engine_of(database.database).begin() as connection:
            for statement in statements:
                connection.execute(sa.text(statement))

    execute('create table "Rows" (id bigint primary key, n bigint)')

    async def send(stage: Stage) -> None:
        await first_position(stage, b"last")
        # An int of a stream has 32 bits.
        values = f"(1, 1), (2, {1 << 40}), (3, 3)"
        await asyncio.to_thread(execute, f'insert into "Rows" values {values}')

    given = f"url='{database.url}', table.name='Rows', username='{USER}', password='{PASSWORD}'"
    given += ", mode='polling', polling.column='id', polling.interval='20 ms'"
    yield Use(f"@source(type='cdc', {given}, @map(type='keyvalue'))", send)


def numbers_of(events: list[dict[str, Any]]) -> list[int]:
    """The numbers of events, in order."""
    return [json.loads(json.dumps(event))["n"] for event in events]
