"""A manager runs without Spark and without the packages that compute over events.

The image of managers lacks them (`compose/manager.lock`).
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

from tests.support.agents import MANAGER, looking
from tests.support.paths import ROOT
from tools.image_locks import WORKERS_ONLY, locks

if TYPE_CHECKING:
    from tests.support.agents import Cluster

#: As if the packages were not installed; also in processes that are forked.
WITHOUT = f"import sys; sys.modules.update(dict.fromkeys({sorted(WORKERS_ONLY)!r}))\n"
#: The API as `mesh manager` serves it, with a deploy by HTTP.
SERVED = WITHOUT + "from mesh.cli import main; sys.argv = ['mesh', 'manager']; main()"
APP = "@App:name('Slim') define stream S (a int); from S[a > 1] select sum(a) as b insert into T;"


@pytest.mark.slow
async def test_a_manager_plans_and_places_without_spark(cluster: Cluster) -> None:
    async with looking(cluster) as eye:
        cluster.start("m1", WITHOUT + MANAGER, MESH_MANAGER_ID="m1")
        cluster.worker("w1")
        await eye.deploy_on("w1")
        assert await eye.until("placed", lambda: eye.has_some("w1"))


@pytest.mark.thorough
async def test_its_api_takes_an_app_without_spark(cluster: Cluster) -> None:
    import httpx

    from mesh.jetstream.server import free_port

    async with looking(cluster) as eye:
        port = str(free_port())
        cluster.start(
            "m1", SERVED, MESH_MANAGER_ID="m1", MESH_MANAGER_PORT=port,
            MESH_MANAGER_ANONYMOUS="true",
        )  # fmt: skip
        await eye.until("leader", lambda: eye.leader() == "m1")
        transport = httpx.AsyncHTTPTransport(retries=8)
        address = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=address, transport=transport) as client:
            headers = {"Content-Type": "text/plain"}
            done = await client.post("/siddhi-apps", content=APP, headers=headers, timeout=30)
            assert done.status_code == 201, done.text
            drawn = await client.get("/siddhi-apps/Slim/plan?output=svg")
            assert drawn.status_code == 200
            assert (await client.get("/health/ready")).status_code == 200


@pytest.mark.parametrize("image", ["build", "idp", "manager", "nats", "worker"])
def test_the_lock_of_an_image_is_the_part_of_the_lock_file_that_it_needs(image: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    made = locks((ROOT / "requirements.lock").read_text("utf-8"), project)[image]
    assert (ROOT / "compose" / f"{image}.lock").read_text("utf-8") == made, "run make lock"
    pinned = {line.partition("==")[0] for line in made.splitlines() if "==" in line}
    assert bool(pinned & WORKERS_ONLY) == (image == "worker")
    assert "pytest" not in pinned
