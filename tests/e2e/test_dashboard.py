"""The pages of a real cluster under load, with a worker that is killed and an event that is bad."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import orjson
import pytest

from mesh.model import names
from tests.support.browser import axe_problems, browsing, chromium, crawl
from tests.support.events import row_values

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.async_api import Browser

    from tests.support.scenes import Scene
    from tools.cluster import MeshClusterView

pytestmark = [
    pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.extended,
    pytest.mark.timeout(600),
]  # fmt: skip

APP = """@App:name('Glass')
define stream Readings (k string, v double);
@info(name='high') @dist(execGroup='filter', parallel='2')
from Readings[v > 10.0] select k, v insert into High;
@info(name='sums') @dist(execGroup='sums')
from High#window.length(5) select k, sum(v) as s group by k insert into Sums;
"""
#: Longest time from the kill to the words on an open page, seconds; at rest it takes about two.
SEEN_S = 30.0


async def _load(view: MeshClusterView) -> None:
    """Events, without end."""
    number = 0
    while True:
        number += 1
        event = {"k": f"k{number % 7}", "v": float(number % 40)}
        await view.js.publish(names.subject("Glass", "Readings"), orjson.dumps(event))
        await asyncio.sleep(0.01)


def _address(view: MeshClusterView) -> str:
    """The API of the manager; it is in its heartbeats once it listens."""
    nodes = view.view.snapshot().nodes
    return next((n.value.address for n in nodes if n.value.role == "manager"), "")


async def _look_everywhere(browser: Browser, url: str) -> None:
    """Every page with JavaScript and without, on a phone and on a wide screen."""
    for scripts in (True, False):
        for width in (375, 1440):
            context = await browser.new_context(
                java_script_enabled=scripts, viewport={"width": width, "height": 900}
            )
            paths, told = await crawl(await context.new_page(), url, width, is_axe=scripts)
            assert told == [], "\n".join(told)
            assert {"/apps/Glass", "/nodes", "/story", "/errors", "/query", "/deploy"} <= paths
            await context.close()


def test_a_person_finds_the_fault_and_corrects_it(play: Callable[[Scene], None]) -> None:
    chromium()

    async def scene(view: MeshClusterView) -> None:
        url = f"http://{await view.until('an address', lambda: _address(view))}"
        await view.service.deploy(APP)
        await view.until_running("Glass")
        load = asyncio.create_task(_load(view))
        try:
            async with browsing() as browser:
                context = await browser.new_context(viewport={"width": 375, "height": 800})
                page = await context.new_page()
                await page.goto(url)
                await page.get_by_text("Nothing needs you").wait_for(timeout=60_000)
                assert await axe_problems(page) == []
                view.cluster.kill("w2")
                # It is suspect first, and gone half a second later.
                await page.get_by_text("worker w2 is").first.wait_for(timeout=SEEN_S * 1000)
                assert await axe_problems(page) == []
                view.cluster.start_worker("w2")
                # A bad event, corrected.
                bad = b'{"k":"bad","v":"forty"}'
                await view.js.publish(names.subject("Glass", "Readings"), bad)
                errors = names.error_js_stream("Glass"), names.error_subject("Glass")
                await view.until("a failed event", lambda: view.count(*errors))
                await page.goto(f"{url}/errors?app=Glass")
                assert await axe_problems(page) == []
                await _look_everywhere(browser, url)
                await page.get_by_text("Correct and replay").first.click()
                field = page.get_by_role("textbox", name="Event as JSON")
                await field.fill('{"k":"corrected","v":40.0}')
                await page.get_by_role("button", name="Replay corrected").click()
                await page.get_by_text("1 replayed.").wait_for()

                async def arrived() -> bool:
                    rows = await row_values(view, "Glass", "Sums", 1)
                    return any("corrected" in map(str, row) for row in rows)

                await view.until("the corrected event in the output", arrived)
                # An edit shows what it restarts before it does so.
                await page.goto(f"{url}/apps/Glass/edit")
                await page.get_by_label("SiddhiQL").fill(APP.replace("v > 10.0", "v > 20.0"))
                await page.get_by_role("button", name="Check and show the effect").click()
                row = page.get_by_role("row").filter(has_text="filter")
                assert "restarted" in await row.inner_text()
                assert "same" in await page.get_by_role("row").filter(has_text="sums").inner_text()
                await page.get_by_role("button", name="Deploy these changes").click()
                await page.get_by_text("Deployed.").wait_for()
                await view.until_running("Glass")
                await context.close()
        finally:
            load.cancel()
            await asyncio.gather(load, return_exceptions=True)
            await view.service.undeploy("Glass")
            await view.until_ready("w1", "w2")

    play(scene)
