"""Pages of an app's past: lineage of an event, comparison with a fork, findings; who may look."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from mesh.model.error_entry import SimulatedEvent
from tests.support.dashboard import site

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats

APP = """@App:name('Shop')
define stream Orders (item string, price double);
@dist(execGroup='dear') from Orders[price > 10.0] select item, price insert into Dear;
"""
HOSTILE = "<script>window.hacked=1</script>\u202e"


async def test_an_event_is_explained_and_two_apps_are_compared(nats_server: NatsServer) -> None:
    async with (
        site(nats_server) as at,
        httpx.AsyncClient(base_url=at.url, timeout=130) as client,
    ):
        await at.service.deploy(APP)
        await at.service.deploy(APP.replace("Shop", "Next"))
        # No worker runs: rows in the outputs are from clients, without a producer.
        for app, stream, price in (
            ("Shop", "Orders", 5.0), ("Shop", "Dear", 20.0),
            ("Next", "Dear", 20.0), ("Next", "Dear", 30.0),
        ):  # fmt: skip
            event = {"item": HOSTILE, "price": price}
            await at.service.events.send(app, [SimulatedEvent(stream, event, None)])
        why = (await client.get("/apps/Shop/why/Orders/1")).text
        assert "5.0" in why
        assert "outside" in why
        assert "<script>window" not in why
        assert (await client.get("/apps/Shop/why/Orders/7")).status_code == 404
        assert (await client.get("/apps/Shop/why/Orders/x")).status_code == 400
        assert (await client.get("/apps/Shop/why/Orders/1?index=-1")).status_code == 400
        tapped = (await client.get("/apps/Shop/s/Dear")).text
        assert 'href="/apps/Shop/why/Dear/1"' in tapped
        assert "/why/" not in (await client.get("/apps/Shop/s/Orders")).text
        form = (await client.get("/apps/Shop/compare")).text
        assert '<option value="Next">Next</option>' in form
        assert "mesh compare Shop {with}[ --key {key}]" in form
        assert "Earlier" not in form
        found = (await client.get("/apps/Shop/compare?go=1&with=Next&key=price")).text
        assert "The outputs differ" in found
        assert "a row of Dear is new" in found
        assert 'href="/apps/Next/why/Dear/2"' in found
        assert "<script>window" not in found
        same = (await client.get("/apps/Shop/compare?go=1&with=Shop")).text
        assert "No difference" in same
        wrong = await client.get("/apps/Shop/compare?go=1&with=Next&key=nothing")
        assert wrong.status_code == 400
        assert "MESH-" in wrong.text


async def test_findings_of_an_app_are_on_its_page(nats_server: NatsServer) -> None:
    async with (
        site(nats_server) as at,
        httpx.AsyncClient(base_url=at.url, timeout=130) as client,
    ):
        await at.service.deploy(APP)
        await at.service.deploy(APP.replace("Shop", "Other"))
        before = (await client.get("/apps/Shop?tab=checks")).text
        assert "stream-missing" not in before
        assert "mesh verify Shop" in before
        await at.js.delete_stream("mesh-Other-Dear")
        after = (await client.get("/apps/Other?tab=checks")).text
        assert "stream-missing" in after
        assert "mesh-Other-Dear" in after
        assert "restore a backup" in after


async def test_guarantees_of_an_app_are_on_its_page(nats_server: NatsServer) -> None:
    async with (
        site(nats_server) as at,
        httpx.AsyncClient(base_url=at.url, timeout=130) as client,
    ):
        await at.service.deploy(APP + "from Dear select count() as n insert into Counts;")
        text = (await client.get("/apps/Shop?tab=guarantees")).text
        assert "exactly once between channels through a process killed" in text
        assert "channels.replicas: 3 before the first start" in text
        assert text.count("<td>\u2013</td>") == 1, "a state has no readers"
        assert "sync_interval not stated, 2 minutes assumed" in text
