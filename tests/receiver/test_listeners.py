"""Streams that others listen to: server-sent events, WebSockets, and metrics of Prometheus."""

from __future__ import annotations

import asyncio
import http
import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import websockets.asyncio.client
import websockets.asyncio.server
from websockets.typing import Origin

from mesh.connect.contract import Context, NodeAccess, Record, UnavailableError
from mesh.jetstream.server import free_port
from mesh.receiver.types import arrivals
from mesh.receiver.types.listeners import Audience, sse_event
from mesh.receiver.types.prometheus_sink import Metric, PrometheusSink
from mesh.receiver.types.websocket_sink import WebSocketSink
from mesh.receiver.types.websocket_source import WebSocketSource
from mesh.testing.connectors import ConnectorScenario, Stage, conform
from tests.support.connectors import staged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

APP = """@App:name('{app}')
SOURCE define stream S (k string, n int);
SINK define stream T (k string, n int);
from S select k, n insert into T;
"""
METRIC = (
    "@sink(type='prometheus', metric.type='counter', metric.name='requests_total',"
    " value.attribute='n', server.url='http://127.0.0.1:PORT', @map(type='keyvalue'))"
)


def app(name: str, *, source: str = "", sink: str = "") -> str:
    found = APP.replace("SOURCE", source).replace("SINK", sink)
    return found.replace("{app}", name) if name else found


async def events_of(lines: AsyncIterator[str], count: int) -> list[tuple[str, Any]]:
    """The id and data of server-sent events."""
    found: list[tuple[str, Any]] = []
    name = ""
    async for line in lines:
        if line.startswith("id: "):
            name = line[4:]
        elif line.startswith("data: "):
            found.append((name, json.loads(line[6:])))
            if len(found) == count:
                return found
    raise AssertionError(found)


@pytest.mark.nats
async def test_a_page_listens_and_gets_what_it_missed_when_it_is_back(
    nats_server: NatsServer,
) -> None:
    url = f"http://127.0.0.1:{free_port()}/events"
    sink = (
        f"@sink(type='sse-server', server.url='{url}', allow.origin='http://page',"
        " @map(type='json', envelope='none'))"
    )

    async with staged(nats_server, app("Page", sink=sink)) as stage, httpx.AsyncClient() as web:
        instance = stage.start("sink-T")
        await stage.until_running(instance)
        async with web.stream("GET", url, headers={"Origin": "http://page"}) as answer:
            assert answer.headers["content-type"] == "text/event-stream"
            assert answer.headers["access-control-allow-origin"] == "http://page"
            lines = answer.aiter_lines()
            assert await anext(lines) == ": listening"
            await stage.publish("T", {"k": "a", "n": 1}, {"k": "b", "n": 2})
            found = await events_of(lines, 2)
            assert [event["n"] for _, event in found] == [1, 2]
        await stage.publish("T", {"k": "c", "n": 3})
        await stage.until("the third", lambda: instance._counts()["events_out"] == 3)
        again = {"Last-Event-ID": found[0][0], "Origin": "http://other"}
        async with web.stream("GET", url, headers=again) as answer:
            assert "access-control-allow-origin" not in answer.headers
            later = await events_of(answer.aiter_lines(), 2)
            assert [event["n"] for _, event in later] == [2, 3]
        assert (await web.post(url)).status_code == 405


