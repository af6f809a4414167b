"""Pages of users: access, roles, tokens and the audit; pages of users with grants for some apps."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpx
import orjson
import pytest

from mesh.api.users import hash_of
from mesh.jetstream.directory import DirectoryUser
from mesh.model import names
from mesh.model.access import Permission
from tests.support.dashboard import site
from tests.support.forms import send
from tests.support.page_users import browser, user

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer
    from tests.support.dashboard import Site

pytestmark = pytest.mark.nats

APPS = """@App:name('{name}')
define stream Orders (item string, price double);
@info(name='dear') from Orders[price > 100.0] select item insert into DearOrders;
"""


@pytest.mark.slow
async def test_users_are_added_changed_disabled_and_signed_out(nats_server: NatsServer) -> None:
    async with site(nats_server, anonymous=False, requests_per_s=0.0) as at:
        await user(at, "ada", "admin")
        async with browser(at, "ada") as ada, browser(at) as eve:
            await _add(ada)
            await _change(at, ada, eve)
            await _last_administrator(ada)
            shown = (await ada.get("/users?q=ev")).text
            assert "/users/eve" in shown
            assert 'href="/users/ada"' not in shown
            done = await send(ada, "/users/eve", do="remove", name="ev")
            assert done.status_code == 400
            done = await send(ada, "/users/eve", do="remove", name="eve")
            assert done.headers["location"] == "/users?done=eve"
            assert (await ada.get("/users/eve")).status_code == 404
            await _audited(ada)


async def _add(ada: httpx.AsyncClient) -> None:
    given = {"name": "eve", "password": "twelve letters", "role": "developer", "apps": "Shop*"}
    wrong = await send(
        ada, "/users/+new", **{**given, "apps": "no pattern!", "password": "hunter2"}
    )
    assert wrong.status_code == 400
    assert "is no pattern" in wrong.text
    assert "hunter2" not in wrong.text
    done = await send(ada, "/users/+new", **given)
    assert done.headers["location"] == "/users/eve?done=added"
    assert "developer for Shop*" in (await ada.get("/users")).text
    assert (await send(ada, "/users/+new", **given)).status_code == 400


async def _change(at: Site, ada: httpx.AsyncClient, eve: httpx.AsyncClient) -> None:
    login = {"user": "eve", "password": "twelve letters"}
    assert (await eve.post("/login", data=login)).status_code == 303
    assert (await eve.get("/")).status_code == 200
    # Another role holds from the next request, without another sign-in.
    assert (await eve.get("/users")).status_code == 403
    await send(ada, "/users/eve", do="roles", role="other", may="admin, apps.view", apps="*")
    assert (await eve.get("/users")).status_code == 200
    await send(ada, "/users/eve", do="roles", role="viewer", apps="*")
    assert (await eve.get("/users")).status_code == 403
    page = (await ada.get("/users/eve")).text
    assert "127.0.0.1" in page
    assert "argon2" not in page
    for do, more in (
        ("sign-out", {}),
        ("password", {"password": "another one of 24"}),
        ("disable", {}),
    ):
        await at.directory.put_user(
            DirectoryUser("eve", await asyncio.to_thread(hash_of, "eve", "pw"), ())
        )
        assert (await eve.post("/login", data={"user": "eve", "password": "pw"})).status_code == 303
        await send(ada, "/users/eve", do=do, **more)
        again = await eve.get("/")
        assert (again.status_code, again.headers["location"]) == (303, "/login"), do
    # A disabled user can't sign in; an enabled one can, with the password of before.
    assert (await eve.post("/login", data={"user": "eve", "password": "pw"})).status_code == 401
    await send(ada, "/users/eve", do="enable")
    assert (await eve.post("/login", data={"user": "eve", "password": "pw"})).status_code == 303


async def _last_administrator(ada: httpx.AsyncClient) -> None:
    for values in (
        {"do": "disable"},
        {"do": "roles", "role": "viewer", "apps": "*"},
        {"do": "remove", "name": "ada"},
    ):
        refused = await send(ada, "/users/ada", **values)
        assert refused.status_code == 400
        assert "is the last one who may manage users" in refused.text


async def _audited(ada: httpx.AsyncClient) -> None:
    """The audit has each change and refusal of the pages, and filters by all of their parts."""
    async with asyncio.timeout(20):
        while "/users/eve" not in (found := (await ada.get("/audit?user=ada&method=POST")).text):
            pass
    assert "hunter2" not in found
    refused = (await ada.get("/audit?user=eve&result=refused&q=/users")).text
    # The page has random tokens, which may contain any digits.
    assert "<small>403</small>" in refused
    assert "<small>401</small>" not in refused
    assert "No request fits" in (await ada.get("/audit?app=Nothing")).text
    # Clients of the API get JSON of the same entries.
    api = await ada.get("/audit", headers={"Accept": "*/*"})
    assert api.status_code == 401


@pytest.mark.slow
async def test_a_user_with_a_grant_for_some_apps_sees_nothing_of_the_others(
    nats_server: NatsServer,
) -> None:
    async with site(nats_server, anonymous=False, requests_per_s=0.0) as at:
        await user(at, "eve", "developer", "Shop*")
        await user(at, "oli", "operator")
        at.start_worker("w1")
        for name in ("Shop", "Bank"):
            await at.service.deploy(APPS.format(name=name))
            await at.until_running(name)
            entry = {"stream": "Orders", "time_ms": 1, "reason": "no", "data": f"of{name}"}
            await at.js.publish(names.error_subject(name), orjson.dumps(entry))
            event = orjson.dumps({"item": f"pay {name}", "price": 1.0})
            await at.js.publish(names.subject(name, "Orders"), event)
        async with browser(at, "eve") as eve, browser(at, "oli") as oli:
            await _limited(eve)
            await _without_payloads(oli)


async def _limited(eve: httpx.AsyncClient) -> None:
    for page in ("/", "/story", "/errors", "/query", "/deploy"):
        shown = await eve.get(page)
        assert shown.status_code == 200, page
        assert "Bank" not in shown.text, page
    assert (await eve.get("/apps/Shop")).status_code == 200
    for path in (
        "/apps/Bank", "/apps/Bank?tab=text", "/apps/Bank/s/Orders", "/apps/Bank/edit",
        "/apps/Bank/why/Orders/1", "/apps/Bank/compare", "/apps/Shop/compare?go=1&with=Bank",
        "/apps/Bank/i/Bank-dear-1", "/story?app=Bank", "/errors?app=Bank", "/nodes", "/nodes/w1",
        "/users", "/audit", "/users/eve",
    ):  # fmt: skip
        assert (await eve.get(path)).status_code == 403, path
    refused = (
        ("/apps/Shop", "/apps/Bank", {"do": "pause"}),
        ("/errors?app=Shop", "/errors", {"app": "Bank", "do": "discard-all"}),
        ("/query", "/query", {"app": "Bank", "text": "from T select *"}),
        ("/deploy", "/deploy", {"text": APPS.format(name="Bank"), "do": "check"}),
    )
    for page, to, values in refused:
        answer = await send(eve, page, to, **values)
        assert (answer.status_code, "MESH-A403" in answer.text) in ((403, True), (400, True)), to
        assert "ofBank" not in answer.text
    # An open page is a stream of parts: it has the same apps.
    stream = {"Accept": "text/event-stream"}
    async with eve.stream("GET", "/", headers=stream) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                assert "Shop" in line
                assert "Bank" not in line
                break
    assert (await eve.get("/apps/Bank", headers=stream)).status_code == 403


async def _without_payloads(oli: httpx.AsyncClient) -> None:
    shown = await oli.get("/apps/Shop/s/Orders")
    assert shown.status_code == 200
    assert "pay Shop" not in shown.text
    for path in (
        "/apps/Shop/why/Orders/1",
        "/apps/Shop/compare",
        "/apps/Shop?tab=errors",
        "/errors?app=Shop",
        "/errors",
        "/query",
    ):
        assert (await oli.get(path)).status_code == 403, path
    assert Permission.DATA_READ in (await oli.get("/errors")).text
    assert (await send(oli, "/nodes/w1", do="cordon")).status_code == 303
