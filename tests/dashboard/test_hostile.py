"""Hostile payloads on the pages: shown escaped and cut, whatever a publisher has sent."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import httpx
import orjson
import pytest

from mesh.model import names
from mesh.model.cluster import InstanceState
from tests.support.dashboard import site

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer
    from tests.support.dashboard import Site

pytestmark = pytest.mark.nats

APP = """@App:name('Shop')
define stream Orders (item string, price double);
@info(name='dear') from Orders[price > 100.0] select item insert into DearOrders;
"""
SCRIPT = "</pre><script>window.hacked=1</script><img src=x onerror=alert(1)>"
TURNED = "\u202e\u2066\u200b\u0007\x1b[31m"
PAYLOADS: tuple[bytes, ...] = (
    orjson.dumps({"item": SCRIPT + TURNED, "price": 1.0}),
    b'{"item":"' + b"x" * 900_000 + b'","price":1.0}',
    b"\xff\xfe\x00\x01" * 5000,
    b"[" * 50_000,
    b"",
    b"\x00" * 300,
    b'{"item": "a", "price": 1e999, "' + b"k" * 5000 + b'": {}}',
)
#: Bytes of a page with all of them.
PAGE_MAX = 150_000


async def fill(at: Site) -> None:
    for payload in PAYLOADS:
        await at.js.publish(names.subject("Shop", "Orders"), payload)
        entry: dict[str, Any] = {
            "stream": SCRIPT, "group": SCRIPT, "query": SCRIPT, "sequence": 7, "index": 0,
            "time_ms": 1_795_440_000_000, "reason": SCRIPT + TURNED + "y" * 5000,
            "data": payload.decode("latin-1")[:900_000],
        }  # fmt: skip
        await at.js.publish(names.error_subject("Shop"), orjson.dumps(entry))
    # What is no entry at all.
    for junk in (b"", b"[1]", b'"text"', b"{}", b"\xff\x00", b'{"reason": {"a": [1]}, "data": 7}'):
        await at.js.publish(names.error_subject("Shop"), junk)


@pytest.mark.slow
async def test_nothing_that_a_publisher_sends_runs_hides_or_floods(nats_server: NatsServer) -> None:
    async with (
        site(nats_server) as at,
        httpx.AsyncClient(base_url=at.url, timeout=60) as client,
    ):
        at.start_worker("w1")
        await at.service.deploy(APP)
        await at.until_running("Shop")
        at.states["Shop-default-1"] = {
            "state": InstanceState.RETRYING, "error": SCRIPT + TURNED + "z" * 20_000,
        }  # fmt: skip
        await fill(at)
        async with asyncio.timeout(30):
            # A view in memory: it changes with the reports of the worker.
            while (await at.service.status("Shop")).state != "failing":  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        instance = (await at.service.status("Shop")).instances[0].instance
        for path in (
            "/", "/apps/Shop", "/apps/Shop?tab=errors", "/apps/Shop?tab=instances",
            f"/apps/Shop/i/{instance}", "/apps/Shop/s/Orders", "/apps/Shop/s/Orders?q=script",
            "/errors", "/errors?app=Shop", "/story?app=Shop", "/nodes/w1",
        ):  # fmt: skip
            check(path, await client.get(path, headers={"Accept": "text/html"}))
        await streamed(client, "/apps/Shop/s/Orders")


def check(path: str, answer: httpx.Response) -> None:
    assert answer.status_code == 200, (path, answer.text[:2000])
    harmless(path, answer.text)
    scripts = re.findall(r"<script[^>]*>", answer.text)
    assert all(re.fullmatch(r'<script src="/static/[\w./]+" defer>', one) for one in scripts), path


def harmless(path: str, text: str) -> None:
    assert "<img" not in text, path
    assert "<script>window" not in text, path
    assert not set(TURNED.replace("[31m", "")) & set(text), path
    assert len(text) < PAGE_MAX, (path, len(text))


async def streamed(client: httpx.AsyncClient, path: str) -> None:
    """The parts of an open page are escaped as the page is."""
    headers = {"Accept": "text/event-stream"}
    async with asyncio.timeout(30), client.stream("GET", path, headers=headers) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                for part in orjson.loads(line[6:]).values():
                    harmless(path, part)
                return
