"""The query console: answers, errors in place, changes by permission, an answer that is renewed."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from mesh.manager.queries import QueryAnswer
from tests.support.dashboard import site
from tests.support.forms import send

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer
    from tests.support.dashboard import Site

pytestmark = pytest.mark.nats

APP = """@App:name('Shop')
define stream Orders (item string, price double);
define table Known (item string);
@info(name='keep') from Orders select item insert into Known;
"""
TEXT = "from Known select item"


def answering(at: Site, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Rows without workers; returns what was asked for."""
    asked: list[dict[str, Any]] = []

    async def ask(app: str, query: str, **more: Any) -> QueryAnswer:
        asked.append({"app": app, "query": query, **more})
        rows = json.dumps([["<script>window.hacked=1</script>\u202e"], [f"row {len(asked)}"]])
        return QueryAnswer(records=rows.encode(), columns=(("item", "string"),), positions={})

    monkeypatch.setattr(at.service.queries, "ask", ask)
    return asked


@pytest.mark.slow
async def test_an_answer_is_renewed_while_its_page_is_open(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        site(nats_server) as at,
        httpx.AsyncClient(base_url=at.url, timeout=60) as client,
    ):
        await at.service.deploy(APP)
        wrong = await send(client, "/query", app="Shop", text="from Known select\n  nothing")
        assert wrong.status_code == 400
        assert "MESH-L" in wrong.text
        assert "<mark>nothing</mark>" in wrong.text
        asked = answering(at, monkeypatch)
        once = await send(client, "/query", app="Shop", text=TEXT)
        assert "row 1" in once.text
        assert "<script>window" not in once.text
        assert "\\u202e" in once.text
        assert asked.pop() == {
            "app": "Shop", "query": TEXT, "partial": False, "may_change": True,
        }  # fmt: skip
        again = await send(client, "/query", app="Shop", text=TEXT, every="2")
        where = again.headers["location"]
        assert where == "/query?app=Shop&text=from+Known+select+item&every=2&partial=0"
        assert not asked
        await _open(client, where)
        # The page that renews itself may change nothing.
        assert {one["may_change"] for one in asked} == {False}
        # Another text in the URL is not asked for unless the page is to be renewed.
        count = len(asked)
        await client.get(where.replace("every=2", "every=1"))
        assert len(asked) == count


async def _open(client: httpx.AsyncClient, where: str) -> None:
    seen: list[str] = []
    headers = {"Accept": "text/event-stream"}
    async with asyncio.timeout(30), client.stream("GET", where, headers=headers) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: ") and "live_answer" in line:
                seen.append(json.loads(line[6:])["live_answer"])
            if len(seen) == 2:
                break
    assert "row 1" in seen[0]
    assert "row 2" in seen[1]
