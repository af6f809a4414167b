"""The pages in a browser: readable by everybody, on a phone too, with JavaScript and without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest

from mesh.model import names
from mesh.model.cluster import InstanceState
from tests.support.browser import browsing, chromium, look
from tests.support.dashboard import site
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from playwright.async_api import Browser

    from mesh.jetstream.server import NatsServer
    from tests.support.dashboard import Site

pytestmark = [pytest.mark.nats, pytest.mark.slow]

SHOP = """@App:name('Shop')
define stream Orders (item string, price double, region string);
@info(name='dear') @dist(execGroup='filter', parallel='2')
from Orders[price > 100.0] select item, price, region insert into DearOrders;
@info(name='sums') @dist(execGroup='count')
from DearOrders#window.time(1 min)
select item, count() as n, sum(price) as total group by item insert into Totals;
@info(name='many') @dist(execGroup='alarm')
from Totals[n > 10] select item, n insert into Alarms;
"""
BILLING = """@App:name('Billing')
define stream Invoices (amount double);
@info(name='total') @dist(execGroup='sums')
from Invoices[amount > 0.0] select sum(amount) as total insert into Sums;
"""
#: Each page with the name of its picture.
PAGES = {
    "overview": "/",
    "app": "/apps/Shop",
    "app-instances": "/apps/Shop?tab=instances",
    "app-elements": "/apps/Shop?tab=elements",
    "app-text": "/apps/Shop?tab=text",
    "app-guarantees": "/apps/Shop?tab=guarantees",
    "app-checks": "/apps/Shop?tab=checks",
    "app-backups": "/apps/Shop?tab=backups",
    "app-errors": "/apps/Shop?tab=errors",
    "app-story": "/apps/Shop?tab=story",
    "app-failing": "/apps/Billing",
    "instance": "/apps/Shop/i/Shop-count-1",
    "stream": "/apps/Shop/s/Orders",
    "compare": "/apps/Shop/compare",
    "edit": "/apps/Shop/edit",
    "nats": "/nats",
    "nats-stream": "/nats/mesh-Shop-Orders",
    "nodes": "/nodes",
    "node": "/nodes/worker-1",
    "story": "/story?app=Shop",
    "search": "/search?q=price",
    "start": "/start",
    "errors": "/errors",
    "errors-app": "/errors?app=Shop",
    "query": "/query?app=Shop",
    "deploy": "/deploy",
    "api": "/docs",
}
#: Widths in points and themes, and those of the extended tier.
NARROW = 390
LOOKS = ((NARROW, "dark"), (1440, "light"))
MORE_LOOKS = ((NARROW, "light"), (1440, "dark"))
#: Pages that the default tier looks at on a wide screen as well.
WIDE = ("overview", "app", "errors-app", "edit", "nodes")
HOSTILE = '{"item":"<script>window.hacked=1</script>\u202e\u0007","price":1.0,"region":"x"}'
IMAGES = ROOT / "docs" / "images"


async def shop(at: Site) -> None:
    """A cluster in which something is wrong: a failing app, a backlog, failed events."""
    for name, cpu in (("worker-1", 23.0), ("worker-2", 71.0), ("worker-3", 12.0)):
        at.start_worker(name, cpu_percent=cpu)
    await at.service.deploy(SHOP, by="ada")
    await at.service.deploy(BILLING, by="ada")
    await at.until_running("Shop")
    at.states["Billing-sums-1"] = {
        "state": InstanceState.RETRYING, "restarts": 7, "retry_at_ms": 1_795_440_060_000,
        "error": "ValueError: attribute \"amount\" is not a double: 'twelve' (sequence 1041)",
    }  # fmt: skip
    at.states["Shop-count-1"] = {"behind": 18_400, "errors": 3, "events_in": 51_000}
    for number in range(12):
        event = {"item": f"book {number}", "price": 92.5 + number, "region": "north"}
        await at.js.publish(names.subject("Shop", "Orders"), orjson.dumps(event))
    await at.js.publish(names.subject("Shop", "Orders"), HOSTILE.encode())
    await at.js.publish(names.subject("Shop", "Orders"), b"\xff\xfe\x00\x01")
    for reason, data in (
        ('attribute "price" is missing', '{"item":"pen","region":"south"}'),
        ('attribute "price" is missing', '{"item":"<b>ink</b>","region":"south"}'),
        ('price is double, not "12,5"', '{"item":"cup","price":"12,5","region":"west"}'),
    ):
        entry = {"stream": "Orders", "sequence": 7, "index": 0, "time_ms": 1_795_440_000_000}
        entry |= {"group": "filter", "reason": reason, "data": data}
        await at.js.publish(names.error_subject("Shop"), orjson.dumps(entry))
    await at.service.backups.make("Shop", by="ada")


async def _all_pages(browser: Browser, at: Site, is_whole: bool, rewrite: bool) -> None:
    told: list[str] = []
    # Every narrow page in the dark; of the wide ones in the light those of a layout of their own.
    for width, theme in (*LOOKS, *(MORE_LOOKS if is_whole else ())):
        scheme: Any = theme
        is_narrow = width == NARROW
        context = await browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        page = await context.new_page()
        for name, path in PAGES.items():
            if not is_whole and not is_narrow and name not in WIDE:
                continue
            is_axe = is_whole or is_narrow
            is_shot = (width, theme) in LOOKS and (not is_narrow or name in ("overview", "app"))
            shot = None
            if rewrite and is_shot:
                shot = IMAGES / f"dashboard-{name}{'-phone' if is_narrow else ''}.png"
            told += await look(page, at.url + path, width, is_axe=is_axe, shot=shot)
        await context.close()
    assert told == [], "\n".join(told)


async def _without_javascript(browser: Browser, at: Site) -> None:
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    for width in (1440, NARROW):
        await page.set_viewport_size({"width": width, "height": 800})
        for path in PAGES.values():
            answer = await page.goto(at.url + path)
            assert answer is not None
            assert answer.status == 200
            assert await page.locator("h1").count() == 1
            assert not await page.evaluate("document.documentElement.scrollWidth > innerWidth")
    # A failed event is replayed, corrected.
    await page.goto(at.url + "/errors?app=Shop&reason=price+is+double,+not+%2212,5%22")
    await page.get_by_text("Correct and replay").click()
    field = page.get_by_role("textbox", name="Event as JSON")
    await field.fill('{"item":"cup","price":12.5,"region":"west"}')
    await page.get_by_role("button", name="Replay corrected").click()
    assert await page.get_by_role("status").first.inner_text() == "1 replayed."
    last = (await at.service.streams.last("Shop", "Orders", 1))[0]
    assert last.events == ({"item": "cup", "price": 12.5, "region": "west"},)
    # An app is edited: errors in place, then the changes, then the deploy.
    await page.goto(at.url + "/apps/Shop/edit")
    text = page.get_by_label("SiddhiQL")
    assert (await text.input_value()).rstrip() == SHOP.rstrip()
    await text.fill(SHOP.replace("n > 10", "n > > 20"))
    await page.get_by_role("button", name="Check and show the effect").click()
    assert "MESH-L" in await page.get_by_role("alert").first.inner_text()
    assert "n > > 20" in await page.locator("span.wrong").inner_text()
    await page.get_by_label("SiddhiQL").fill(SHOP.replace("n > 10", "n > 20"))
    await page.get_by_role("button", name="Check and show the effect").click()
    row = page.get_by_role("row").filter(has_text="alarm")
    assert "restarted" in await row.inner_text()
    assert (await at.service.app("Shop")).text == SHOP
    await page.get_by_role("button", name="Deploy these changes").click()
    assert "n > 20" in (await at.service.app("Shop")).text
    await context.close()


async def _open_page(browser: Browser, at: Site) -> None:
    """An open overview shows a killed worker, and closes its stream when it is hidden."""
    page = await browser.new_page()
    await page.goto(at.url)
    await at.kill_worker("worker-3")
    await page.get_by_text("worker worker-3 is gone").wait_for(timeout=15_000)
    hidden = "Object.defineProperty(document, 'hidden', {get: () => true, configurable: true});"
    event = "document.dispatchEvent(new Event('visibilitychange'))"
    await page.evaluate(hidden + event)
    at.start_worker("worker-3")
    await at.service.undeploy("Billing")
    assert await page.get_by_text("worker worker-3 is gone").count() == 1
    await page.evaluate(hidden.replace("true,", "false,") + event)
    await page.get_by_text("worker worker-3 is gone").wait_for(state="detached", timeout=15_000)
    # A filter applies while it is typed, and stays in the URL; the page stays live.
    await page.locator("#q").fill("Sho")
    await page.wait_for_url("**/?q=Sho&state=")
    await page.locator("#live_apps tbody tr").nth(1).wait_for(state="detached")
    assert await page.evaluate("document.activeElement.id") == "q"
    await at.kill_worker("worker-2")
    await page.get_by_text("worker worker-2 is gone").wait_for(timeout=15_000)
    # The keyboard leads everywhere: first to the content, then along the pages.
    await page.goto(at.url)
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.className") == "skip"
    await page.keyboard.press("f")
    assert await page.evaluate("document.activeElement.id") == "q"
    await page.close()


@pytest.mark.thorough
@pytest.mark.parametrize("is_whole", [False, pytest.param(True, marks=pytest.mark.extended)])
async def test_every_page_in_a_browser(
    nats_server: NatsServer, is_whole: bool, rewrite: bool
) -> None:
    chromium()

    async with site(nats_server) as at, browsing() as browser:
        await shop(at)
        await _all_pages(browser, at, is_whole, rewrite)
        await _without_javascript(browser, at)
        await _open_page(browser, at)
