"""A first run: each app of the cookbook with its events and its change, and its pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from mesh.dashboard.first_apps import FIRST_APPS, text_of
from tests.dashboard.test_forms import Browser
from tests.support.dashboard import site
from tests.support.load import until

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer


@pytest.mark.slow
@pytest.mark.nats
async def test_an_empty_cluster_leads_to_an_app_with_events_and_a_change(
    nats_server: NatsServer,
) -> None:
    async with site(nats_server) as at, httpx.AsyncClient(base_url=at.url, timeout=60) as client:
        at.start_worker("w1")
        empty = (await client.get("/")).text
        for one in FIRST_APPS:
            assert f"Run {one.app}</button>" in empty
        browser = Browser(client)
        done = await browser.send("/", "/start", app="AlertOnce")
        assert done.headers["location"] == "/start/AlertOnce", done.text
        await at.until_running("AlertOnce")

        async def has_events() -> bool:
            return "&#34;sensor&#34;" in (await client.get("/start/AlertOnce")).text

        await until(has_events)
        page = (await client.get("/start/AlertOnce")).text
        assert "Stop the events" in page
        assert "<code>80.0</code> becomes <code>70.0</code>" in page
        # The page of the effect leads back to the steps.
        (one,) = [one for one in FIRST_APPS if one.app == "AlertOnce"]
        form = {"text": one.changed(text_of(one)), "then": "start", "reset": one.reset}
        shown = await browser.send("/start/AlertOnce", "/apps/AlertOnce/edit", do="check", **form)
        assert 'name="then" value="start"' in shown.text
        mark = shown.text.partition('name="seen" value="')[2].partition('"')[0]
        form |= {"do": "deploy", "seen": mark}
        done = await browser.send("/start/AlertOnce", "/apps/AlertOnce/edit", **form)
        assert done.headers["location"] == "/start/AlertOnce?done=deployed", done.text
        assert one.effect in (await client.get("/start/AlertOnce")).text
        # Another app is no first app, and leads back to its own page.
        assert (await client.get("/start/Shop")).status_code == 404
        await browser.send("/start/AlertOnce", do="stop")
        assert "Generate events" in (await client.get("/start/AlertOnce")).text
        # An app that runs already is shown, and is not changed.
        done = await browser.send("/start", "/start", app="AlertOnce")
        assert done.headers["location"] == "/start/AlertOnce"
        assert "70.0" in (await at.service.app("AlertOnce")).text
        done = await browser.send("/start/AlertOnce", do="undeploy")
        assert done.headers["location"] == "/start"

        async def is_gone() -> bool:
            return at.service.record("AlertOnce") is None

        await until(is_gone)
        assert await at.service.feeds.list_all() == []
