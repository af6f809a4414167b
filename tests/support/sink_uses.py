"""Sinks of every type with a real server, and an event that each of them has to refuse."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
from dataclasses import dataclass, field
from email.headerregistry import Address
from typing import TYPE_CHECKING, Any

import aio_pika
import aiomqtt
import boto3  # type: ignore[import-untyped]  # without types
import httpx
import pytest
import sqlalchemy as sa
import websockets.asyncio.client
import websockets.asyncio.server
from aiosmtpd.controller import Controller
from grpc import StatusCode
from moto.server import ThreadedMotoServer

from mesh.connect.contract import NodeAccess
from mesh.jetstream.server import free_port
from mesh.model import names
from mesh.receiver.http_server import HttpServers, Request, Response
from mesh.receiver.tcp_server import TcpServers
from mesh.receiver.types.calls import NO_STATUS
from mesh.receiver.types.in_memory import subject_of
from mesh.store.engine import engine_of
from tests.receiver.test_email_sink import Mailbox
from tests.receiver.test_mqtt import client
from tests.support import databases
from tests.support.databases import PASSWORD, USER
from tests.support.grpc_ends import Failure, grpc_end

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from mesh.testing.connectors import Stage

JSON = "@map(type='json', envelope='none')"
#: Of a sink that takes every payload: the mapper refuses an event.
CHECKED = '@map(type=\'json\', validate.json=\'true\', @payload("""{"n":{{n}}, "k":{{k}}}"""))'


@dataclass
class Use:
    """A sink, and what has arrived on the other side."""

    #: The annotation.
    sink: str
    #: Value of ``k`` that makes the second event a bad one.
    bad: str
    #: A part of the reason.
    reason: str
    #: Numbers of the events that have arrived, in order.
    arrived: Callable[[Stage], Awaitable[list[int]]]
    #: Value of ``k`` of the good ones.
    good: str = "a"
    before: Callable[[Stage], Awaitable[None]] | None = None
    access: NodeAccess = field(default_factory=lambda: NodeAccess(listen=("127.0.0.1:0-65535",)))


def take(found: list[int], payload: bytes | str) -> None:
    """Add the number of an event, if the payload is one."""
    with contextlib.suppress(json.JSONDecodeError):
        found.append(json.loads(payload)["n"])


async def file_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    root: Path = request.getfixturevalue("tmp_path")

    def read() -> list[int]:
        lines = [line for one in root.glob("*.txt") for line in one.read_text().splitlines()]
        return [json.loads(line)["n"] for line in lines]

    async def arrived(_: Stage) -> list[int]:
        return await asyncio.to_thread(read)

    # Names of files have at most 255 bytes.
    sink = f"@sink(type='file', file.uri='{root}/{{{{k}}}}.txt', {JSON})"
    yield Use(sink, "x" * 300, "name too long", arrived, access=NodeAccess((str(root),)))


@contextlib.asynccontextmanager
async def _server(seen: list[int], refuses: str = "") -> AsyncIterator[str]:
    async def answer(request: Request) -> Response:
        event = json.loads(await request.body(1 << 20) or b"{}")
        if refuses and event.get("k") == refuses:
            return Response(422, b"no such k")
        seen.append(event["n"])
        return Response(200, b'{"got":1}', ((b"content-type", b"application/json"),))

    servers = HttpServers()
    port = await servers.open("127.0.0.1", free_port(), "/in", answer)
    try:
        yield f"http://127.0.0.1:{port}/in"
    finally:
        await servers.close("127.0.0.1", port, "/in")


async def http_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    seen: list[int] = []

    async def arrived(_: Stage) -> list[int]:
        return seen

    async with _server(seen) as url:
        given = f"publisher.url='{url}', headers=\"'X-K:{{{{k}}}}'\", {JSON}"
        yield Use(f"@sink(type='http', {given})", "a\nb", "a value of one header", arrived)


async def http_call_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    seen: list[int] = []

    async def arrived(_: Stage) -> list[int]:
        return seen

    async with _server(seen, refuses="b") as url:
        given = f"publisher.url='{url}', sink.id='c', {JSON}"
        yield Use(f"@sink(type='TYPE', {given})", "b", "answered 422", arrived)


async def _grpc(kind: str) -> AsyncIterator[Use]:
    def answer(message: bytes) -> bytes | Failure:
        return Failure(StatusCode.INVALID_ARGUMENT, "no such k") if b'"b"' in message else b""

    async def arrived(_: Stage) -> list[int]:
        return [json.loads(one.message)["n"] for one in end.calls]

    async def before(stage: Stage) -> None:
        if kind == "grpc-call":
            await stage.client.subscribe(names.call_subject("Bad", "c", NO_STATUS), cb=stored)

    async def stored(message: Any) -> None:
        await message.respond(b"{}")

    async with grpc_end(answer) as end:
        given = f"publisher.url='grpc://127.0.0.1:{end.port}/p.A/B', {JSON}"
        own = ", sink.id='c'" if kind == "grpc-call" else ""
        sink = f"@sink(type='{kind}'{own}, {given})"
        yield Use(sink, "b", "answered INVALID_ARGUMENT: no such k", arrived, before=before)


async def grpc_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    async with contextlib.asynccontextmanager(_grpc)("grpc") as use:
        yield use


async def grpc_call_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    async with contextlib.asynccontextmanager(_grpc)("grpc-call") as use:
        yield use


async def http_response_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    # A source of requests answers on the subject of an id; here are its ids.
    seen: list[int] = []
    own = "0123456789abcdef.1"

    async def answered(message: Any) -> None:
        payload = base64.b64decode(json.loads(message.data)["payload"])
        seen.append(json.loads(payload)["n"])
        await message.respond(b"")

    async def before(stage: Stage) -> None:
        await stage.client.subscribe(names.answer_subject(*own.split(".")), cb=answered)

    async def arrived(_: Stage) -> list[int]:
        return sorted(seen)

    given = f"source.id='s', message.id='{{{{k}}}}', {JSON}"
    sink = f"@sink(type='TYPE', {given})"
    yield Use(sink, "nobody", "no id of a request", arrived, own, before)


async def nats_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    url = request.getfixturevalue("nats_server").url

    async def before(stage: Stage) -> None:
        await stage.js.add_stream(name="OUT", subjects=["out.>"])

    async def arrived(stage: Stage) -> list[int]:
        return [json.loads(one)["n"] for one in await stage.messages("OUT", "out.>")]

    given = f"server.urls='{url}', destination='out.{{{{k}}}}', {JSON}"
    yield Use(f"@sink(type='nats', {given})", "a b", "a token of a subject", arrived, before=before)


async def in_memory_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    async def before(stage: Stage) -> None:
        # It makes the stream of topics.
        await stage.until_running(stage.start("sink-T"))

    async def arrived(stage: Stage) -> list[int]:
        found = await stage.messages(names.TOPICS, subject_of("a"))
        return [json.loads(one)["n"] for one in found]

    sink = "@sink(type='inMemory', topic='{{k}}', @map(type='passThrough'))"
    yield Use(sink, "", 'option "topic" is empty', arrived, before=before)


async def log_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    caplog: pytest.LogCaptureFixture = request.getfixturevalue("caplog")
    caplog.set_level(logging.INFO, "mesh.receiver.types.log_sink")

    async def arrived(_: Stage) -> list[int]:
        lines = [r.getMessage() for r in caplog.records if r.name.endswith("log_sink")]
        return [json.loads(line.partition("{")[1] + line.partition("{")[2])["n"] for line in lines]

    yield Use(f"@sink(type='log', {CHECKED})", "{", "JSON", arrived, good="1")


async def sse_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    url = f"http://127.0.0.1:{free_port()}/events"

    async def arrived(_: Stage) -> list[int]:
        found: list[int] = []
        with contextlib.suppress(httpx.HTTPError, TimeoutError):
            async with (
                httpx.AsyncClient(verify=False) as web,
                web.stream("GET", url, headers={"Last-Event-ID": "inc/1.0"}) as answer,
                asyncio.timeout(0.3),
            ):
                async for line in answer.aiter_lines():
                    take(found, line.removeprefix("data: ").encode())
        # The one with the id is not repeated.
        return [1, *found] if found else []

    yield Use(f"@sink(type='sse-server', server.url='{url}', {CHECKED})", "{", "JSON", arrived, "1")


async def websocket_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    port = free_port()
    seen: list[int] = []

    async def listen() -> None:
        async with websockets.asyncio.client.connect(
            f"ws://127.0.0.1:{port}", proxy=None
        ) as socket:
            ready.set()
            async for message in socket:
                take(seen, message)

    ready = asyncio.Event()
    tasks: list[asyncio.Task[None]] = []

    async def before(stage: Stage) -> None:
        await stage.until_running(stage.start("sink-T"))
        tasks.append(asyncio.create_task(listen()))
        await ready.wait()

    async def arrived(_: Stage) -> list[int]:
        return seen

    given = f"host='127.0.0.1', port='{port}', {CHECKED}"
    yield Use(f"@sink(type='websocket-server', {given})", "{", "JSON", arrived, "1", before)
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, websockets.exceptions.ConnectionClosed):
            await task


async def prometheus_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    url = f"http://127.0.0.1:{free_port()}"

    async def arrived(_: Stage) -> list[int]:
        try:
            async with httpx.AsyncClient(verify=False) as web:
                answer = await web.get(f"{url}/metrics")
        except httpx.HTTPError:
            return []
        lines = [line for line in answer.text.splitlines() if line.startswith("m{")]
        # Each event has a label of its own, and is added once.
        return sorted(int(line.split()[-1]) for line in lines)

    payload = "@map(type='keyvalue', @payload(value='n', number='n'))"
    given = f"metric.type='counter', metric.name='m', value.attribute='value', server.url='{url}'"
    yield Use(f"@sink(type='prometheus', {given}, {payload})", "", "does not decrease", arrived)


async def email_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    handler = Mailbox()
    controller = Controller(handler, hostname="127.0.0.1", port=free_port())
    controller.start()

    async def arrived(_: Stage) -> list[int]:
        assert all(to == ["ann@example.org"] for to, _ in handler.found)
        whole = [Address("Lee, Ann", addr_spec="ann@example.org")]
        assert all(list(one["To"].addresses) == whole for _, one in handler.found)
        return [int(one["Subject"]) for _, one in handler.found]

    given = (
        f"host='127.0.0.1', port='{controller.port}', ssl.enable='false', auth='false',"
        " address='mesh@example.org', to='{{k}}', subject='{{n}}', @map(type='text')"
    )
    good = '"Lee, Ann" <ann@example.org>'
    yield Use(f"@sink(type='email', {given})", "", 'option "to" is empty', arrived, good)
    controller.stop()


async def s3_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    login = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
    store = boto3.client("s3", endpoint_url=url, **login)
    store.create_bucket(Bucket="mesh")

    def read() -> list[int]:
        listed = [one["Key"] for one in store.list_objects_v2(Bucket="mesh").get("Contents", ())]
        assert all(name.startswith("a/") for name in listed)
        bodies = [store.get_object(Bucket="mesh", Key=name)["Body"].read() for name in listed]
        return [json.loads(body)["n"] for body in bodies]

    async def arrived(_: Stage) -> list[int]:
        return await asyncio.to_thread(read)

    given = (
        f"bucket.name='mesh', object.path='{{{{k}}}}', endpoint='{url}', aws.access.key='a',"
        f" aws.secret.key='b', {JSON}"
    )
    reason = 'option "object.path" is empty'
    yield Use(f"@sink(type='s3', {given})", "", reason, arrived, good="a/")
    store.close()
    server.stop()


async def kafka_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    kafka = request.getfixturevalue("kafka")
    kafka.create("good-events")

    async def arrived(_: Stage) -> list[int]:
        found = await asyncio.to_thread(kafka.records, "good-events")
        return [json.loads(payload)["n"] for _, _, payload in found]

    given = f"bootstrap.servers='{kafka.servers}', topic='{{{{k}}}}', {JSON}"
    sink = f"@sink(type='kafka', {given})"
    yield Use(sink, "we ird", "is not a name", arrived, "good-events")


async def rabbitmq_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    uri = request.getfixturevalue("rabbitmq")
    connection = await aio_pika.connect(uri)
    channel = await connection.channel()
    exchange = await channel.declare_exchange("good-events", "topic")
    queue = await channel.declare_queue("good-events")
    await queue.bind(exchange, "#")
    seen: list[int] = []

    async def arrived(_: Stage) -> list[int]:
        while (message := await queue.get(no_ack=True, fail=False)) is not None:
            seen.append(json.loads(message.body)["n"])
        return seen

    given = f"uri='{uri}', exchange.name='good-events', routing.key='{{{{k}}}}', {JSON}"
    # Texts of the protocol have at most 255 bytes.
    yield Use(f"@sink(type='rabbitmq', {given})", "k" * 300, "can't be made", arrived)
    await connection.close()


async def mqtt_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    url = request.getfixturevalue("mosquitto")
    seen: list[int] = []

    async def listen(other: aiomqtt.Client) -> None:
        async for message in other.messages:
            take(seen, str(message.payload, "utf-8"))

    async def arrived(_: Stage) -> list[int]:
        return seen

    async with client(url, name="good-events") as other:
        await other.subscribe("good-events/#", qos=1)
        listening = asyncio.create_task(listen(other))
        given = f"url='{url}', topic='good-events/{{{{k}}}}', {JSON}"
        yield Use(f"@sink(type='mqtt', {given})", "#", "level of a topic", arrived)
        listening.cancel()


async def websocket_client_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    seen: list[int] = []

    async def listen(connection: Any) -> None:
        async for message in connection:
            take(seen, message)

    async def arrived(_: Stage) -> list[int]:
        return seen

    async with websockets.asyncio.server.serve(listen, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        given = f"url='ws://127.0.0.1:{port}/in', {CHECKED}"
        access = NodeAccess(egress=(f"127.0.0.1:{port}",))
        yield Use(f"@sink(type='websocket', {given})", "{", "JSON", arrived, "1", access=access)


async def tcp_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    seen: list[int] = []

    async def listen(payload: bytes) -> None:
        take(seen, payload)

    async def arrived(_: Stage) -> list[int]:
        return seen

    servers = TcpServers()
    port = await servers.open("127.0.0.1", 0, "c", listen, NodeAccess())
    access = NodeAccess(egress=(f"127.0.0.1:{port}",))
    given = f"url='tcp://127.0.0.1:{port}/c', {CHECKED}"
    yield Use(f"@sink(type='tcp', {given})", "{", "JSON", arrived, "1", access=access)
    await servers.close("127.0.0.1", port, "c")


async def rdbms_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    path: Path = request.getfixturevalue("tmp_path")
    database = databases.new_database(request.getfixturevalue("postgresql"), path, "bad_events")
    with engine_of(database.database).begin() as connection:
        # A column that others have made, of a type that is none of a stream's.
        connection.execute(sa.text('create table "Rows" (k uuid, n int)'))

    async def arrived(_: Stage) -> list[int]:
        return [n for (n,) in database.rows('select n from "Rows" order by n')]

    given = f"jdbc.url='{database.url}', table.name='Rows', username='{USER}'"
    sink = f"@sink(type='rdbms', {given}, password='{PASSWORD}', @map(type='keyvalue'))"
    good = "123e4567-e89b-12d3-a456-426614174000"
    yield Use(sink, "\x00", "is uuid", arrived, good)


async def rdbms_call_use(request: pytest.FixtureRequest) -> AsyncIterator[Use]:
    path: Path = request.getfixturevalue("tmp_path")
    database = databases.new_database(request.getfixturevalue("postgresql"), path, "bad_calls")
    with engine_of(database.database).begin() as connection:
        connection.execute(sa.text("create table calls (k uuid, n int)"))

    async def stored(message: Any) -> None:
        await message.respond(b"{}")

    async def before(stage: Stage) -> None:
        await stage.client.subscribe(names.call_subject("Bad", "c", NO_STATUS), cb=stored)

    async def arrived(_: Stage) -> list[int]:
        return [n for (n,) in database.rows("select n from calls order by n")]

    given = f"jdbc.url='{database.url}', username='{USER}', password='{PASSWORD}', sink.id='c'"
    statement = "statement='insert into calls values (cast(? as uuid), ?)', parameters='k,n'"
    good = "123e4567-e89b-12d3-a456-426614174000"
    access = NodeAccess(changes_databases=True)
    sink = f"@sink(type='rdbms-call', {given}, {statement})"
    yield Use(sink, "x", "uuid", arrived, good, before, access)
