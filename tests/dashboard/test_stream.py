"""Events of a stream live in a browser: filter, pause, copy, replay; replay without a script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import orjson
import pytest

from mesh.api import users
from mesh.dashboard.pages.stream import COPIED_MAX, copied
from mesh.model import names
from mesh.model.access import SETS
from tests.support.browser import browsing, chromium, look
from tests.support.dashboard import site
from tests.support.forms import send
from tests.support.load import until

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.async_api import Browser, Page

    from mesh.jetstream.server import NatsServer
    from tests.support.dashboard import Site

pytestmark = pytest.mark.nats

APP = """@App:name('Shop')
define stream Orders (item string, price double);
@info(name='dear') from Orders[price > 100.0] select item insert into DearOrders;
"""
TURNED = "pen\u202e\u0007"


async def publish(at: Site, item: str) -> int:
    data = orjson.dumps({"item": item, "price": 7.5})
    return (await at.js.publish(names.subject("Shop", "Orders"), data)).seq


def rows(page: Page) -> Any:
    return page.locator("#live_events tbody tr")


async def _with_a_script(browser: Browser, at: Site) -> None:
    context = await browser.new_context(viewport={"width": 1440, "height": 900})
    await context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = await context.new_page()
    await publish(at, TURNED)
    await page.goto(f"{at.url}/apps/Shop/s/Orders")
    assert await rows(page).count() == 1
    # A copy is the event itself, as JSON.
    await page.get_by_role("button", name="Copy event 1").click()
    await page.get_by_role("button", name="Copied").wait_for()
    text = await page.evaluate("navigator.clipboard.readText()")
    assert orjson.loads(text) == {"item": TURNED, "price": 7.5}
    await publish(at, "cup")
    await rows(page).nth(1).wait_for()
    # Paused, the list stays while events arrive; then it has them.
    await page.get_by_role("button", name="Pause").click()
    number = await publish(at, "ink")
    await page.locator("#live_channel", has_text=f"to {number}").wait_for()
    assert await rows(page).count() == 2
    await page.get_by_role("button", name="Continue").click()
    await rows(page).nth(2).wait_for()
    # The filter holds while the page is live.
    await page.locator("#q").fill("INK")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**?q=INK")
    await publish(at, "cup")
    await publish(at, "pink")
    await rows(page).nth(1).wait_for()
    assert "cup" not in await page.locator("#live_events").inner_text()
    # A replay is a new event with the same values, and the filter stays.
    page.on("dialog", lambda dialog: dialog.accept())
    await page.get_by_role("button", name=f"Replay event {number}").click()
    await page.get_by_role("status").filter(has_text="published again").wait_for()
    assert "q=INK" in page.url
    assert await rows(page).count() == 3
    last = (await at.service.streams.last("Shop", "Orders", 1))[0]
    assert last.events == ({"item": "ink", "price": 7.5},)
    await context.close()


async def _without_a_script(browser: Browser, at: Site) -> None:
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    await page.goto(f"{at.url}/apps/Shop/s/Orders")
    assert not await page.get_by_role("button", name="Pause").is_visible()
    count = await rows(page).count()
    await page.get_by_role("button", name="Replay event 1").click()
    assert "published again" in await page.get_by_role("status").first.inner_text()
    assert await rows(page).count() == count + 1
    last = (await at.service.streams.last("Shop", "Orders", 1))[0]
    assert last.events == ({"item": TURNED, "price": 7.5},)
    await context.close()


async def test_a_stream_is_followed_in_a_browser(nats_server: NatsServer) -> None:
    chromium()

    async with site(nats_server) as at, browsing() as browser:
        at.start_worker("w1")
        await at.service.deploy(APP)
        await at.until_running("Shop")
        await _with_a_script(browser, at)
        await _without_a_script(browser, at)
        told: list[str] = []
        for width, theme in ((390, "dark"), (1440, "light")):
            scheme: Any = theme
            context = await browser.new_context(
                viewport={"width": width, "height": 900}, color_scheme=scheme
            )
            page = await context.new_page()
            told += await look(page, f"{at.url}/apps/Shop/s/Orders", width, is_axe=True)
            await context.close()
        assert told == [], "\n".join(told)


@pytest.mark.slow
async def test_a_replay_is_of_a_stored_event_of_the_stream(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    users.add(tmp_path / "users", "eye", "secret", SETS["view"])
    given: dict[str, Any] = {"anonymous": False, "users_file": str(tmp_path / "users")}
    page = "/apps/Shop/s/Orders"

    async with site(nats_server) as at, httpx.AsyncClient(base_url=at.url, timeout=60) as client:
        await at.service.deploy(APP)
        await publish(at, "pen")
        await at.js.publish(names.subject("Shop", "Orders"), b"\xff\x00")
        stored = {"do": "replay", "js_stream": "mesh-Shop-Orders", "sequence": "1", "index": "0"}
        assert (await send(client, page, **stored)).status_code == 303
        for wrong, status in (
            ({"sequence": "99"}, 404), ({"sequence": "2"}, 400), ({"sequence": "x"}, 400),
            ({"index": "7"}, 404), ({"js_stream": "KV_mesh_apps"}, 404), ({"js_stream": ""}, 404),
        ):  # fmt: skip
            answer = await send(client, page, **{**stored, **wrong})
            assert answer.status_code == status, (wrong, answer.text)

        async def is_stored() -> bool:
            return len(await at.service.streams.last("Shop", "Orders", 10)) == 3

        await until(is_stored)
    async with (
        site(nats_server, **given) as at,
        httpx.AsyncClient(base_url=at.url, timeout=60) as client,
    ):
        await client.post("/login", data={"user": "eye", "password": "secret"})
        shown = (await client.get(page, headers={"Accept": "text/html"})).text
        assert "Copy" in shown
        assert "Replay" not in shown


def test_what_can_be_copied_hides_nothing() -> None:
    assert copied({"a": TURNED}) == r'{"a": "pen\u202e\u0007"}'
    assert copied(b"\xff") == copied("text") == ""
    assert copied({"a": "x" * COPIED_MAX}) == ""
