"""Keys, search and times in a browser: local ones with UTC beside them; UTC without a script."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from mesh.dashboard.first_apps import FIRST_APPS, text_of
from tests.dashboard.test_browser import LOOKS, MORE_LOOKS
from tests.support.browser import axe_problems, browsing, chromium, look
from tests.support.dashboard import site

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

    from mesh.jetstream.server import NatsServer
    from tests.support.dashboard import Site

pytestmark = [pytest.mark.nats, pytest.mark.slow]

APP = """@App:name('Shop')
define stream Orders (item string, price double);
@info(name='dear') from Orders[price > 100.0] select item, price insert into DearOrders;
"""
#: Without summer time, and half an hour off.
ZONE = "Asia/Kolkata"
ACTIVE = "document.activeElement.id || document.activeElement.textContent.trim()"


async def _times(browser: Browser, at: Site) -> None:
    context = await browser.new_context(timezone_id=ZONE)
    page = await context.new_page()
    await page.goto(at.url + "/story?app=Shop")
    shown = page.locator(".timeline time").first
    utc = await shown.get_attribute("datetime")
    assert utc is not None
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", utc)
    text = " ".join((await shown.inner_text()).split())
    here = await page.evaluate(
        "at => new Date(Date.parse(at) + 5.5 * 3600e3).toISOString().slice(0, 19)", utc
    )
    assert text.startswith(here.replace("T", " ")), text
    assert text.endswith(f"{utc[11:16]} UTC"), text
    # Those of a part that is renewed are local as well.
    await page.goto(at.url + "/apps/Shop")
    foot = page.locator("#live_time time")
    first = await foot.get_attribute("datetime")
    await page.wait_for_function(
        "first => document.querySelector('#live_time time').dateTime !== first", arg=first
    )
    assert re.search(r"\d\d:\d\d:\d\d \d\d:\d\d UTC", " ".join((await foot.inner_text()).split()))
    await context.close()
    context = await browser.new_context(timezone_id=ZONE, java_script_enabled=False)
    page = await context.new_page()
    await page.goto(at.url + "/story?app=Shop")
    assert await page.locator(".timeline time").first.inner_text() == (
        f"{utc[:10]} {utc[11:19]} UTC"
    )
    await context.close()


async def _focused(page: Page) -> str:
    return str(await page.evaluate(ACTIVE))


async def _keys(browser: Browser, at: Site) -> None:
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(at.url)
    # The order is that of the page: skip link, pages, search, content.
    order = []
    for _ in range(10):
        await page.keyboard.press("Tab")
        order.append(await _focused(page))
    assert order[:3] == ["Skip to the content", "mesh", "Overview"]
    assert order.index("Deploy") + 1 == order.index("find")
    await page.goto(at.url)
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    assert page.url.endswith("#content")
    await page.keyboard.press("f")
    assert await _focused(page) == "q"
    # In a field a key is a letter.
    await page.keyboard.press("/")
    assert await page.locator("#q").input_value() == "/"
    await page.goto(at.url + "/apps/Shop")
    await page.keyboard.press("/")
    await page.keyboard.type("dearo")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/search?q=dearo")
    await page.get_by_role("link", name="DearOrders").click()
    await page.wait_for_url("**/apps/Shop/s/DearOrders")
    await page.keyboard.press("h")
    await page.wait_for_url(at.url + "/")
    # The list of keys ends with Escape; its choice stays.
    await page.keyboard.press("?")
    dialog = page.get_by_role("dialog")
    assert "search apps" in await dialog.inner_text()
    told = await axe_problems(page)
    assert told == []
    await page.keyboard.press("Escape")
    await dialog.wait_for(state="hidden")
    await page.get_by_role("button", name="Keys").click()
    await page.get_by_label("Keys of one character").uncheck()
    await page.get_by_role("button", name="Close").click()
    await page.goto(at.url)
    await page.keyboard.press("/")
    assert await _focused(page) != "find"
    await context.close()


@pytest.mark.thorough
async def test_keys_search_and_times_in_a_browser(nats_server: NatsServer) -> None:
    chromium()

    async with site(nats_server) as at, browsing() as browser:
        at.start_worker("w1")
        await at.service.deploy(APP)
        await at.until_running("Shop")
        await _times(browser, at)
        await _keys(browser, at)
        told: list[str] = []
        await at.service.deploy(text_of(FIRST_APPS[0]))
        for width, theme in (*LOOKS, *MORE_LOOKS):
            scheme: Any = theme
            page = await browser.new_page(
                viewport={"width": width, "height": 900}, color_scheme=scheme
            )
            for path in ("/search?q=shop", "/search", "/search?q=%3Ci%3E", "/start/AlertOnce"):
                told += await look(page, at.url + path, width, is_axe=True)
            await page.close()
        assert told == [], "\n".join(told)
