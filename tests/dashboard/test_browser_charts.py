"""Charts in a browser: one cursor, a time marked with the pointer, and the same by links."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from mesh.manager.telemetry import STORED
from tests.support.browser import browsing, chromium, look
from tests.support.dashboard import site

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

    from mesh.jetstream.server import NatsServer
    from tests.support.dashboard import Site

pytestmark = [pytest.mark.nats, pytest.mark.slow]

APP = """@App:name('Shop')
define stream Orders (item string, price double);
@info(name='dear') @dist(execGroup='filter', parallel='2')
from Orders[price > 100.0] select item, price insert into DearOrders;
@info(name='sums') @dist(execGroup='count')
from DearOrders select item, count() as n insert into Totals;
"""
BUSY = ("cluster", "all"), ("app", "Shop"), ("group", "Shop/filter"), ("instance", "Shop-filter-1")


def remember(at: Site) -> None:
    """A day by the minute, with failed and slow events ten minutes long, three hours ago."""
    now_s = at.service.now_ms() // 1000 // 60 * 60
    for minute in range(24 * 60, 60, -1):
        is_bad = 180 <= minute < 190
        row: dict[str, float] = dict.fromkeys(STORED["app"], 0.0)
        row |= {"events_in": 50.0, "latency_4": 40.0}
        row |= {"errors": 5.0, "latency_12": 10.0} if is_bad else {}
        rows = {key: list(row.values()) for key in BUSY}
        at.service.telemetry.tiers[1].add(now_s - 60 * minute, rows)


async def _cursor_and_zoom(browser: Browser, at: Site, path: str) -> None:
    page = await browser.new_page(viewport={"width": 1440, "height": 900})
    await page.goto(at.url + path)
    charts = page.locator(".chart .u-over")
    await charts.nth(5).wait_for()
    assert await charts.count() == 6
    failed, latency = charts.nth(2), charts.nth(3)
    await failed.scroll_into_view_if_needed()
    box = await failed.bounding_box()
    assert box is not None
    # Three hours before the end of a day is at 7/8 of its width.
    bad_x = box["x"] + box["width"] * (1 - 185 / (24 * 60))
    y = box["y"] + box["height"] / 2
    await page.mouse.move(bad_x, y)
    # The cursor of one chart is that of all: the others tell their value of the same time.
    times = [
        str(await one.text_content())
        for one in await page.locator(".chart .u-legend .u-series:first-child .u-value").all()
    ]
    assert len(set(times)) == 1, times
    assert times[0] != ""
    assert "99 of 100" in str(await latency.locator("xpath=../../..").first.text_content())
    # A time that is marked is that of the page, and in its address.
    await page.mouse.move(bad_x - 40, y)
    await page.mouse.down()
    await page.mouse.move(bad_x + 40, y, steps=4)
    async with page.expect_navigation():
        await page.mouse.up()
    asked = parse_qs(urlsplit(page.url).query)
    begin_s, end_s = int(asked["from"][0]), int(asked["to"][0])
    assert end_s - begin_s < 24 * 3600 / 2
    now_s = at.service.now_ms() / 1000
    assert begin_s < now_s - 185 * 60 < end_s
    assert "UTC" in await page.get_by_role("heading", level=2).filter(has_text=" to ").inner_text()
    assert await page.locator("figcaption", has_text="Failed events").inner_text() != ""
    most = await page.locator("figcaption", has_text="Failed events").locator("small").inner_text()
    assert most == "most 5"
    if "tab=" in path:
        assert parse_qs(urlsplit(page.url).query)["tab"] == ["instances"]
    await page.close()


async def _without_a_script(browser: Browser, at: Site) -> None:
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    await page.goto(f"{at.url}/apps/Shop?tab=instances&group=filter&span=360")
    assert await page.locator(".chart svg path.line-2").count() == 1
    heading = page.locator("#history")
    assert await heading.inner_text() == "Last 6 h"
    await page.get_by_role("link", name="Zoom in").click()
    await page.get_by_role("link", name="Earlier").click()
    asked = parse_qs(urlsplit(page.url).query)
    assert (asked["tab"], asked["group"]) == (["instances"], ["filter"])
    assert int(asked["to"][0]) - int(asked["from"][0]) == 3 * 3600
    assert " to " in await heading.inner_text()
    await page.get_by_role("link", name="24 h").click()
    table = page.locator("details", has_text="Table of Failed events")
    await table.locator("summary").click()
    assert await table.locator("tbody tr").count() == 12
    await context.close()


async def _worst_first(browser: Browser, at: Site) -> None:
    page = await browser.new_page()
    await page.goto(at.url)
    rows = page.locator("#live_groups tbody tr")
    assert await rows.first.locator("th").inner_text() == "Shop / count"
    assert "running" in await rows.last.inner_text()
    await rows.first.get_by_role("link").click()
    assert await page.locator("#live_instances tbody tr").count() == 1
    await page.close()


@pytest.mark.thorough
async def test_charts_in_a_browser(nats_server: NatsServer) -> None:
    chromium()

    async with site(nats_server) as at, browsing() as browser:
        at.start_worker("w1")
        await at.service.deploy(APP, by="ada")
        await at.until_running("Shop")
        at.states["Shop-count-1"] = {"behind": 18_400}
        remember(at)
        await _worst_first(browser, at)
        for path in (
            "/?span=1440",
            "/apps/Shop?span=1440",
            "/apps/Shop?tab=instances&group=filter&span=1440",
            "/apps/Shop/i/Shop-filter-1?span=1440",
        ):
            await _cursor_and_zoom(browser, at, path)
        await _without_a_script(browser, at)
        told: list[str] = []
        for width, theme in ((390, "dark"), (1440, "light")):
            scheme: Any = theme
            context = await browser.new_context(
                viewport={"width": width, "height": 900}, color_scheme=scheme
            )
            page: Page = await context.new_page()
            for path in ("/", "/?span=10080", "/apps/Shop", "/apps/Shop/i/Shop-filter-1?span=5"):
                told += await look(page, at.url + path, width, is_axe=True)
            await context.close()
        assert told == [], "\n".join(told)
