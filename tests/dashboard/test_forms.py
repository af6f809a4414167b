"""Forms of the pages: each does what the same call of REST does, for users who may."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import httpx
import orjson
import pytest

from mesh.api import users
from mesh.model import names
from mesh.model.access import SETS
from tests.support.dashboard import site
from tests.support.load import until

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats

APP = """@App:name('Shop')
define stream Orders (item string, price double);
define table Known (item string);
@info(name='dear') @dist(execGroup='filter', parallel='2')
from Orders[price > 100.0] select item, price insert into DearOrders;
@info(name='keep') from DearOrders select item insert into Known;
"""


class Browser:
    """A client that sends forms as the pages have them."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def send(self, page: str, to: str = "", **values: Any) -> httpx.Response:
        """Send a form of ``page`` with its token."""
        shown = await self.client.get(page, headers={"Accept": "text/html"})
        assert shown.status_code == 200, shown.text
        (token,) = set(re.findall(r'name="token" value="([^"]+)"', shown.text))
        return await self.client.post(to or page.partition("?")[0], data={"token": token, **values})


@pytest.mark.slow
async def test_forms_do_what_rest_does(nats_server: NatsServer) -> None:
    async with (
        site(nats_server) as at,
        httpx.AsyncClient(base_url=at.url, timeout=60) as client,
    ):
        at.start_worker("w1")
        at.start_worker("w2")
        await at.service.deploy(APP)
        await at.until_running("Shop")
        browser, page = Browser(client), "/apps/Shop?tab=instances"
        await _apps(at, browser, page)
        done = await browser.send("/nodes/w2", do="cordon")
        assert done.headers["location"] == "/nodes/w2"
        (node,) = [n for n in await at.service.nodes() if n.id == "w2"]
        assert node.admits == "closed"
        await _events(at, browser)
        assert (
            await browser.send(page, "/apps/Shop", do="undeploy", name="Shp")
        ).status_code == 400
        done = await browser.send(page, "/apps/Shop", do="undeploy", name="Shop")
        assert done.headers["location"] == "/"
        assert (await client.get("/apps/No")).status_code == 404
        assert (await client.get("/apps/a%2Ab")).status_code == 404


async def _apps(at: Any, browser: Browser, page: str) -> None:
    done = await browser.send(page, "/apps/Shop", do="scale", group="filter", parallel="3")
    assert done.status_code == 303, done.text
    await at.until_running("Shop")
    assert "Shop-filter-3" in (await browser.client.get(page)).text
    wrong = await browser.send(page, "/apps/Shop", do="scale", group="no", parallel="3")
    assert wrong.status_code == 404
    assert "MESH-A404" in wrong.text
    await browser.send(page, "/apps/Shop", do="pause")
    assert (await at.service.status("Shop")).state == "paused"
    await browser.send(page, "/apps/Shop", do="resume")
    await at.until_running("Shop")
    done = await browser.send(page, "/apps/Shop", do="backup")
    (backup,) = await at.service.backups.list_all("Shop")
    assert backup.revision in (await browser.client.get("/apps/Shop?tab=backups")).text
    assert (await browser.send(page, "/apps/Shop", do="explode")).status_code == 400


