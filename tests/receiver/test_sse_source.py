"""Source ``sse``: the format of the stream, the position, and servers that answer otherwise."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.connect.contract import Context, UnavailableError
from mesh.receiver.http_server import HttpServers, Request, Response
from mesh.receiver.types.listeners import sse_event
from mesh.receiver.types.sse_source import EventStream, ServerEvent, SseSource
from mesh.testing.connectors import ConnectorScenario, conform

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from mesh.testing.connectors import Stage

APP = """@App:name('{app}')
@source(type='sse', event.source.url='URL', @map(type='json'))
define stream S (n int);
from S select n insert into T;
"""
KIND = (b"content-type", b"text/event-stream")


def read(stream: bytes, *cuts: int) -> list[tuple[bytes, str]]:
    """Data and ids of the events of a stream that comes in parts."""
    parser, found, start = EventStream(), [], 0
    for end in (*sorted(cuts), len(stream)):
        found += [(one.data, one.id) for one in parser.feed(stream[start:end])]
        start = end
    return found


def test_fields_comments_and_ids_are_those_of_the_standard() -> None:
    stream = (
        b"\xef\xbb\xbf: a comment\nevent: price\nid: 7\ndata: {\r\ndata:  1\rdata:}\n\n"
        b"retry: 5\n\ndata\n\nid\ndata: last\n\nid: 9\x00\ndata: x:y\n\ndata: no end\n"
    )
    assert read(stream) == [(b"{\n 1\n}", "7"), (b"", "7"), (b"last", ""), (b"x:y", "")]


def test_an_id_that_no_request_could_have_is_none() -> None:
    for odd in (b"a\x01b", b"a\tb", b" a", b"a ", b"x" * 1001, b"\x7f", b"\x00"):
        assert read(b"id: 7\ndata: a\n\nid: %b\ndata: b\n\n" % odd) == [(b"a", "7"), (b"b", "7")]
    for usual in ("", "a b", "\u00e9\u4e2d", "x" * 1000, "-"):
        assert read(f"id: {usual}\ndata: a\n\n".encode()) == [(b"a", usual)]


async def test_a_source_continues_after_an_id_beyond_ascii() -> None:
    asked: asyncio.Queue[str] = asyncio.Queue()

    async def stream() -> AsyncGenerator[bytes]:
        yield sse_event("\u00e9-2", b"{}")
        await asyncio.Event().wait()

    async def answer(request: Request) -> Response:
        asked.put_nowait(request.headers.get("last-event-id", ""))
        return Response(200, b"", (KIND,), stream())

    async with serving(answer) as url:
        source = SseSource()
        try:
            await source.open(Context("A", "S", {"event.source.url": url}), {"id": "\u00e9-1"})
            batch = await source.read()
        finally:
            await source.close()
    assert await asked.get() == "\u00e9-1"
    assert batch is not None
    assert batch.position["id"] == "\u00e9-2"


PAYLOAD = st.text("ab:\n é", max_size=6).map(str.encode)


@given(st.lists(PAYLOAD, max_size=4), st.data())
def test_events_are_the_same_however_the_stream_is_cut(
    payloads: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(sse_event(str(n), one) for n, one in enumerate(payloads))
    stream = stream.replace(b"\n", data.draw(st.sampled_from([b"\n", b"\r", b"\r\n"]))) + b":"
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=5))
    assert read(stream, *cuts) == [(one, str(n)) for n, one in enumerate(payloads)]


def test_names_are_the_same_in_each_read_and_others_after_a_new_beginning() -> None:
    def names(stream: bytes, last: str = "") -> list[str]:
        return [one.name() for one in EventStream(last).feed(stream)]

    one, two = sse_event("1", b"a"), sse_event("2", b"b")
    first = names(one + two)
    assert first[1:] == names(two, "1")
    assert names(one, "2") != first[:1]
    assert names(b"data: a\n\n") == [""]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_an_event_that_is_too_large_costs_only_itself(end: bytes) -> None:
    parser = EventStream()
    lines = b"id: 2\n" + b"data: x\n" + (b"data: " + bytes(1 << 20) + b"\n") * 17 + b"\n"
    line = b"id: 4\ndata: " + bytes(17 << 20) + b"\n\n"
    comment = b": " + bytes(17 << 20) + b"\n"
    good = [b"id: %d\ndata: x\n\n" % n for n in (1, 3, 5)]
    stream = (good[0] + lines + good[1] + comment + line + good[2]).replace(b"\n", end) + b":"
    found: list[ServerEvent] = []
    for at in range(0, len(stream), 100_003):
        found += parser.feed(stream[at : at + 100_003])
        assert len(parser._rest) + parser._size <= 16 << 20
    assert [one.id for one in found] == ["1", "2", "3", "4", "5"]
    assert [one.is_too_large for one in found] == [False, True, False, True, False]
    assert [one.data for one in found] == [b"x", b"", b"x", b"", b"x"]


async def test_an_event_that_is_too_large_is_refused_with_its_position() -> None:
    async def stream() -> AsyncGenerator[bytes]:
        yield sse_event("1", bytes(17 << 20)) + sse_event("2", b"{}")
        await asyncio.Event().wait()

    async def answer(_: Request) -> Response:
        return Response(200, b"", (KIND,), stream())

    async with serving(answer) as url:
        source = SseSource()
        try:
            await source.open(Context("A", "S", {"event.source.url": url}), None)
            while (batch := await source.read()) is None:
                pass
        finally:
            await source.close()
    assert (batch.payloads, batch.position["id"]) == ([b"", b"{}"], "2")
    assert batch.refused == {0: "the event has more than 16 MB"}


@asynccontextmanager
async def serving(answer: Any) -> AsyncIterator[str]:
    """The address of a stream of its own server."""
    servers = HttpServers()
    port = await servers.open("127.0.0.1", 0, "/events", answer)
    try:
        yield f"http://127.0.0.1:{port}/events"
    finally:
        await servers.close("127.0.0.1", port, "/events")


@pytest.mark.slow
async def test_a_stream_with_ids_is_read_exactly_once(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    payloads = [b'{"n":0}', b'{"n":"x"}', b'{"n":1}', b'[{"n":2},{"n":3}]']

    async def stream(last: str) -> AsyncGenerator[bytes]:
        for number, payload in enumerate(payloads, 1):
            if number > int(last or 0):
                yield sse_event(str(number), payload)
        await asyncio.Event().wait()

    async def answer(request: Request) -> Response:
        return Response(200, b"", (KIND,), stream(request.headers.get("last-event-id", "")))

    async def send(_: Stage) -> None:
        """The server has all of it already."""

    async def stored(stage: Stage) -> Any:
        bad = [entry["data"] for entry in await stage.errors()]
        return [row["n"] for row in await stage.events("S")], bad

    async with serving(answer) as url:
        use = ConnectorScenario(
            APP.replace("URL", url), "receiver-S", send, stored,
            lambda found: len(found[0]) + len(found[1]) >= 5,
        )  # fmt: skip
        moments = await conform(nats_server.url, use, tmp_path)
    assert {"before publish", "after store a position", "before committed"} <= set(moments)


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (Response(204), "content of type none"),
        (Response(200, b"{}", ((b"content-type", b"application/json"),)), "application/json"),
        (Response(302, b"", ((b"location", b"http://127.0.0.1:1/"), KIND)), "302"),
        (Response(503), "503"),
    ],
)
async def test_another_answer_is_no_stream(response: Response, reason: str) -> None:
    async def answer(_: Request) -> Response:
        return response

    async with serving(answer) as url:
        source = SseSource()
        with pytest.raises(UnavailableError, match=reason):
            await source.open(Context("A", "S", {"event.source.url": url}), None)
        await source.close()


async def until_lost(source: SseSource) -> None:
    while True:
        await source.read()


async def test_the_request_has_the_login_and_the_end_is_noticed() -> None:
    asked: list[Request] = []

    async def stream() -> AsyncGenerator[bytes]:
        yield b"id: 5\ndata: a\n\n"

    async def answer(request: Request) -> Response:
        asked.append(request)
        return Response(200, b"", (KIND,), stream())

    async with serving(answer) as url:
        source = SseSource()
        options = {
            "event.source.url": url, "basic.auth.username": "u", "basic.auth.password": "p",
            "headers": (("X-Key", "k"),), "method": "post",
        }  # fmt: skip
        await source.open(Context("A", "S", options), {"id": "4", "batch": 9})
        batch = await source.read()
        with pytest.raises(UnavailableError, match="ended"):
            await until_lost(source)
        await source.close()
    assert batch is not None
    assert (batch.payloads, batch.position["id"]) == ([b"a"], "5")
    assert asked[0].method == "POST"
    headers = asked[0].headers
    assert (headers["last-event-id"], headers["x-key"]) == ("4", "k")
    assert headers["authorization"] == "Basic dTpw"
