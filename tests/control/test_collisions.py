"""Apps whose instances would have the same names."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mesh.api.routes import status_of
from mesh.control import reconcile
from mesh.control.actions import PlaceInstance, WriteGroupForm
from mesh.control.cluster_state import cluster_state_of
from mesh.control.collisions import Collision, collision_of
from mesh.control.lifecycle import AppState, app_status
from mesh.errors import MeshError
from mesh.manager.manager import running
from mesh.plan.build import plan
from mesh.settings import ManagerSettings, NatsSettings, Settings
from tests.support.cluster_lines import SETTINGS, snapshot

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer
    from mesh.model.app import AppSpec


def text(app: str, group: str) -> str:
    return (
        f"@App:name('{app}') define stream S (a int); @dist(execGroup='{group}') "
        "from S[a > 1] select a insert into T;"
    )


def spec(app: str, group: str) -> AppSpec:
    return plan(text(app, group)).spec


SHOP = spec("Shop", "a-b")


@pytest.mark.parametrize(
    ("made", "before", "found"),
    [
        (spec("Shop-a", "b"), None, Collision("b", "Shop", "a-b")),
        (spec("Shop-a", "c"), None, None),
        (spec("Shop-b", "a"), None, None),
        # An edit that adds the group, and one of an app that has it already.
        (spec("Shop-a", "b"), spec("Shop-a", "c"), Collision("b", "Shop", "a-b")),
        (spec("Shop-a", "b"), spec("Shop-a", "b"), None),
        # Its own earlier text is no other app.
        (SHOP, None, None),
    ],
)
def test_names_of_instances_are_compared(
    made: AppSpec, before: AppSpec | None, found: Collision | None
) -> None:
    assert collision_of(made, before, [spec("Other", "b"), SHOP]) == found


def test_names_of_triggers_are_compared_as_well() -> None:
    timed = plan(
        "@App:name('T') define trigger X at every 1 sec; from X select triggered_time "
        "insert into Out;"
    ).spec
    (trigger,) = [group.name for group in timed.groups if group.name.startswith("trigger-")]
    found = collision_of(spec("T-trigger", trigger.removeprefix("trigger-")), None, [timed])
    assert found is not None


@pytest.mark.nats
async def test_a_deploy_that_would_stop_another_app_is_refused(nats_server: NatsServer) -> None:
    settings = Settings(nats=NatsSettings(url=nats_server.url), manager=ManagerSettings(id="m1"))

    async with running(settings) as (_, service):
        await service.deploy(text("Shop", "a-b"))
        for call in (service.deploy(text("Shop-a", "b")), service.update(text("Shop-a", "b"))):
            with pytest.raises(MeshError, match="names of another app") as caught:
                await call
            assert (caught.value.code, status_of(caught.value)) == ("MESH-C123", 409)
        assert service.record("Shop-a") is None
        # One that is there already can go.
        await service.undeploy("Shop")


def test_the_earlier_of_two_apps_keeps_the_names() -> None:
    seen = snapshot("now=10 lease=me@40 workers=w1:10 apps=A-b:g*1,A:b-g*1 forms=A:none")
    first, second = seen.apps
    second = replace(second, value=replace(second.value, deployed_at_ms=5))
    seen = replace(seen, apps=(second, first))
    decided = reconcile.decide(seen, SETTINGS)
    assert [a.assignment.app for a in decided if isinstance(a, PlaceInstance)] == ["A-b"]
    assert [a.form.app for a in decided if isinstance(a, WriteGroupForm)] == ["A-b"]
    status = app_status(cluster_state_of(seen, SETTINGS), second.value)
    assert status.state is AppState.WAITING
    assert "app A-b has an instance of this name" in (status.reason or "")
