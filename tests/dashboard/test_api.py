"""The REST API as a page: each operation of the OpenAPI document, found by words, in a browser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from mesh.clock import SystemClock
from mesh.dashboard.guard import COOKIE
from mesh.dashboard.pages.api import operations
from mesh.dashboard.server import HEADERS, make_pages
from tests.dashboard.test_server import FakeAccess
from tests.support.browser import browsing, chromium, look
from tests.support.dashboard import site

if TYPE_CHECKING:
    from playwright.async_api import Request

    from mesh.jetstream.server import NatsServer

WORDS = '"><script>window.hacked=1</script>'


async def _page(query: str = "") -> str:
    access: Any = FakeAccess()
    pages: Any = make_pages(None, access, SystemClock())  # type: ignore[arg-type]
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(pages), base_url="http://mesh:9543"
    ) as client:
        answer = await client.get(f"/docs{query}", headers={"Cookie": f"{COOKIE}=viewer"})
    assert answer.status_code == 200
    assert answer.headers["content-security-policy"] == HEADERS["Content-Security-Policy"]
    return answer.text


async def test_it_has_every_operation_of_the_document_with_parameters_and_a_command() -> None:
    text = await _page()
    found = operations()
    assert len(found) > 100
    assert f"{len(found)} operations" in text
    for one in found:
        assert f'id="{one.key}"' in text
    assert len(set(re.findall(r' id="([^"]+)"', text))) == len(re.findall(r' id="', text))
    (scale,) = (one for one in found if one.path == "/siddhi-apps/{app}/scale")
    assert ("parallel", "query", "integer, 0 to 99999", True) in scale.parameters
    (query,) = (one for one in found if one.path == "/stores/query")
    assert ("appName", "body", "text", True) in query.parameters
    (deploy,) = (o for o in found if (o.method, o.path) == ("POST", "/siddhi-apps"))
    assert deploy.command("https://mesh:9543") == (
        "curl -u USER -X POST -H 'Content-Type: text/plain' --data-binary @app.siddhi "
        "https://mesh:9543/siddhi-apps"
    )
    assert deploy.access == "apps.manage"


async def test_a_search_leaves_what_has_all_of_its_words() -> None:
    text = await _page("?q=restore+POST")
    assert "1 of " in text
    assert '<details id="post-siddhi-apps-app-restore" open>' in text
    assert "<details" not in (await _page("?q=restore+nothing-has-this")).split("<main")[1]
    assert "<script>window" not in await _page(f"?q={WORDS}")


async def test_nothing_of_it_comes_from_another_host() -> None:
    loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="([^"]+)"', await _page())
    assert loaded
    assert all(one.startswith("/static/") for one in loaded)


@pytest.mark.nats
@pytest.mark.slow
@pytest.mark.thorough
async def test_it_in_a_browser(nats_server: NatsServer) -> None:
    chromium()
    told: list[str] = []
    async with site(nats_server) as at, browsing() as browser:
        for width in (1440, 390):
            for theme in ("light", "dark"):
                scheme: Any = theme
                context = await browser.new_context(
                    viewport={"width": width, "height": 900}, color_scheme=scheme
                )
                page = await context.new_page()
                for path in ("/docs", "/docs?q=restore", "/docs?q=nothing-has-this"):
                    told += await look(page, at.url + path, width, is_axe=True)
                await context.close()
        assert told == [], "\n".join(told)
        asked: list[Request] = []

        def note(one: Request) -> None:
            asked.append(one)

        for has_script in (True, False):
            context = await browser.new_context(java_script_enabled=has_script)
            page = await context.new_page()
            page.on("request", note)
            await page.goto(f"{at.url}/nodes")
            await page.get_by_role("link", name="REST API").click()
            await page.wait_for_url("**/docs")
            await page.get_by_role("main").get_by_role("searchbox").fill("scale")
            await page.get_by_role("main").get_by_role("searchbox").press("Enter")
            await page.wait_for_url("**/docs?q=scale")
            assert await page.get_by_text("parallel", exact=True).is_visible()
            assert all(one.url.startswith(at.url) for one in asked)
            await context.close()
