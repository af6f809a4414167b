"""Source ``http``: answers after the ack, keys, logins, back-pressure, origins."""

from __future__ import annotations

import asyncio
import gzip
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from mesh.model.cluster import InstanceState
from tests.support.connectors import staged
from tests.support.source_apps import APP

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats

HTTP = "@source(type='http', receiver.url='http://127.0.0.1:0/in'{}, @map(type='json'))"
GOOD = b'{"event":{"k":"a","n":1}}'


async def posting(stage: Any, **changes: Any) -> tuple[Any, str]:
    instance = stage.start("receiver-S", **changes)
    status = await stage.until_running(instance)
    return instance, status.connectors[0].endpoint


async def test_a_request_is_answered_once_its_events_are_stored(nats_server: NatsServer) -> None:
    text = APP.format(HTTP.format(", max.body='1000'"), "")
    async with staged(nats_server, text) as stage, httpx.AsyncClient() as client:
        _, url = await posting(stage)
        answers = await asyncio.gather(*(client.post(url, content=GOOD) for _ in range(20)))
        assert [a.status_code for a in answers] == [200] * 20
        assert answers[0].json() == {"accepted": 1}
        assert len(await stage.events("S")) == 20
        several = await client.post(url, content=b"[%b,%b]" % (GOOD, GOOD))
        assert several.json() == {"accepted": 2}
        wrong = await client.post(url, content=b'[%b,{"event":{"k":"a","n":"x"}}]' % GOOD)
        assert wrong.status_code == 400
        assert wrong.json()["index"] == 1
        assert '"n"' in wrong.json()["reason"]
        assert (await client.post(url, content=b"x" * 1001)).status_code == 413
        assert (await client.get(url)).status_code == 405
        elsewhere = await client.post(f"{url}x", content=GOOD)
        reason = {"reason": "nothing is served at this path"}
        assert (elsewhere.status_code, elsewhere.json()) == (404, reason)
        for kind, body, status in (
            ("gzip", gzip.compress(GOOD), 200),
            ("gzip", gzip.compress(b" " * 1001), 413),
            ("gzip", gzip.compress(GOOD)[:-5], 400),
            ("gzip", GOOD, 400),
            ("x-gzip", gzip.compress(GOOD), 200),
            ("gzip", gzip.compress(GOOD + b"\n") + gzip.compress(GOOD), 200),
            ("gzip", gzip.compress(GOOD) + b"more", 400),
            ("br", GOOD, 415),
        ):
            packed = await client.post(url, content=body, headers={"Content-Encoding": kind})
            assert packed.status_code == status
        assert len(await stage.events("S")) == 26


async def test_lines_of_one_header_are_one_property(nats_server: NatsServer) -> None:
    mapping = "@map(type='json', @attributes(k='trp:x-k', n='n'))"
    text = APP.format(HTTP.format("").replace("@map(type='json')", mapping), "")
    async with staged(nats_server, text) as stage, httpx.AsyncClient() as client:
        _, url = await posting(stage)
        lines = [("X-K", "a"), ("x-k", "b")]
        answer = await client.post(url, content=b'{"n":1}', headers=lines)
        assert answer.status_code == 200
        assert await stage.events("S") == [{"k": "a, b", "n": 1}]


async def test_properties_are_texts_in_utf_8(nats_server: NatsServer) -> None:
    mapping = (
        "@map(type='json', fail.on.missing.attribute='false', "
        "@attributes(k='trp:x-k', q='trp:_q', n='n'))"
    )
    text = APP.format(HTTP.format("").replace("@map(type='json')", mapping), "")
    text = text.replace("S (k string,", "S (q string, k string,")
    async with staged(nats_server, text) as stage, httpx.AsyncClient() as client:
        _, url = await posting(stage)
        for head, query in ((b"K\xc3\xb6ln", "K%C3%B6ln"), (b"K\xf6ln", "K%F6ln"), (b"", "")):
            answer = await client.post(
                f"{url}?q={query}", content=b'{"n":1}', headers=[(b"x-k", head)]
            )
            assert answer.status_code == 200
        found = [(event["k"], event["q"]) for event in await stage.events("S")]
        # A parameter in another encoding has no text, and none is made up.
        assert found == [("Köln", "Köln"), ("Köln", None), ("", "")]