async def _events(at: Any, browser: Browser) -> None:
    tap = "/apps/Shop/s/Orders"
    done = await browser.send(tap, event='{"item": "<img src=x>", "price": 7.5}')
    assert done.status_code == 303, done.text
    shown = (await browser.client.get(tap)).text
    assert "&lt;img src=x&gt;" in shown
    assert "<img" not in shown
    # A field keeps its text, with the error.
    refused = await browser.send(tap, event='{"item": "<b>", "price": "seven"}')
    assert refused.status_code == 400
    assert "&#34;price&#34;: &#34;seven&#34;}</textarea>" in refused.text
    assert "attribute &#34;price&#34; is &#34;seven&#34;, not a double" in refused.text
    assert "Publish an event" in refused.text
    await at.js.publish(names.subject("Shop", "Orders"), b"\x00" * 200 + b'x"' * 400_000)
    large = (await browser.client.get(f"{tap}?q=x%22")).text
    assert "characters" in large or "bytes that are no text" in large
    assert len(large) < 60_000
    for number_ in range(3):
        entry = {"stream": "Orders", "time_ms": number_, "reason": f"no {number_}", "data": "{}"}
        await at.js.publish(names.error_subject("Shop"), orjson.dumps(entry))
    errors = "/errors?app=Shop"
    done = await browser.send(errors, "/errors", app="Shop", id="2", do="discard")
    assert done.headers["location"] == "/errors?app=Shop&done=1+discarded"
    assert await at.service.events.failed_count("Shop") == 2
    assert (await browser.send(errors, "/errors", app="Shop", do="replay")).status_code == 400
    form = {"app": "Shop", "id": "1", "do": "replay", "event": '{"item": <}'}
    for to in ("/errors", "/errors?app=Shop&reason=no+0"):
        refused = await browser.send(errors, to, **form)
        assert refused.status_code == 400
        assert "the corrected event is not JSON" in refused.text
        field = refused.text.partition('<details id="edit-1" open>')[2].partition("</details>")[0]
        assert "{&#34;item&#34;: &lt;}</textarea>" in field
    assert await at.service.events.failed_count("Shop") == 2
    asked = await browser.send(
        "/query?app=Shop", "/query", app="Shop", text="from Nowhere select a"
    )
    assert asked.status_code == 400
    assert "MESH-" in asked.text
    assert "table Known" in (await browser.client.get("/query?app=Shop")).text


@pytest.mark.slow
async def test_a_new_text_has_a_name_that_is_free(nats_server: NatsServer) -> None:
    async with (
        site(nats_server) as at,
        httpx.AsyncClient(base_url=at.url, timeout=60) as client,
    ):
        for name in ("Shop", "Shop2", "Shop4"):
            await at.service.deploy(APP.replace("Shop", name))
        text = (await client.get("/deploy")).text
        assert "@App:name(&#39;Shop3&#39;)" in text


@pytest.mark.slow
async def test_a_user_sees_and_does_what_the_permissions_allow(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    users.add(tmp_path / "users", "eye", "secret", SETS["view"])
    given: dict[str, Any] = {"anonymous": False, "users_file": str(tmp_path / "users")}

    async with (
        site(nats_server, **given) as at,
        httpx.AsyncClient(base_url=at.url, timeout=60) as client,
    ):
        await at.service.deploy(APP)
        await client.post("/login", data={"user": "eye", "password": "secret"})
        page = await client.get("/", headers={"Accept": "text/html"})
        assert page.status_code == 200
        assert "/nodes" not in page.text
        assert "/deploy" not in page.text
        html = {"Accept": "text/html"}
        assert (await client.get("/nodes", headers=html)).status_code == 403
        assert (await client.get("/deploy")).status_code == 403
        app = await client.get("/apps/Shop")
        assert app.status_code == 200
        assert "Undeploy" not in app.text
        sent = await Browser(client).send("/", "/apps/Shop", do="undeploy", name="Shop")
        assert sent.status_code == 403
        assert (await at.service.status("Shop")).state != "undeploying"


@pytest.mark.slow
async def test_a_dashboard_alone_shows_the_cluster(nats_server: NatsServer) -> None:
    async with site(nats_server) as at:
        await at.service.deploy(APP)
        environment = {
            **os.environ, "MESH_NATS_URL": nats_server.url, "MESH_MANAGER_ANONYMOUS": "true",
        }  # fmt: skip
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "mesh.cli", "dashboard", "--port", "0",
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
            async with httpx.AsyncClient(base_url=line.split()[1], timeout=60) as client:
                page = await client.get("/")
                assert "/apps/Shop" in page.text
                assert (await client.get("/siddhi-apps")).status_code == 404
        finally:
            process.terminate()
            assert await asyncio.wait_for(process.wait(), 20) == 0

        async def has_leader() -> bool:
            return (await at.service.leadership()).leader == "m1"

        await until(has_leader)
