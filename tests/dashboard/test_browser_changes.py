"""Forms of fork, promote, backfill, migrate, scale and drain, with the command of their values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from mesh.model import names
from tests.dashboard.test_overview import parses
from tests.support.browser import browsing, chromium, look
from tests.support.dashboard import site
from tests.support.load import until

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.async_api import Browser, Page

    from mesh.jetstream.server import NatsServer
    from tests.support.dashboard import Site

pytestmark = [pytest.mark.nats, pytest.mark.slow]

APP = """@App:name('Shop')
define stream Orders (item string, price double);
@info(name='dear') @dist(execGroup='filter')
from Orders[price > 100.0] select item, price insert into DearOrders;
"""
OLD = """@Plan:name('Old')
@Import('orders:1.0.0')
define stream Orders (item string, price double);
from Orders[price > 100.0] select item insert into Dear;
"""
PAST = """@App:name('Past')
define stream Orders (item string, price double);
@info(name='total') @dist(execGroup='sums')
from Orders select item, sum(price) as total group by item insert into Totals;
"""
EVENTS = "orders.csv"


async def command(page: Page) -> str:
    return await page.locator("[data-same] code").first.inner_text()


async def _fork_and_promote(browser: Browser, at: Site, *, has_script: bool) -> None:
    context = await browser.new_context(java_script_enabled=has_script)
    page = await context.new_page()
    page.on("dialog", lambda dialog: dialog.accept())
    name = "ShopNext" if has_script else "ShopPlain"
    await page.goto(f"{at.url}/apps/Shop")
    await page.get_by_role("link", name="Fork", exact=True).click()
    assert await command(page) == "mesh fork Shop --as ShopNext"
    await page.get_by_label("Name").fill(name)
    await page.get_by_label("From").fill("start")
    await page.get_by_text("Another text").click()
    text = APP.replace("100.0", "20.0" if has_script else "30.0")
    await page.get_by_label("SiddhiQL of the fork").fill(text.replace("price >", "price > >"))
    if has_script:
        told = await command(page)
        assert told == "mesh fork Shop --as ShopNext --from start --text next.siddhi"
        assert parses(told.split()[1:])
    await page.get_by_role("button", name="Fork").click()
    assert "MESH-L" in await page.get_by_role("alert").first.inner_text()
    await page.get_by_label("SiddhiQL of the fork").fill(text)
    await page.get_by_role("button", name="Fork").click()
    await page.wait_for_url(f"**/apps/{name}?done=forked")
    assert "The fork is made." in await page.get_by_role("status").first.inner_text()
    origin = at.service.record(name)
    assert origin is not None
    assert origin.fork is not None
    assert origin.fork.app == "Shop"
    assert parses((await command(page)).split()[1:])
    await page.get_by_role("button", name="Promote").click()
    await page.wait_for_url("**/apps/Shop?done=promoted")
    assert ("20.0" if has_script else "30.0") in (await at.service.app("Shop")).text

    async def is_gone() -> bool:
        return at.service.record(name) is None

    await until(is_gone)
    await context.close()


async def _backfill(browser: Browser, at: Site) -> None:
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    await page.goto(f"{at.url}/deploy")
    await page.get_by_role("link", name="begin with past events").click()
    await page.get_by_label("SiddhiQL of a new app").fill(PAST)
    await page.locator("[name=stream]").fill("Orders")
    await page.locator("[name=path]").fill(EVENTS)
    await page.get_by_role("button", name="Run the past and deploy").click()
    assert "column with the times" in await page.get_by_role("alert").first.inner_text()
    assert await page.locator("[name=path]").input_value() == EVENTS
    await page.get_by_label("Column of times").fill("at")
    await page.get_by_role("button", name="Run the past and deploy").click()
    await page.wait_for_url("**/apps/Past?done=backfilled", timeout=90_000)
    assert "states of its past" in await page.get_by_role("status").first.inner_text()
    bucket = await at.js.key_value(names.SNAPSHOTS_BUCKET)
    assert any(".sums." in key for key in await bucket.keys())
    await context.close()


async def _migrate(browser: Browser, at: Site, *, has_script: bool) -> None:
    context = await browser.new_context(java_script_enabled=has_script)
    page = await context.new_page()
    await page.goto(f"{at.url}/deploy/migrate")
    await page.get_by_label("Its text").fill(OLD)
    await page.get_by_role("button", name="Migrate").click()
    result = page.get_by_label("The migrated text")
    assert "@App:name('Old')" in await result.input_value()
    assert await page.get_by_role("table").locator("tbody tr").count() > 0
    assert at.service.record("Old") is None
    await page.get_by_role("button", name="Check and show the effect").click()
    assert "A new app, Old" in await page.locator("#effect").inner_text()
    await context.close()


async def _scale_and_drain(browser: Browser, at: Site) -> None:
    page = await browser.new_page()
    await page.goto(f"{at.url}/apps/Shop?tab=instances")
    await page.get_by_label("filter", exact=True).fill("3")
    told = await command(page)
    assert told == "mesh scale Shop filter 3"
    assert parses(told.split()[1:])
    await page.goto(f"{at.url}/nodes/w1")
    for one in await page.locator(".same code").all_inner_texts():
        assert parses(one.split()[1:]), one
    await page.close()


@pytest.mark.thorough
async def test_changes_in_a_browser(nats_server: NatsServer, tmp_path: Path) -> None:
    chromium()
    (tmp_path / EVENTS).write_text("at,item,price\n2026-01-01T00:00:01Z,pen,2.5\n")

    async with site(nats_server, history_dir=str(tmp_path)) as at, browsing() as browser:
        at.start_worker("w1")
        at.start_worker("w2")
        await at.service.deploy(APP, by="ada")
        await at.until_running("Shop")
        for number in range(3):
            data = json.dumps({"item": f"book {number}", "price": 25.0}).encode()
            await at.js.publish(names.subject("Shop", "Orders"), data)
        for has_script in (True, False):
            await _fork_and_promote(browser, at, has_script=has_script)
            await at.until_running("Shop")
            await _migrate(browser, at, has_script=has_script)
        await _backfill(browser, at)
        await _scale_and_drain(browser, at)
        told: list[str] = []
        for width, theme in ((390, "dark"), (1440, "light")):
            scheme: Any = theme
            context = await browser.new_context(
                viewport={"width": width, "height": 900}, color_scheme=scheme
            )
            page = await context.new_page()
            for path in (
                "/apps/Shop/fork", "/deploy/backfill", "/deploy/migrate",
                "/apps/Shop?tab=instances",
            ):  # fmt: skip
                told += await look(page, at.url + path, width, is_axe=True)
            await context.close()
        assert told == [], "\n".join(told)