@pytest.mark.nats
async def test_web_sockets_out_and_in(nats_server: NatsServer) -> None:
    port = free_port()
    sink = (
        f"@sink(type='websocket-server', host='127.0.0.1', port='{port}',"
        " @map(type='json', envelope='none'))"
    )

    source = f"@source(type='websocket', url='ws://127.0.0.1:{port}', @map(type='json'))"
    async with staged(nats_server, app("Sock", source=source, sink=sink)) as stage:
        sending = stage.start("sink-T")
        await stage.until_running(sending)
        receiving = stage.start("receiver-S")
        await stage.until_running(receiving)
        uri = f"ws://127.0.0.1:{port}"
        async with websockets.asyncio.client.connect(uri, proxy=None) as other:
            await stage.publish("T", {"k": "a", "n": 1}, {"k": "b", "n": 2})
            assert json.loads(await other.recv()) == {"k": "a", "n": 1}

        async def stored() -> bool:
            return [e["n"] for e in await stage.events("S")] == [1, 2]

        await stage.until("both", stored)
        with pytest.raises(websockets.exceptions.InvalidStatus):
            await websockets.asyncio.client.connect(uri, proxy=None, origin=Origin("http://evil"))
        await sending.stop()
        await stage.until(
            "the loss is shown", lambda: any(d.error for r in stage.reports for d in r.connectors)
        )


@pytest.mark.nats
def test_totals_are_exact(nats_server: NatsServer, tmp_path: Path) -> None:
    text = app("", sink=METRIC.replace("PORT", str(free_port())))

    async def send(stage: Stage) -> None:
        await stage.publish("T", {"k": "a", "n": 1}, {"k": "b", "n": 2})
        await stage.publish("T", {"k": "a", "n": -1}, {"k": "a", "n": 3})

    async def shown(stage: Stage) -> Any:
        url = text.partition("server.url='")[2].partition("'")[0]
        # Reading the authorities of TLS takes longer than the rest.
        async with httpx.AsyncClient(verify=False) as web:
            try:
                answer = await web.get(f"{url}/metrics")
            except httpx.HTTPError:
                return []
        return [line for line in answer.text.splitlines() if line.startswith("requests_total")]

    def is_whole(found: Any) -> bool:
        return 'requests_total{k="a"} 4' in found and 'requests_total{k="b"} 2' in found

    last: dict[str, list[str]] = {}

    async def kept(stage: Stage) -> Any:
        # The last instance has ended when the outcome is compared.
        found = await shown(stage)
        before = last.get(stage.spec.name, [])
        if found:
            before = last[stage.spec.name] = found
        return before if is_whole(before) else found

    use = ConnectorScenario(text, "sink-T", send, kept, is_whole)
    moments = asyncio.run(conform(nats_server.url, use, tmp_path))
    assert {"before write", "after store a position"} <= set(moments)


@pytest.mark.parametrize(("operation", "value"), [("add", 8), ("set", 3)])
async def test_a_gauge_is_added_to_or_set(operation: str, value: int) -> None:
    sink, port = PrometheusSink(), free_port()
    options = {
        "metric.type": "gauge", "value.attribute": "v", "publish.mode": "server",
        "gauge.operation": operation, "server.url": f"http://127.0.0.1:{port}",
    }  # fmt: skip
    await sink.open(Context("A", "G", options, NodeAccess(listen=("127.0.0.1:0-65535",))), None)
    payloads = [b'{"v":5,"k":"a"}', b'{"v":3,"k":"a"}']
    try:
        assert await sink.write([Record("k", one) for one in payloads]) == [None, None]
        assert f'G{{k="a"}} {value}\n' in sink._metric.text().decode()
    finally:
        await sink.close()


def test_labels_that_would_spoil_the_metric_are_refused() -> None:
    for kind, label in (("histogram", "le"), ("summary", "quantile"), ("counter", "__name__")):
        metric = Metric(kind, "m", "Text.", (1.0,))
        assert "label" in str(
            metric.added(b'{"v":1,"%s":"x"}' % label.encode(), "v", metric.totals)
        )
    metric = Metric("counter", "m", "Text.", ())
    long = json.dumps({"v": 1, "k": "x" * 300_000}).encode()
    assert "characters" in str(metric.added(long, "v", metric.totals))


