"""Search over apps, streams and errors: what a user may not see is not found, and is audited."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import orjson
import pytest

from mesh.api.users import hash_of
from mesh.jetstream.directory import DirectoryUser
from mesh.model import names
from mesh.model.access import ROLES, Grant
from tests.support.dashboard import site
from tests.support.load import until

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer
    from tests.support.dashboard import Site

TEXT = """@App:name('{0}')
define stream {0}Orders (item string, price double);
@dist(execGroup='dear') from {0}Orders[price > 10.0] select item, price insert into Dear;
"""
PASSWORD = "twelve letters"


async def _fill(at: Site) -> None:
    for app in ("Shop", "Bank"):
        await at.service.deploy(TEXT.format(app))
        for number in range(2):
            entry: dict[str, Any] = {
                "stream": f"{app}Orders",
                "reason": "price is missing",
                "group": "dear",
            }
            entry |= {"time_ms": 1_795_440_000_000, "data": f'{{"item":"<i>pen{number}"}}'}
            await at.js.publish(names.error_subject(app), orjson.dumps(entry))
    hashed = await asyncio.to_thread(hash_of, "root", PASSWORD)
    for name, role, apps in (("root", "admin", "*"), ("shop", "admin", "Shop*"),
                             ("vic", "viewer", "Shop*"), ("oli", "operator", "*")):  # fmt: skip
        grants = (Grant(ROLES[role], apps),)
        await at.directory.put_user(DirectoryUser(name, hashed, grants, "root", 1, True))


@pytest.mark.slow
async def test_what_a_user_may_not_see_is_not_found(nats_server: NatsServer) -> None:
    async with (
        site(nats_server, anonymous=False) as at,
        httpx.AsyncClient(base_url=at.url, timeout=60) as client,
    ):
        await _fill(at)

        async def find(user: str, text: str) -> str:
            client.cookies.clear()
            await client.post("/login", data={"user": user, "password": PASSWORD})
            found = await client.get("/search", params={"q": text})
            assert found.status_code == 200, found.text
            return found.text

        async def has_counted() -> bool:
            return "2 of Bank" in await find("root", "is missing")

        await until(has_counted)
        whole = await find("root", "oRDERS")
        assert 'href="/apps/Shop/s/ShopOrders"' in whole
        assert 'href="/apps/Bank/s/BankOrders"' in whole
        assert 'href="/errors?app=Bank&amp;reason=price%20is%20missing"' in whole
        some = await find("shop", "orders")
        assert 'href="/apps/Shop/s/ShopOrders"' in some
        assert "Bank" not in some
        assert "Bank" not in await find("shop", "missing")
        # A name of another user's app is as one that nobody has.
        assert "Nothing that you may see" in await find("shop", "Bank")
        # An event is found by its text, which stays text.
        assert "1 of Shop" in await find("shop", "<i>pen1")
        assert "<i>pen1" not in await find("shop", "<i>pen1")
        # Failed events are data: an operator, who may not read it, finds none.
        assert "Failed events" not in await find("oli", "missing")
        assert "Failed events" in await find("vic", "missing")
        assert "Nothing that" not in await find("vic", "")
