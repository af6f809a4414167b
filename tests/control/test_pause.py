"""A paused app stops, stays where it was, and continues as after a move."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.errors import MeshError
from tests.support.agents import APP, looking

if TYPE_CHECKING:
    from tests.support.agents import Cluster

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]


@pytest.mark.slow
async def test_a_paused_app_stops_stays_and_continues(cluster: Cluster) -> None:
    async with looking(cluster) as eye:
        cluster.manager("m1")
        cluster.worker("w1")
        await eye.deploy_on("w1")
        before, forms = eye.epochs(), eye.view.snapshot().forms
        asked = await eye.service.pause("Two", by="ada")
        assert asked.state == "paused"

        def has_stopped() -> bool:
            return eye.states() == {a.instance: ("stopped", a.epoch) for a in eye.assigned()}

        await eye.until("stopped", has_stopped)
        status = await eye.service.status("Two")
        assert (status.state, status.reason) == ("paused", "'mesh resume Two' continues it")
        assert {one.state for one in status.instances} == {"paused"}
        # Assignments and revisions of groups stay; the worker counts as empty.
        assert all(a.stop for a in eye.assigned())
        assert eye.view.snapshot().forms == forms
        assert [n.instances for n in await eye.service.nodes() if n.role == "worker"] == [0]
        for change in (eye.service.scale("Two", "one", 3), eye.service.update(APP + "\n" + MORE)):
            with pytest.raises(MeshError, match="is paused"):
                await change
        await eye.service.resume("Two", by="ada")
        running = await eye.service.wait_running("Two", 60)
        assert running.state == "running"
        after = eye.epochs()
        assert all(after[name] > epoch for name, epoch in before.items())
        await eye.told(
            "Two", lambda story: sum(one.cause == "app Two is paused" for one in story) == 3
        )


@pytest.mark.thorough
async def test_a_paused_app_can_be_undeployed(cluster: Cluster) -> None:
    async with looking(cluster) as eye:
        cluster.manager("m1")
        cluster.worker("w1")
        await eye.deploy_on("w1")
        await eye.service.pause("Two")
        await eye.service.undeploy("Two")
        await eye.until("gone", lambda: eye.service.record("Two") is None)


MORE = "from Events[a == 7] select a insert into Sevens;"
