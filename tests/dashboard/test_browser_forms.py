"""Every form of the pages, driven in a browser with its script, to the result that it shows."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import orjson
import pytest

from mesh.dashboard.responses import HERE
from mesh.manager.past import ANSWER_S
from mesh.manager.queries import QueryAnswer
from mesh.model import names
from tests.support.browser import browsing, chromium
from tests.support.dashboard import site

if TYPE_CHECKING:
    from playwright.async_api import Page, Request

    from mesh.jetstream.server import NatsServer
    from tests.support.dashboard import Site

pytestmark = [pytest.mark.nats, pytest.mark.slow]

APP = """@App:name('Shop')
define stream Orders (item string, price double);
define table Known (item string);
@info(name='dear') @dist(execGroup='filter', parallel='2')
from Orders[price > 100.0] select item, price insert into DearOrders;
@info(name='keep') from DearOrders select item insert into Known;
"""
NEW = """@App:name('Fresh')
define stream Input (n long);
from Input[n > 1L] select n insert into Output;
"""
QUERY = "from Known select item"
TIMEOUT_MS = 15_000
#: Forms of users and accounts are driven in ``test_browser_users.py``.
_OF_USERS = {"token", "sign-out", "revoke", "disable", "enable", "roles", "password", "remove"}


def _actions() -> set[str]:
    """The value of ``do`` of each button in the templates."""
    texts = [path.read_text() for path in (HERE / "templates").glob("*.html")]
    return {one for text in texts for one in re.findall(r'name="do" value="([^"]+)"', text)}


def _answer(monkeypatch: pytest.MonkeyPatch, at: Site) -> None:
    """Rows without a worker; the number of the question is in each answer."""
    count = 0

    async def ask(app: str, query: str, **more: Any) -> QueryAnswer:
        nonlocal count
        count += 1
        rows = json.dumps([[f"answer {count}"]]).encode()
        return QueryAnswer(records=rows, columns=(("item", "string"),), positions={})

    monkeypatch.setattr(at.service.queries, "ask", ask)


async def _button(page: Page, name: str) -> None:
    await page.get_by_role("button", name=name, exact=True).click()


async def _status(page: Page, text: str) -> None:
    shown = page.locator("main [role=status]", has_text=text)
    await shown.first.wait_for(timeout=TIMEOUT_MS)


async def _query(page: Page, at: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    page.on("request", lambda one: opened.append(one.resource_type))
    await page.goto(at.url + "/query?app=Shop")
    await page.get_by_label("On-demand query").fill("from Known select\n  nothing")
    await _button(page, "Ask")
    await page.locator("#live_answer mark", has_text="nothing").wait_for(timeout=TIMEOUT_MS)
    _answer(monkeypatch, at)
    await page.get_by_label("On-demand query").fill(QUERY)
    opened.clear()
    await _button(page, "Ask")
    await page.locator("#live_answer td", has_text="answer 1").wait_for(timeout=TIMEOUT_MS)
    # Nothing may take the place of the answer: a page that answers a form opens no stream.
    await page.wait_for_load_state("networkidle")
    assert "eventsource" not in opened
    assert await page.locator("#live_answer td").inner_text() == "answer 1"
    await page.locator("select[name=every]").select_option("2")
    await _button(page, "Ask")
    await page.wait_for_url("**every=2**")
    await page.locator("#live_answer td", has_text="answer 3").wait_for(timeout=TIMEOUT_MS)
    assert "eventsource" in opened


async def _errors(page: Page, at: Site) -> None:
    for number in range(6):
        entry = {"stream": "Orders", "time_ms": number, "reason": f"no {number}"}
        entry |= {"data": '{"item": "pen", "price": "x"}'}
        await at.js.publish(names.error_subject("Shop"), orjson.dumps(entry))
    await page.goto(at.url + "/errors?app=Shop")
    await page.get_by_label("Choose failed event 1").check()
    await page.get_by_label("Choose failed event 2").check()
    await _button(page, "Discard the ticked ones")
    await _status(page, "2 discarded.")
    await page.get_by_label("Choose failed event 3").check()
    await _button(page, "Replay the ticked ones")
    await _status(page, "1 replayed.")
    await page.get_by_text("Correct and replay").first.click()
    await page.get_by_label("Event as JSON").first.fill('{"item": "pen", "price": 1.5}')
    await _button(page, "Replay corrected")
    await _status(page, "1 replayed.")
    last = (await at.service.streams.last("Shop", "Orders", 1))[0]
    assert last.events == ({"item": "pen", "price": 1.5},)
    # Of a form for all events the script asks first; a no sends nothing.
    page.once("dialog", lambda one: one.dismiss())
    await page.get_by_text("Replay or discard all").click()
    await _button(page, "Discard all")
    assert await at.service.events.failed_count("Shop") == 2
    await page.goto(at.url)
    await page.get_by_text("2 events of app Shop failed").wait_for(timeout=TIMEOUT_MS)
    await page.goto(at.url + "/errors?app=Shop")
    page.on("dialog", lambda one: one.accept())
    await page.get_by_text("Replay or discard all").click()
    await _button(page, "Replay all as they were")
    await _status(page, "2 replayed.")
    await at.js.publish(names.error_subject("Shop"), orjson.dumps({"stream": "Orders"}))
    await page.goto(at.url + "/errors?app=Shop")
    await page.get_by_text("Replay or discard all").click()
    await _button(page, "Discard all")
    await _status(page, "1 discarded.")
    # A discarded event needs nobody any more, whatever the instances have counted.
    await page.goto(at.url)
    await page.locator("#live_numbers").wait_for()
    assert await page.get_by_text("of app Shop failed").count() == 0


async def _app(page: Page, at: Site) -> None:
    path = at.url + "/apps/Shop"
    await page.goto(path + "?tab=instances")
    await page.get_by_label("filter", exact=True).fill("3")
    await _button(page, "Scale filter")
    await _status(page, "The number of instances is changing.")
    await page.get_by_role("link", name="Shop-filter-3").wait_for(timeout=TIMEOUT_MS)
    await at.until_running("Shop")
    await page.goto(path)
    await _button(page, "Pause")
    await page.get_by_role("button", name="Resume", exact=True).wait_for(timeout=TIMEOUT_MS)
    await _button(page, "Resume")
    await page.get_by_role("button", name="Pause", exact=True).wait_for(timeout=TIMEOUT_MS)
    await at.until_running("Shop")
    await _button(page, "Back up")
    await _status(page, "The backup is made.")
    await page.get_by_role("button", name=re.compile("^Restore")).first.click()
    await page.wait_for_url("**/apps/Shop")
    await at.until_running("Shop")
    await page.goto(path + "/s/Orders")
    await page.get_by_label("Event as JSON").fill('{"item": "rug", "price": 7.5}')
    await _button(page, "Publish")
    await _status(page, "The event is published")
    await page.get_by_role("main").get_by_role("searchbox").fill("rug")
    await _button(page, "Filter")
    await page.wait_for_url("**q=rug**")
    assert await page.locator("#live_events tbody tr").count() == 1


async def _deploy(page: Page, at: Site) -> None:
    await page.goto(at.url + "/deploy")
    await page.get_by_label("SiddhiQL").fill(NEW.replace("n > 1L", "m > 1L"))
    await _button(page, "Check and show the effect")
    await page.locator("span.wrong mark", has_text="m").wait_for(timeout=TIMEOUT_MS)
    await page.get_by_label("SiddhiQL").fill(NEW)
    await _preview(page)
    await _button(page, "Check and show the effect")
    await page.get_by_role("heading", name="A new app, Fresh").wait_for(timeout=TIMEOUT_MS)
    await _button(page, "Deploy")
    await page.wait_for_url("**/apps/Fresh**")
    await at.until_running("Fresh")
    await page.goto(at.url + "/apps/Fresh")
    await page.get_by_text("Undeploy Fresh").click()
    await page.get_by_label(re.compile("Type its name")).fill("Fresh")
    await _button(page, "Undeploy")
    await page.wait_for_url(at.url + "/")


async def _preview(page: Page) -> None:
    await page.get_by_text("Preview on events").click()
    line = '{"time": 1767225600000, "stream": "Input", "event": {"n": %d}}'
    await page.get_by_label(re.compile("^Events a line")).fill("\n".join([line % 1, line % 2]))
    await _button(page, "Preview")
    await page.locator("#outputs [role=status]", has_text="2 events, 1 out").wait_for(
        timeout=TIMEOUT_MS
    )
    async with page.expect_download(timeout=TIMEOUT_MS) as kept:
        await _button(page, "Keep as test")
    assert (await kept.value).suggested_filename == "Fresh.yaml"


async def _others(page: Page, at: Site) -> None:
    await page.goto(at.url + "/nodes/w2")
    for name, shown in (("Cordon", "closed"), ("Drain", "drain"), ("Uncordon", "open")):
        await _button(page, name)
        await page.locator("#live_node", has_text=re.compile(shown, re.I)).wait_for(
            timeout=TIMEOUT_MS
        )
    await page.goto(at.url + "/nodes")
    await page.get_by_role("main").get_by_role("searchbox").fill("w2")
    await page.locator("#live_nodes tbody tr").nth(1).wait_for(state="detached")
    # A choice in a filter applies at once.
    await page.goto(at.url + "/story")
    await page.get_by_label("App", exact=True).select_option("Shop")
    await page.wait_for_url("**app=Shop**")
    await page.locator("#live_story li").first.wait_for(timeout=TIMEOUT_MS)
    await page.goto(at.url + "/apps/Shop/compare")
    await page.get_by_label("Fork", exact=True).select_option("Other")
    await _button(page, "Compare")
    await page.get_by_text("MESH-").first.wait_for()


async def _first_run(page: Page, at: Site) -> None:
    await page.goto(at.url + "/start")
    await _button(page, "Run Deduplicate")
    await page.get_by_role("region", name="Last events of Orders").wait_for(timeout=TIMEOUT_MS)
    await _button(page, "Stop the events")
    await _button(page, "Generate events")
    await page.get_by_role("button", name="Stop the events").wait_for(timeout=TIMEOUT_MS)
    await _button(page, "Remove Deduplicate")
    await page.wait_for_url(at.url + "/start")


@pytest.mark.thorough
async def test_every_form_has_its_result_with_its_script(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    chromium()
    done: set[str] = set()

    def note(request: Request) -> None:
        if request.method == "POST" and request.post_data:
            done.update(parse_qs(request.post_data).get("do", []))

    async with site(nats_server) as at, browsing() as browser:
        for worker in ("w1", "w2"):
            at.start_worker(worker)
        await at.service.deploy(APP)
        await at.service.deploy(NEW.replace("Fresh", "Other"))
        await at.until_running("Shop")
        page = await browser.new_page()
        # A comparison is made by a process of its own.
        page.set_default_timeout(1000 * ANSWER_S)
        page.on("request", note)
        await _query(page, at, monkeypatch)
        await _errors(page, at)
        await _app(page, at)
        await _deploy(page, at)
        await _others(page, at)
        await _first_run(page, at)
    # A fork is made and promoted by ``test_browser_changes``.
    assert done == _actions() - _OF_USERS - {"promote"}