async def test_a_key_is_stored_once(nats_server: NatsServer) -> None:
    text = APP.format(HTTP.format(""), "")
    async with staged(nats_server, text) as stage, httpx.AsyncClient() as client:
        _, url = await posting(stage)
        for key in ("1", "2", "1"):
            answer = await client.post(url, content=GOOD, headers={"Idempotency-Key": key})
            assert answer.status_code == 200
        assert len(await stage.events("S")) == 2


async def test_headers_without_a_value_say_nothing(nats_server: NatsServer) -> None:
    text = APP.format(HTTP.format(""), "")
    async with staged(nats_server, text) as stage, httpx.AsyncClient() as client:
        _, url = await posting(stage)
        for number in (1, 2):
            heads = {
                "Idempotency-Key": "", "Content-Encoding": "", "Content-Type": "text/json; charset="
            }  # fmt: skip
            body = GOOD.replace(b"1", b"%d" % number)
            assert (await client.post(url, content=body, headers=heads)).status_code == 200
        heads = {"Content-Encoding": "GZIP, identity"}
        packed = await client.post(url, content=gzip.compress(GOOD), headers=heads)
        assert packed.status_code == 200
        assert [event["n"] for event in await stage.events("S")] == [1, 2, 1]


@pytest.mark.slow
async def test_logins_and_back_pressure(nats_server: NatsServer) -> None:
    options = ", ref='vault', basic.auth.enabled='true', max.concurrent='1'"
    text = APP.format(HTTP.format(options), "")
    async with staged(nats_server, text) as stage, httpx.AsyncClient() as client:
        _, url = await posting(stage)
        assert (await client.post(url, content=GOOD)).status_code == 401
        assert (await client.post(url, content=GOOD, auth=("u", "x"))).status_code == 401
        login = ("u", "hunter2")
        answers = await asyncio.gather(
            *(client.post(url, content=GOOD, auth=login) for _ in range(8))
        )
        statuses = {a.status_code for a in answers}
        assert 200 in statuses
        assert statuses <= {200, 429}
        assert all("retry-after" in a.headers for a in answers if a.status_code == 429)
        nats_server.process.kill()
        nats_server.process.wait()
        lost = await client.post(url, content=GOOD, auth=login, timeout=20)
        assert lost.status_code == 503


async def test_pages_of_an_allowed_origin_post(nats_server: NatsServer) -> None:
    text = APP.format(HTTP.format(", allow.origin='http://page'"), "")

    async with staged(nats_server, text) as stage, httpx.AsyncClient() as client:
        _, url = await posting(stage)
        asks = {"Access-Control-Request-Method": "POST"}
        for origin, is_allowed in (("http://page", True), ("http://other", False)):
            own = {"Origin": origin}
            answers = [
                await client.options(url, headers={**own, **asks}),
                await client.post(url, content=b"no JSON", headers=own),
            ]
            assert [a.status_code for a in answers] == [204, 400]
            found = [a.headers.get("access-control-allow-origin") for a in answers]
            assert found == [origin if is_allowed else None] * 2
        assert "idempotency-key" in answers[0].headers["access-control-allow-headers"]


async def test_a_stopped_source_refuses_and_its_address_is_free(nats_server: NatsServer) -> None:
    text = APP.format(HTTP.format(""), "")
    async with staged(nats_server, text) as stage, httpx.AsyncClient() as client:
        instance, url = await posting(stage)
        await instance.stop()
        with pytest.raises(httpx.ConnectError):
            await client.post(url, content=GOOD)
        assert stage.reports[-1].state is InstanceState.STOPPED
