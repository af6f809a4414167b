"""The editor of the deploy and edit pages, in a browser: with a script, and without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.browser import axe_problems, browsing, chromium, look
from tests.support.dashboard import site
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.async_api import Browser, ConsoleMessage, Page

    from mesh.jetstream.server import NatsServer
    from tests.support.dashboard import Site

pytestmark = [pytest.mark.nats, pytest.mark.slow]

TIMEOUT_MS = 30_000
SHOP = """@App:name('Shop')
-- Dear orders.
define stream Orders (item string, price double);
@info(name='dear') from Orders[price > 100.0] select item, price insert into DearOrders;
"""
IMAGES = ROOT / "docs" / "images"


async def _status(page: Page, text: str) -> None:
    await page.get_by_role("status").filter(has_text=text).wait_for(timeout=TIMEOUT_MS)


async def _with_script(browser: Browser, at: Site, rewrite: bool) -> list[str]:
    told: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        # A refused answer is a message, and so is a style that the policy refuses.
        told.append(message.text)

    for width in (1440, 390):
        for theme in ("light", "dark"):
            scheme: Any = theme
            context = await browser.new_context(
                viewport={"width": width, "height": 900},
                color_scheme=scheme,
                permissions=["clipboard-read", "clipboard-write"],
            )
            page = await context.new_page()
            page.on("console", hear)
            for path in ("/deploy", "/apps/Shop/edit"):
                told += await look(page, at.url + path, width, is_axe=False)
                await _status(page, "No errors.")
                shot = IMAGES / "dashboard-editor.png" if rewrite else None
                await _written(page, width, theme, shot)
                told += await _look_again(page, width)
            await context.close()
    return told


async def _look_again(page: Page, width: int) -> list[str]:
    """axe and the width of the page as it is now, with an error and the colours."""
    told = await axe_problems(page)
    if await page.evaluate("document.documentElement.scrollWidth > innerWidth"):
        told.append(f"{page.url} {width}: is wider than the screen")
    return told


async def _written(page: Page, width: int, theme: str, shot: Path | None) -> None:
    """A text is written: an error, its mark, proposals, types, and all of it in the field."""
    assert not await page.locator("textarea#text").is_visible()
    await _write(page, SHOP)
    await _status(page, "No errors.")
    # Colours, and the numbers of lines.
    line = page.locator(".cm-line").filter(has_text="define stream")
    count = "spans => new Set(spans.map(span => getComputedStyle(span).color)).size"
    colours = await line.locator("span").evaluate_all(count)
    assert colours >= 2
    assert await page.locator(".cm-lineNumbers .cm-gutterElement").last.inner_text() == "5"
    # A misspelt name is marked, and the first error is told.
    await _write(page, SHOP.replace("select item", "select itm"))
    await _status(page, '1 error, the first in line 4: attribute "itm" is not defined')
    assert await page.locator(".cm-lintRange-error").first.inner_text() == "itm"
    assert "itm" in await page.locator("textarea#text").input_value()
    if width < 1000 or theme == "dark":
        return
    # Types under the pointer.
    await page.locator(".cm-lintRange-error").first.hover()
    await page.get_by_text('Did you mean "item"?').wait_for(timeout=TIMEOUT_MS)
    await line.get_by_text("Orders").hover()
    shown = page.locator(".cm-tooltip-hover pre").filter(has_text="stream Orders (item string,")
    await shown.wait_for(timeout=TIMEOUT_MS)
    # Proposals while typing, also after characters of two units.
    await _write(page, SHOP)
    await _status(page, "No errors.")
    option = page.get_by_role("option").filter(has_text="price")
    await page.keyboard.type("from DearOrders[pri")
    await option.first.wait_for(timeout=TIMEOUT_MS)
    if shot is not None:
        await page.screenshot(path=shot)
    await _write(page, SHOP)
    await page.keyboard.type("from DearOrders[item == '🍏' and pri")
    await option.first.click(timeout=TIMEOUT_MS)
    value = await page.locator("textarea#text").input_value()
    assert "and price" in value.splitlines()[-1]


async def _orders(browser: Browser, at: Site) -> None:
    """Fixes, formatting, definitions, another name, and what stands beside the text."""
    context = await browser.new_context(
        viewport={"width": 1440, "height": 900}, permissions=["clipboard-read", "clipboard-write"]
    )
    page = await context.new_page()
    await page.goto(at.url + "/apps/Shop/edit")
    await _write(page, SHOP)
    # The group of a query is above it, the types are behind what is selected.
    lens = page.locator(".cm-lens")
    await lens.filter(has_text="group default, 1 instance").wait_for(timeout=TIMEOUT_MS)
    assert await page.locator(".cm-type").all_inner_texts() == [": string", ": double"]
    field = page.locator("textarea#text")
    assert await field.input_value() == SHOP
    # A hint is an edit.
    await _write(page, SHOP.replace("select item", "select itm"))
    await page.locator(".cm-lintRange-error").first.hover()
    await page.get_by_role("button", name="Replace with item").click(timeout=TIMEOUT_MS)
    await _status(page, "No errors.")
    assert await field.input_value() == SHOP
    # From a name to its definition, by key and by button; there it gets another name.
    await page.locator(".cm-line").filter(has_text="from Orders").click()
    await page.keyboard.press("Home")
    for _ in range(SHOP.splitlines()[3].index("Orders") + 1):
        await page.keyboard.press("ArrowRight")
    await page.keyboard.press("F12")
    active = page.locator(".cm-activeLine").filter(has_text="define stream")
    await active.wait_for(timeout=TIMEOUT_MS)
    page.on("dialog", lambda dialog: dialog.accept("Sales"))
    await page.keyboard.press("F2")
    await page.wait_for_function("() => document.querySelector('#text').value.includes('Sales')")
    assert await field.input_value() == SHOP.replace("Orders (", "Sales (").replace(
        "from Orders", "from Sales"
    )
    await page.get_by_role("button", name="Format").click()
    text = "() => document.querySelector('#text').value"
    await page.wait_for_function(text + r".includes('\ninsert')")
    # A text that can't be checked says so, and not that it has no error.
    await _write(page, SHOP + "-- " + "x" * 200_000)
    await _status(page, "Not checked: the text can't be analysed within its limits.")
    await context.close()


async def _write(page: Page, text: str) -> None:
    """Replace the text, as a person pastes one."""
    await page.get_by_role("textbox", name="SiddhiQL").press("Control+a")
    await page.evaluate("text => navigator.clipboard.writeText(text)", text)
    await page.keyboard.press("Control+v")


async def _deployed(browser: Browser, at: Site) -> None:
    """The text of the editor is the one that is sent."""
    page = await browser.new_page()
    await page.goto(at.url + "/apps/Shop/edit")
    await page.get_by_role("textbox", name="SiddhiQL").fill(SHOP.replace("100.0", "200.0"))
    await page.get_by_role("button", name="Check and show the effect").click()
    await page.get_by_role("button", name="Deploy these changes").click()
    await page.wait_for_url("**/apps/Shop?done=deployed", timeout=TIMEOUT_MS)
    assert "200.0" in (await at.service.app("Shop")).text
    await page.close()


async def _without_script(browser: Browser, at: Site) -> None:
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    for width in (1440, 390):
        await page.set_viewport_size({"width": width, "height": 900})
        await page.goto(at.url + "/deploy")
        field = page.get_by_label("SiddhiQL")
        assert await field.evaluate("field => field.localName") == "textarea"
        await field.fill("define stream S (a int); from S select b insert into T;")
        await page.get_by_role("button", name="Check and show the effect").click()
        assert "MESH-L202" in await page.get_by_role("alert").first.inner_text()
    await context.close()


@pytest.mark.thorough
async def test_a_text_is_written_with_help_and_without_a_script(
    nats_server: NatsServer, rewrite: bool
) -> None:
    chromium()
    async with site(nats_server) as at, browsing() as browser:
        at.start_worker("w1")
        await at.service.deploy(SHOP)
        told = await _with_script(browser, at, rewrite)
        assert told == [], "\n".join(told)
        await _orders(browser, at)
        await _deployed(browser, at)
        await _without_script(browser, at)
