"""Debian's Chromium, driven by Playwright; absent, its tests are skipped with the reason."""

from __future__ import annotations

import shutil
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from mesh.manager.past import ANSWER_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from playwright.async_api import Browser, ConsoleMessage, Page, Request

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """The path of the browser."""
    found = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(CHROMIUM)} is installed")
    return found


@asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    """A browser, ended with the context."""
    from playwright.async_api import async_playwright

    path = chromium()
    async with async_playwright() as driver:
        # Tests may run as root, in a container, where Chromium has no sandbox.
        browser = await driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


async def axe_problems(page: Page) -> list[str]:
    """Violations of WCAG 2.2 A and AA, and of axe's best practices, on a page."""
    from axe_playwright_python.async_playwright import Axe

    found: dict[str, Any] = (await Axe().run(page)).response
    return [
        f"{one['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:200]}"
        for one in found["violations"]
        for node in one["nodes"][:3]
    ]


async def look(
    page: Page, url: str, width: int, *, is_axe: bool, shot: Path | None = None
) -> list[str]:
    """Problems of one page."""
    told: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            told.append(f"{url} {width}: console says {message.text}")

    def note(request: Request) -> None:
        if not request.url.startswith((origin, "data:")):
            told.append(f"{url} {width}: asks {request.url}")

    origin = "/".join(url.split("/", 3)[:3])
    page.on("console", hear)
    page.on("request", note)
    answer = await page.goto(url, timeout=1000 * ANSWER_S)
    assert answer is not None
    if answer.status != 200:
        told.append(f"{url}: {answer.status}")
    if shot is not None:
        # With a second sample there are rates.
        await page.wait_for_timeout(2500)
        await page.screenshot(path=shot, full_page=True)
    if await page.evaluate("document.documentElement.scrollWidth > innerWidth"):
        told.append(f"{url} {width}: is wider than the screen")
    if await page.evaluate("window.hacked"):
        told.append(f"{url}: a payload ran")
    if is_axe:
        told += [f"{url} {width}: {one}" for one in await axe_problems(page)]
    page.remove_listener("console", hear)
    page.remove_listener("request", note)
    return told


async def crawl(page: Page, url: str, width: int, *, is_axe: bool) -> tuple[set[str], list[str]]:
    """Look at every page that links lead to, each path once; the paths and the problems."""
    waiting, seen, told = ["/"], {"/"}, []
    while waiting:
        told += await look(page, url + waiting.pop(0), width, is_axe=is_axe)
        links: list[str] = await page.locator("a[href^='/']").evaluate_all(
            "all => all.map(a => a.getAttribute('href').split('#')[0])"
        )
        for link in links:
            path = link.partition("?")[0]
            # Those of the API and of files are no pages.
            if path not in seen and not path.startswith(("/static", "/api", "/openapi")):
                seen.add(path)
                waiting.append(link)
    return seen, told
