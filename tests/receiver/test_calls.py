"""Requests that wait for an event, and answers that become events, on any worker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from mesh.connect.contract import NodeAccess
from mesh.receiver.http_server import HttpServers, Request, Response
from mesh.testing.connectors import staged

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats

SERVICE = """@App:name('Service')
@source(type='{}', source.id='adder', receiver.url='http://127.0.0.1:0/add',
        connection.timeout='{}',
        @map(type='json', @attributes(id='trp:messageId', n='$.event.n')))
define stream S (id string, n int);
@sink(type='{}', source.id='adder', message.id='{{{{id}}}}', headers="'X-N:{{{{n}}}}'",
      @map(type='json', @payload('{{{{n}}}}')))
define stream T (id string, n int);
from S select id, n insert into T;
"""
CALL = """@App:name('Call')
@sink(type='{}', sink.id='c.*', publisher.url='{}', @map(type='json'))
define stream T (k string, n int);
@source(type='{}', sink.id='c.*', http.status.code='2[0-9]+',
        @map(type='json', @attributes(k='trp:k', n='trp:n', got='$.got')))
define stream S (k string, n string, got int);
@source(type='{}', sink.id='c.*', http.status.code='404',
        @map(type='text', regex.A='(.*)', @attributes(what='A[1]')))
define stream Missing (what string);
from S select k, n insert into U;
from Missing select what insert into V;
"""
DOWNLOAD = """@App:name('Load')
@sink(type='http-call', sink.id='files', publisher.url='{}', downloading.enabled='true',
      download.path='{}/{{{{name}}}}', @map(type='json'))
define stream T (name string);
@source(type='http-call-response', sink.id='files', http.status.code='2[0-9]+',
        @map(type='text', regex.A='(.*)', @attributes(name='trp:name', path='A[1]')))
define stream S (name string, path string);
from S select name insert into T;
"""


@pytest.mark.parametrize(
    ("source", "sink"),
    [("http-service", "http-service-response"), ("http-request", "http-response")],
)
async def test_a_request_is_answered_with_the_event_of_its_id(
    nats_server: NatsServer, source: str, sink: str
) -> None:
    text = SERVICE.format(source, "20000", sink)
    async with staged(nats_server.url, text) as stage, httpx.AsyncClient() as client:
        status = await stage.until_running(stage.start("receiver-S"))
        await stage.until_running(stage.start("sink-T"))

        async def post(n: int) -> httpx.Response:
            return await client.post(status.connectors[0].endpoint, json={"event": {"n": n}})

        posting = [asyncio.create_task(post(n)) for n in range(3)]

        async def stored() -> Any:
            return len(await stage.events("S")) == 3

        await stage.until("3 events", stored)
        # The query group of a worker.
        for event in reversed(await stage.events("S")):
            await stage.publish("T", {**event, "n": event["n"] + 10})
        answers = await asyncio.gather(*posting)
        assert [(a.status_code, a.text, a.headers["x-n"]) for a in answers] == [
            (200, str(n), str(n)) for n in (10, 11, 12)
        ]
        await stage.publish("T", {"id": "0123456789abcdef.1", "n": 1}, {"id": "*", "n": 2})

        async def entries() -> Any:
            return len(await stage.errors()) == 2

        await stage.until("2 entries", entries)
        late, wrong = await stage.errors()
        assert late["reason"] == "no request waits for the answer"
        assert "is not a token of a subject" in wrong["reason"]
        refused = await client.post(status.connectors[0].endpoint, content=b"no JSON")
        assert refused.status_code == 400


async def test_a_request_without_an_answer_ends_in_time(nats_server: NatsServer) -> None:
    text = SERVICE.format("http-service", "50", "http-service-response")
    async with staged(nats_server.url, text) as stage, httpx.AsyncClient() as client:
        status = await stage.until_running(stage.start("receiver-S"))
        answer = await client.post(status.connectors[0].endpoint, json={"event": {"n": 1}})
        assert answer.status_code == 504


@pytest.mark.parametrize(
    ("sink", "source"), [("http-call", "http-call-response"), ("http-request", "http-response")]
)
async def test_answers_become_events_with_the_attributes_of_their_requests(
    nats_server: NatsServer, sink: str, source: str
) -> None:
    servers = HttpServers()

    async def answer(request: Request) -> Response:
        n = int((await request.body(1000) or b"").rpartition(b":")[2].rstrip(b"}"))
        if n == 3:
            return Response(422, b"no")
        return Response(404, b"nothing") if n == 2 else Response(201, b'{"got":%d}' % (n * 2))

    port = await servers.open("127.0.0.1", 0, "/", answer)
    try:
        text = CALL.format(sink, f"http://127.0.0.1:{port}/", source, source)
        async with staged(nats_server.url, text) as stage:
            for group in ("receiver-S", "receiver-Missing"):
                await stage.until_running(stage.start(group))
            stage.start("sink-T")
            await stage.publish("T", *({"k": f"k{n}", "n": n} for n in (1, 2, 3, 4)))

            async def whole() -> Any:
                counts = [len(await stage.events(one)) for one in ("S", "Missing")]
                return [*counts, len(await stage.errors())] == [2, 1, 1]

            await stage.until("3 answers and a refusal", whole)
            assert await stage.events("S") == [
                {"k": "k1", "n": "1", "got": 2},
                {"k": "k4", "n": "4", "got": 8},
            ]
            assert await stage.events("Missing") == [{"what": "nothing"}]
            (entry,) = await stage.errors()
            assert entry["reason"] == "answered 422: no"
    finally:
        await servers.close("127.0.0.1", port, "/")


async def test_an_answer_is_written_to_the_file_of_its_event(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    servers = HttpServers()
    body = bytes(range(256)) * 100

    async def answer(request: Request) -> Response:
        return Response(200, body)

    port = await servers.open("127.0.0.1", 0, "/", answer)
    try:
        text = DOWNLOAD.format(f"http://127.0.0.1:{port}/", tmp_path / "in")
        access = NodeAccess((str(tmp_path / "in"),))
        async with staged(nats_server.url, text, access) as stage:
            await stage.until_running(stage.start("receiver-S"))
            await stage.publish("T", {"name": "b.bin"}, {"name": "../out"})
            stage.start("sink-T")

            async def recorded() -> Any:
                return await stage.events("S") and await stage.errors()

            await stage.until("a file and a refusal", recorded)
            path = tmp_path / "in" / "b.bin"
            assert await stage.events("S") == [{"name": "b.bin", "path": str(path)}]
            assert path.read_bytes() == body
            assert [one.name for one in path.parent.iterdir()] == ["b.bin"]
            (entry,) = await stage.errors()
            assert "a segment of a path" in entry["reason"]
            assert not (tmp_path / "out").exists()
    finally:
        await servers.close("127.0.0.1", port, "/")
