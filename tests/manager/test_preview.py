"""The effect of a text is shown without a deploy: plan, changes, and what would refuse it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from mesh.errors import MeshError
from mesh.manager.manager import running
from mesh.settings import ManagerSettings, NatsSettings, Settings
from tests.support.api import OPEN, TEXT, TEXT_PLAIN, FakeService, served

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

FIRST = """@App:name('A') define stream S (a int);
@info(name='last') @dist(execGroup='g') from S#window.length(2) select sum(a) as b insert into T;
"""
OTHER = FIRST.replace("length(2)", "length(3)")


async def test_a_preview_tells_plan_changes_and_refusal_and_writes_nothing(
    nats_server: NatsServer,
) -> None:
    settings = Settings(nats=NatsSettings(url=nats_server.url), manager=ManagerSettings(id="m1"))
    async with running(settings) as (manager, service):
        new = await service.preview(FIRST)
        assert (new.app, new.is_new, new.changes, new.refused) == ("A", True, None, None)
        assert [group["name"] for group in new.plan["groups"]] == ["g"]
        assert service.record("A") is None
        await service.deploy(FIRST)
        revision = manager.view.snapshot().app("A")
        same = await service.preview(FIRST + "-- a comment\n")
        assert same.changes is not None
        assert (same.changes["same"], same.refused) == (True, None)
        other = await service.preview(OTHER)
        assert other.changes is not None
        (group,) = other.changes["groups"]
        assert (group["change"], other.changes["reset"]) == ("restarted", ["g"])
        assert other.refused is not None
        assert other.refused["code"] == "MESH-C120"
        assert (await service.preview(OTHER, reset=["g"])).refused is None
        with pytest.raises(MeshError, match="MESH-L202"):
            await service.preview(FIRST.replace("sum(a)", "sum(none)"))
        assert manager.view.snapshot().app("A") == revision


async def test_the_api_previews_pauses_and_resumes() -> None:
    service = FakeService(texts={"Shop": TEXT})
    async with served(service, OPEN) as api, httpx.AsyncClient(base_url=api.url) as client:
        asked = await client.post(
            "/siddhi-apps/plan?reset=a&reset=b", content=TEXT, headers=TEXT_PLAIN
        )
        assert asked.json() == {"app": "Shop", "is_new": False, "reset": ["a", "b"]}
        bad = await client.post("/siddhi-apps/plan", content="!", headers=TEXT_PLAIN)
        assert bad.status_code == 400
        assert [one["code"] for one in bad.json()["errors"]] == ["MESH-L100", "MESH-L101"]
        # Without a word it is the other state, as in the original.
        states = [(await client.put("/siddhi-apps/Shop")).json()["state"] for _ in range(2)]
        assert states == ["paused", "waiting"]
        paused = await client.put("/siddhi-apps/Shop?active=false")
        assert (paused.json()["state"], paused.json()["status"]) == ("paused", "inactive")
        assert (await client.put("/siddhi-apps/Shop?active=no")).status_code == 400
        assert (await client.put("/siddhi-apps/Nothing?active=false")).status_code == 404