def test_prometheus_reads_the_text() -> None:
    metric = Metric("histogram", "took", "Seconds.", (1.0, 0.5))
    for value in (0.1, 0.7, 3):
        payload = json.dumps({"v": value, "path": 'a"\\b'}).encode()
        assert metric.added(payload, "v", metric.totals) is None
    text = metric.text().decode()
    assert 'took_bucket{path="a\\"\\\\b",le="0.5"} 1\n' in text
    assert 'le="1"} 2\n' in text
    assert 'le="+Inf"} 3\n' in text
    for payload, reason in ((b'{"v":"x"}', "no number"), (b'{"v":1,"a-b":"x"}', "label")):
        assert reason in str(metric.added(payload, "v", metric.totals))
    if shutil.which("promtool"):
        call = ["promtool", "check", "metrics"]
        subprocess.run(call, input=metric.text(), check=True, capture_output=True)


async def test_a_listener_that_does_not_keep_up_is_ended_and_the_others_are_not() -> None:
    audience = Audience(2)
    slow, quick = audience.join(), audience.join()
    assert slow is not None
    assert quick is not None
    for number in range(6):
        audience.publish([(f"{number}.{at}", b"x") for at in range(2000)])
        while not quick.empty():
            quick.get_nowait()
    assert slow.qsize() == 1
    assert slow.get_nowait() is None
    audience.publish([("last", b"y")])
    assert quick.get_nowait() == ("last", b"y")


def test_a_payload_of_several_lines_is_one_event() -> None:
    assert sse_event("7.0", b"a\r\nb\rc") == b"id: 7.0\ndata: a\ndata: b\ndata: c\n\n"


async def test_a_server_leads_a_websocket_source_to_no_other_address() -> None:
    """Not past receiver.egress."""
    reached: list[str] = []

    def lead(connection: Any, request: Any) -> Any:
        reached.append(request.path)
        answer = connection.respond(http.HTTPStatus.FOUND, "")
        answer.headers["Location"] = f"ws://127.0.0.1:{port}/inside"
        return answer

    async def serve(connection: Any) -> None:
        await connection.wait_closed()

    async with websockets.asyncio.server.serve(
        serve, "127.0.0.1", 0, process_request=lead
    ) as server:
        (port,) = {one.getsockname()[1] for one in server.sockets}
        source = WebSocketSource()
        options = {"url": f"ws://127.0.0.1:{port}/outside"}
        with pytest.raises(UnavailableError, match="302"):
            await source.open(Context("A", "S", options), None)
        await source.close()
    assert reached == ["/outside"]


async def test_a_server_waits_while_bytes_of_its_messages_are_not_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrivals, "BYTES_MAX", 8 << 20)

    async def serve(connection: Any) -> None:
        for _ in range(60):
            await connection.send(bytes(1 << 20))
        await connection.wait_closed()

    async with websockets.asyncio.server.serve(serve, "127.0.0.1", 0, compression=None) as server:
        (port,) = {one.getsockname()[1] for one in server.sockets}
        source, found, most = WebSocketSource(), 0, 0
        options = {"url": f"ws://127.0.0.1:{port}/"}
        await source.open(Context("A", "S", options), None)
        while found < 60:
            batch = await source.read()
            most = max(most, source._arrived._bytes)
            if batch is not None:
                found += len(batch.payloads)
                await source.committed(batch.position)
        await source.close()
    assert most <= 3 << 20


async def test_a_sink_whose_server_goes_away_is_opened_again() -> None:
    got: list[Any] = []

    async def serve(connection: Any) -> None:
        got.append(await connection.recv())
        got.append(await connection.recv())
        await connection.close()

    async with websockets.asyncio.server.serve(serve, "127.0.0.1", 0) as server:
        (port,) = {one.getsockname()[1] for one in server.sockets}
        sink = WebSocketSink()
        await sink.open(Context("A", "T", {"url": f"ws://127.0.0.1:{port}/"}), None)
        assert await sink.write([Record("1", b"a"), Record("2", b"\xff")]) == [None, None]
        await sink._connection.wait_closed()
        with pytest.raises(UnavailableError) as lost:
            await sink.write([Record("3", b"c")])
        assert lost.value.is_lost
        await sink.close()
    assert got == ["a", b"\xff"]
