"""The preview of the deploy and edit pages, in a browser: with a script, and without."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import httpx
import pytest

from mesh.model import names
from mesh.testing import payload_cases
from tests.dashboard.test_forms import Browser as Forms
from tests.support.browser import axe_problems, browsing, chromium
from tests.support.dashboard import site

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.async_api import Browser, ConsoleMessage, Page

    from mesh.jetstream.server import NatsServer
    from tests.support.dashboard import Site

pytestmark = [pytest.mark.nats, pytest.mark.slow, pytest.mark.timeout(240)]

TIMEOUT_MS = 60_000
SHOP = """@App:name('Shop')
define stream Orders (item string, price double);
@info(name='dear') from Orders[price > 100.0] select item, price insert into Dear;
from Orders#window.timeBatch(1 sec) select count() as n insert into Counts;
"""
LINES = "\n".join(
    json.dumps({"time": 1_767_225_600_000 + n * 600, "stream": "Orders", "event": event})
    for n, event in enumerate({"item": "<b>pen", "price": 60.0 * n} for n in range(4))
)


async def _problems(page: Page) -> list[str]:
    told = await axe_problems(page)
    if await page.evaluate("document.documentElement.scrollWidth > innerWidth"):
        told.append(f"{page.url}: is wider than the screen")
    return told


async def _said(page: Page, text: str) -> None:
    await page.locator("#outputs [role=status]", has_text=text).wait_for(timeout=TIMEOUT_MS)


async def _write(page: Page, text: str) -> None:
    """Replace the text, as a person pastes one."""
    await page.get_by_role("textbox", name="SiddhiQL").press("Control+a")
    await page.evaluate("text => navigator.clipboard.writeText(text)", text)
    await page.keyboard.press("Control+v")


async def _with_script(browser: Browser, at: Site, directory: Path) -> list[str]:
    told: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        told.append(message.text)

    file = directory / "events.jsonl"
    file.write_text(LINES)
    for width in (1440, 390):
        context = await browser.new_context(
            viewport={"width": width, "height": 900},
            permissions=["clipboard-read", "clipboard-write"],
        )
        page = await context.new_page()
        page.on("console", hear)
        await page.goto(at.url + "/apps/Shop/edit")
        await page.evaluate("window.stays = true")
        await page.get_by_text("Preview on events").click()
        # Events of a file: the draft's outputs beside those of the running text.
        await page.get_by_label("Events of a file").set_input_files(file)
        await _write(page, SHOP.replace("100.0", "150.0"))
        button = page.get_by_role("button", name="Preview", exact=True)
        await button.click()
        await _said(page, "4 events, 2 out")
        await _said(page, "the outputs differ from those of the running text")
        dear = page.get_by_role("region", name="Dear, running and draft").locator("tbody tr")
        cells = "rows => rows.map(row => [...row.cells].map(cell => cell.innerText.trim()))"
        kept = '{"item":"<b>pen","price":180.0}'
        assert await dear.evaluate_all(cells) == [
            ["gone", kept.replace("180", "120"), "\N{EN DASH}"],
            ["same", kept, kept],
        ]
        whole = page.get_by_role("region", name="Events with what they caused")
        first = await whole.locator("tbody tr").evaluate_all(
            "rows => rows.map(row => row.cells[0].innerText + ' ' + row.cells[2].innerText)"
        )
        assert first == ["1 Orders", "2 Orders", "timer Counts", "3 Orders", "4 Orders", "→ Dear"]
        told += await _problems(page)
        # Stored events.
        proposed = page.locator("#streams option")
        streams = await proposed.evaluate_all("all => all.map(one => one.value)")
        assert streams == ["Counts", "Dear", "Orders"]
        await page.locator("#events").fill("")
        await page.get_by_label("Stored events of").fill("Orders")
        await page.get_by_label("Last", exact=False).first.fill("2")
        await button.click()
        await _said(page, "2 events, 1 out")
        # An error is told in its place.
        await _write(page, SHOP.replace("price >", "prize >"))
        await button.click()
        await page.locator("#outputs").get_by_text("MESH-L202").first.wait_for(timeout=TIMEOUT_MS)
        told += await _problems(page)
        assert await page.evaluate("window.stays")
        await context.close()
    return told


async def _without_script(browser: Browser, at: Site) -> list[str]:
    told: list[str] = []
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    for width in (1440, 390):
        await page.set_viewport_size({"width": width, "height": 900})
        await page.goto(at.url + "/deploy")
        await page.get_by_text("Preview on events").click()
        assert not await page.get_by_label("Events of a file").is_visible()
        await page.get_by_label("SiddhiQL").fill(SHOP.replace("Shop", "Draft"))
        await page.locator("#events").fill(LINES)
        await page.get_by_role("button", name="Preview", exact=True).click()
        await _said(page, "4 events, 3 out")
        assert page.url.endswith("/deploy#outputs")
        assert await page.locator("#events").input_value() == LINES
        await page.locator("#events").fill("no event")
        await page.get_by_role("button", name="Preview", exact=True).click()
        assert "MESH-U160" in await page.locator("#outputs").inner_text()
    await context.close()
    return told


@pytest.mark.thorough
async def test_a_text_is_played_before_it_is_deployed(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    chromium()
    async with site(nats_server) as at, browsing() as browser:
        await at.service.deploy(SHOP)
        for n in range(4):
            data = json.dumps({"item": "pen", "price": 60.0 * n}).encode()
            await at.js.publish(names.subject("Shop", "Orders"), data)
        told = await _with_script(browser, at, tmp_path)
        assert told == [], "\n".join(told)
        assert await _without_script(browser, at) == []
        assert (await at.service.app("Shop")).text == SHOP
        assert at.service.record("Draft") is None


async def test_a_kept_test_is_a_file_and_a_refusal_a_page(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with (
        site(nats_server) as at,
        httpx.AsyncClient(base_url=at.url, timeout=90) as client,
    ):
        await at.service.deploy(SHOP)
        forms, page = Forms(client), "/apps/Shop/edit"
        form = {"text": SHOP, "events": LINES, "last": "10", "do": "keep"}
        kept = await forms.send(page, **form)
        assert kept.headers["content-disposition"].endswith("Shop.yaml")
        (tmp_path / "kept.yaml").write_text(kept.text)
        (case,) = payload_cases.read(tmp_path / "kept.yaml")
        assert case.differences() == []
        for wrong in (
            {"events": ""}, {"last": "0"}, {"last": "x"}, {"from": "None"},
            {"since": "x", "from": "Orders"}, {"text": SHOP.replace("Shop", "Other")},
            {"text": "!"},
        ):  # fmt: skip
            answer = await forms.send(page, **{**form, **wrong})
            assert (answer.status_code, "MESH-" in answer.text) == (400, True), wrong
            assert "<!doctype html>" in answer.text
