"""Forms and addresses of any kind: none is a fault of the server, and no page grows with them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import httpx
import pytest

from tests.dashboard.test_hostile import PAGE_MAX
from tests.support.dashboard import site

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

pytestmark = [pytest.mark.nats, pytest.mark.timeout(240)]

APP: Final = """@App:name('Shop')
define stream Orders (item string, price double);
define table Known (item string);
@info(name='keep') from Orders select item insert into Known;
"""
#: Each form with the fields that it has.
FORMS: Final = {
    "/query": {"app": "Shop", "text": "from Known select item", "every": "", "partial": "1"},
    "/deploy": {"text": APP, "seen": "1", "go": "1"},
    "/apps/Shop/edit": {"text": APP, "seen": "1", "go": "1"},
    "/apps/Shop": {"do": "parallel", "group": "default", "parallel": "2", "revision": "1"},
    "/apps/Shop/s/Orders": {"event": '{"item":"a","price":1.0}'},
    "/nodes/w1": {"do": "drain"},
    "/errors": {"do": "replay", "app": "Shop", "id": "1", "event": "{}"},
    "/users/+new": {"name": "u", "password": "twelve letters", "role": "viewer", "apps": "*"},
    "/account": {"do": "token", "name": "t", "days": "1", "may": "apps.view", "id": "x"},
    "/login": {"user": "u", "password": "p", "next": "/"},
}
VALUES: Final = (
    "",
    "\0",
    "9" * 5000,
    "-1",
    "../*",
    "\u202e<script>alert(1)</script>",
    "[" * 20_000,
    "x" * 500_000,
)
#: Bodies that are no form.
BODIES: Final = (
    b"",
    b"\xff\xfe",
    b"text=%ff%fe%00",
    b"%" * 1000,
    b"&".join([b"a=1"] * 3000),
    b"x" * 4_500_000,
)
#: Pages with the parameters that they read.
PAGES: Final = {
    "/": ("q", "state"),
    "/apps/Shop": ("tab", "span", "group", "before"),
    "/apps/Shop/s/Orders": ("q", "done"),
    "/apps/Shop/why/Orders/1": ("index",),
    "/apps/Shop/compare": ("app", "key", "stream"),
    "/nodes": ("span",),
    "/story": ("app", "reason", "before", "page"),
    "/errors": ("app", "group", "q", "before", "page"),
    "/query": ("app", "text", "every", "partial"),
    "/users": ("q", "done"),
    "/audit": ("user", "app", "before", "page"),
    "/login": ("next",),
}
HTML: Final = {"Accept": "text/html"}


@pytest.mark.thorough
async def test_no_form_and_no_address_is_a_fault_of_the_server(nats_server: NatsServer) -> None:
    async with (
        site(nats_server, requests_per_s=0.0) as at,
        httpx.AsyncClient(base_url=at.url, timeout=60, headers=HTML) as client,
    ):
        at.start_worker("w1")
        await at.service.deploy(APP)
        await at.until_running("Shop")
        shown = (await client.get("/query")).text
        (token,) = set(re.findall(r'name="token" value="([^"]+)"', shown))
        wrong = []

        async def check(what: object, answer: httpx.Response) -> None:
            text = answer.text
            if answer.status_code >= 500 or "<script>alert" in text or len(text) > MOST:
                wrong.append((what, answer.status_code, len(text)))

        for path, fields in FORMS.items():
            for name in fields:
                for value in VALUES:
                    form = {"token": token, **fields, name: value}
                    await check((path, name, value[:20]), await client.post(path, data=form))
            kind = {"Content-Type": "application/x-www-form-urlencoded"}
            for body in BODIES:
                whole = f"token={token}&".encode() + body
                answer = await client.post(path, content=whole, headers=kind)
                await check((path, body[:20]), answer)
        for path, names in PAGES.items():
            for name in names:
                for value in VALUES[:6]:
                    await check((path, name), await client.get(path, params={name: value}))
        assert wrong == []
        assert (await client.get("/")).status_code == 200


#: Bytes of a page, which shows a text that was sent with it once or twice.
MOST: Final = PAGE_MAX + 2 * len(VALUES[-1])
