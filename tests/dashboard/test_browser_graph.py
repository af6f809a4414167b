"""The graph of an app in a browser: whole in its box, zoomed and moved, and a list on a phone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.browser import browsing, chromium, look
from tests.support.dashboard import site

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

    from mesh.jetstream.server import NatsServer
    from tests.support.dashboard import Site

pytestmark = [pytest.mark.nats, pytest.mark.slow]

#: Twelve groups in a row: far wider than a screen.
LONG = "@App:name('Long')\ndefine stream S0 (item string, price double);\n" + "".join(
    f"@info(name='q{n}') @dist(execGroup='step{n}') "
    f"from S{n}[price > {n}.0] select item, price insert into S{n + 1};\n"
    for n in range(12)
)


async def view(page: Page) -> list[float]:
    text = await page.locator(".picture svg").get_attribute("viewBox")
    assert text is not None
    return [float(one) for one in text.split()]


async def _moved(browser: Browser, at: Site) -> None:
    page = await browser.new_page(viewport={"width": 1440, "height": 900})
    await page.goto(at.url + "/apps/Long")
    picture = page.locator(".picture")
    assert await picture.evaluate("one => one.scrollWidth <= one.clientWidth")
    whole = await view(page)
    # Each box of the whole graph is within the frame.
    frame = await picture.bounding_box()
    assert frame is not None
    # In one call, as the part may be renewed between two.
    boxes = page.locator(".picture rect")
    edges = await boxes.evaluate_all(
        "all => all.map(one => one.getBoundingClientRect()).map(one => [one.left, one.right])"
    )
    assert edges
    for left, right in edges:
        assert frame["x"] <= left <= right <= frame["x"] + frame["width"]
    await page.get_by_role("button", name="Zoom in").click()
    nearer = await view(page)
    assert nearer[2] == pytest.approx(whole[2] / 1.5)
    # The view stays when the part is renewed.
    await page.evaluate("window.last = document.querySelector('.picture svg')")
    await page.wait_for_function("() => window.last !== document.querySelector('.picture svg')")
    assert await view(page) == pytest.approx(nearer)
    # The pointer moves it, and opens no page when it is released over a box.
    middle = frame["x"] + frame["width"] / 2, frame["y"] + frame["height"] / 2
    await page.mouse.move(*middle)
    await page.mouse.down()
    await page.mouse.move(middle[0] - 200, middle[1], steps=4)
    await page.mouse.up()
    moved = await view(page)
    assert moved[0] > nearer[0]
    assert page.url.endswith("/apps/Long")
    await page.keyboard.down("Control")
    await page.mouse.wheel(0, -300)
    await page.keyboard.up("Control")
    await page.wait_for_function(
        "width => Number(document.querySelector('.picture svg').getAttribute('viewBox')"
        ".split(' ')[2]) < width - 1",
        arg=moved[2],
    )
    # Keys do the same.
    await picture.focus()
    before = await view(page)
    await page.keyboard.press("ArrowLeft")
    assert (await view(page))[0] < before[0]
    await page.keyboard.press("0")
    assert await view(page) == whole
    await page.keyboard.press("+")
    assert (await view(page))[2] < whole[2]
    await page.get_by_role("button", name="Fit").click()
    await page.locator(".picture a").first.click()
    await page.wait_for_url("**/apps/Long/**")
    await page.close()


async def _listed(browser: Browser, at: Site) -> None:
    for has_script in (True, False):
        context = await browser.new_context(
            viewport={"width": 390, "height": 800}, java_script_enabled=has_script
        )
        page = await context.new_page()
        told = await look(page, at.url + "/apps/Long", 390, is_axe=has_script)
        assert told == [], "\n".join(told)
        assert not await page.locator(".picture svg").is_visible()
        rows = page.locator(".flow li")
        assert await rows.count() == 12
        assert "S3 \u2192 S4" in await rows.nth(3).inner_text()
        await page.goto(at.url + "/apps/Long/edit")
        if not has_script:
            text = page.get_by_label("SiddhiQL")
            await text.fill(LONG.replace("price > 3.0", "price > 4.0"))
        await page.get_by_role("button", name="Check and show the effect").click()
        assert await page.locator(".flow li").count() == 12
        if not has_script:
            assert "restarted" in await page.locator(".flow li").nth(3).inner_text()
        await context.close()
    # Without a script a wide graph is scrolled within its frame.
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    await page.goto(at.url + "/apps/Long")
    picture = page.locator(".picture")
    assert await picture.evaluate("one => one.scrollWidth > one.clientWidth")
    assert not await page.evaluate("document.documentElement.scrollWidth > innerWidth")
    await context.close()


@pytest.mark.thorough
async def test_a_graph_fits_is_moved_and_is_a_list_on_a_phone(nats_server: NatsServer) -> None:
    chromium()

    async with site(nats_server) as at, browsing() as browser:
        at.start_worker("w1")
        await at.service.deploy(LONG)
        await at.until_running("Long")
        await _moved(browser, at)
        await _listed(browser, at)
