"""Streams that others listen to: server-sent events and WebSockets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import websockets.asyncio.client
import websockets.asyncio.server
from websockets.typing import Origin

from mesh.jetstream.server import free_port
from mesh.receiver.types.listeners import Audience, sse_event
from tests.support.connectors import staged
from tests.support.listened import app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mesh.jetstream.server import NatsServer


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
        await stage.until("the third", lambda: instance.status().events_out == 3)
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


async def test_large_payloads_wait_for_no_listener_beyond_their_bytes() -> None:
    audience = Audience(1000)
    slow, quick = audience.join(), audience.join()
    assert slow is not None
    assert quick is not None
    payload = b"x" * (1 << 20)
    for number in range(40):
        audience.publish([(str(number), payload)])
        while not quick.empty():
            assert quick.get_nowait() == (str(number), payload)
    assert quick.size == 0
    assert (slow.qsize(), slow.size) == (1, 0)
    # One that comes back gets as many of the last ones.
    late = audience.join("30")
    assert late is not None
    assert late.qsize() == 9
    for last, count in (("10", 16), ("39", 0), ("", 0), ("9.x", 0), ("9" * 50, 0)):
        other = audience.join(last)
        assert other is not None
        assert other.qsize() == count


async def test_a_listener_gets_no_event_again_that_it_names() -> None:
    audience = Audience(10)
    back = audience.join("inc/7.1")
    assert back is not None
    # Events that come again after a kill, and then one whose app was deployed again.
    audience.publish([(name, b"x") for name in ("inc/7.0", "inc/7.1", "inc/7.2", "new/1.0")])
    assert [back.get_nowait(), back.get_nowait()] == [("inc/7.2", b"x"), ("new/1.0", b"x")]
    assert back.empty()
    other = audience.join("old/99.0")
    assert other is not None
    assert other.qsize() == 4


def test_a_payload_of_several_lines_is_one_event() -> None:
    assert sse_event("7.0", b"a\r\nb\rc") == b"id: 7.0\ndata: a\ndata: b\ndata: c\n\n"
