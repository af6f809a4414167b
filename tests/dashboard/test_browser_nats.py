"""The pages of NATS and of a worker in a browser, and without a script."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from mesh.api import users
from mesh.api.users import hash_of
from mesh.jetstream.directory import DirectoryUser
from mesh.model.access import Grant, Permission
from mesh.model.cluster import InstanceState
from tests.support.browser import browsing, chromium, look
from tests.support.dashboard import site
from tests.support.load import until

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.async_api import Browser

    from mesh.jetstream.server import NatsServer
    from tests.support.dashboard import Site

pytestmark = pytest.mark.nats

APP = """@App:name('{name}')
define stream Orders (item string, price double);
@info(name='dear') from Orders[price > 100.0] select item insert into DearOrders;
"""


async def _nats(browser: Browser, at: Site) -> None:
    await at.js.add_stream(name="invoices", subjects=["invoices.>"], max_bytes=10_000)
    for _ in range(9):
        await at.js.publish("invoices.new", b"x" * 950)
    await at.js.pull_subscribe("invoices.>", durable="ledger")
    page = await browser.new_page()
    await page.goto(at.url + "/nats")
    row = page.locator("#live_streams tbody tr").first
    await row.get_by_role("link", name="invoices").wait_for()
    assert "%" in await row.locator("td.warn").first.inner_text()
    # The pages are kept up to date: what it holds is gone.
    await at.js.purge_stream("invoices")
    await (
        page.locator("#live_streams tbody tr")
        .first.get_by_text("invoices")
        .wait_for(state="detached", timeout=20_000)
    )
    await page.locator("#q").fill("Orders")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/nats?q=Orders")
    assert await page.locator("#live_streams tbody tr").count() == 4
    await page.goto(at.url + "/nats/invoices")
    assert await page.locator("#live_consumers tbody th").inner_text() == "ledger"
    answer = await page.goto(at.url + "/nats/nothing")
    assert answer is not None
    assert answer.status == 404
    await page.close()


async def _worker(browser: Browser, at: Site) -> None:
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    at.states["Shop-default-1"] = {
        "state": InstanceState.RETRYING, "restarts": 7, "behind": 40, "error": "no",
    }  # fmt: skip

    restarts = page.locator(".number", has_text="Restarts").locator("dd")

    # Pages of one moment share a view, so a page may be older than the report.
    async def shows_restarts() -> bool:
        await page.goto(at.url + "/nodes/w1")
        return (await restarts.inner_text()).startswith("7")

    await until(shows_restarts)
    assert "Slots" in await page.locator("#live_node").inner_text()
    first = page.locator("#live_instances tbody tr").first
    assert "Shop-default-1" in await first.inner_text()
    assert "retrying" in await first.inner_text()
    await context.close()


@pytest.mark.thorough
async def test_nats_and_a_worker_in_a_browser(nats_server: NatsServer) -> None:
    chromium()

    async with site(nats_server) as at, browsing() as browser:
        at.start_worker("w1")
        for name in ("Shop", "Bank"):
            await at.service.deploy(APP.format(name=name))
            await at.until_running(name)
        await _nats(browser, at)
        await _worker(browser, at)
        told: list[str] = []
        for width, theme in ((390, "dark"), (1440, "light")):
            scheme: Any = theme
            context = await browser.new_context(
                viewport={"width": width, "height": 900}, color_scheme=scheme
            )
            page = await context.new_page()
            for path in ("/nats", "/nats/mesh-Shop-Orders", "/nats/invoices", "/nodes/w1"):
                told += await look(page, at.url + path, width, is_axe=True)
            await context.close()
        assert told == [], "\n".join(told)


@pytest.mark.slow
async def test_a_user_of_some_apps_finds_no_trace_of_others(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    users.add(tmp_path / "users", "ada", "secret")
    given: dict[str, Any] = {"anonymous": False, "users_file": str(tmp_path / "users")}

    async with (
        site(nats_server, **given) as at,
        httpx.AsyncClient(base_url=at.url, timeout=60) as client,
    ):
        for name in ("Shop", "Bank"):
            await at.service.deploy(APP.format(name=name))
        grants = (
            Grant(frozenset({Permission.MONITOR})),
            Grant(frozenset({Permission.APPS_VIEW}), "Shop"),
        )
        hashed = await asyncio.to_thread(hash_of, "eve", "twelve letters")
        await at.directory.put_user(DirectoryUser("eve", hashed, grants, "ada", 1))
        await client.post("/login", data={"user": "eve", "password": "twelve letters"})
        html = {"Accept": "text/html"}
        whole = (await client.get("/nats", headers=html)).text
        assert "mesh-Shop-Orders" in whole
        assert "KV_mesh_control" in whole
        for path in ("/nats", "/nats/mesh-Shop-Orders", "/nats?q=Bank", "/"):
            text = (await client.get(path, headers=html)).text
            assert "Bank" not in text.replace("q=Bank", "").replace('value="Bank"', ""), path
        assert (await client.get("/nats/mesh-Bank-Orders", headers=html)).status_code == 404
        assert (await client.get("/nats/mesh-Bank-errors-", headers=html)).status_code == 404
