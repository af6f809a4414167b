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
from starlette.datastructures import QueryParams

from mesh.api import users
from mesh.dashboard.charts import LONGEST_S, chart, chart_time
from mesh.dashboard.shown import NOTHING, number
from mesh.dashboard.source import lines_of
from mesh.errors import MeshError, Position
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
    assert (await browser.send(tap, event='{"item": 1}')).status_code == 400
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
    form = {"app": "Shop", "id": "1", "do": "replay", "event": "[1]"}
    assert (await browser.send(errors, "/errors", **form)).status_code == 400
    asked = await browser.send(
        "/query?app=Shop", "/query", app="Shop", text="from Nowhere select a"
    )
    assert asked.status_code == 400
    assert "MESH-" in asked.text
    assert "table Known" in (await browser.client.get("/query?app=Shop")).text


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


def test_errors_are_marked_in_the_lines_of_a_text() -> None:
    errors = [MeshError("MESH-L1", "no", position=Position(2, 3, 2)), MeshError("MESH-L2", "none")]
    first, second = lines_of("ab\ncdefg", errors)
    assert (first.before, first.errors) == ("ab", ())
    assert (second.before, second.wrong, second.after) == ("cd", "ef", "g")
    (past,) = lines_of("ab", [MeshError("MESH-L1", "no", position=Position(1, 9, 1))])
    assert (past.before, past.wrong) == ("ab", "\u2423")


def test_a_chart_has_gaps_where_nothing_is_known() -> None:
    lines: dict[str, list[float | None]] = {
        "a": [None, 1.0, 2.0, None, 4.0],
        "b": [8.0] + 4 * [None],
    }
    made = chart("In", "", 0, 10, {"": lines["a"]}, number)
    assert made.lines == ["M75.0 35.0L150.0 24.0M300.0 2.0"]
    assert (made.most, made.last) == ("4", "4")
    assert made.rows[0] == (40_000, ["4"])
    assert chart("In", "", 0, 10, {"": [None, None]}, number).lines == [""]
    both = chart("In", "", 0, 10, lines, number)
    assert (both.most, both.last, both.labels) == ("8", "4, 8", ("a", "b"))
    assert both.rows[-1] == (0, [NOTHING, "8"])


def test_the_time_of_charts_is_that_of_the_address() -> None:
    now_s = 1_800_000_000
    quarter = chart_time(QueryParams("span=no"), now_s)
    assert (quarter.span, quarter.seconds, quarter.until_s) == ("15", 900, None)
    assert [name for name, _ in quarter.links] == ["Earlier", "Zoom in", "Zoom out"]
    then = chart_time(QueryParams(f"from={now_s - 7200}&to={now_s - 3600}"), now_s)
    assert (then.span, then.seconds, then.step_s, then.until_s) == ("", 3600, 24, now_s - 3600)
    assert dict(then.links) == {
        "Earlier": f"from={now_s - 9000}&to={now_s - 5400}",
        "Later": f"from={now_s - 5400}&to={now_s - 1800}",
        "Zoom in": f"from={now_s - 6300}&to={now_s - 4500}",
        "Zoom out": f"from={now_s - 9000}&to={now_s - 1800}",
    }
    # Whatever an address says, it is a time of the last week that has begun.
    for begin, end in ((0, 60), (now_s, now_s + 999), (now_s - 5, now_s - 4), (0, 10**10)):
        found = chart_time(QueryParams(f"from={begin}&to={end}"), now_s)
        assert found.until_s is not None
        assert now_s - LONGEST_S <= found.until_s - found.seconds
        assert 60 <= found.seconds <= LONGEST_S
        assert found.until_s <= now_s
    assert chart_time(QueryParams("from=9&to=1"), now_s).span == "15"
