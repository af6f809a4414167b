"""One mesh for all end-to-end tests: a cold Spark session costs more than most of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from mesh.clock import SystemClock
from mesh.jetstream.channels import ensure_buckets
from mesh.jetstream.connection import close, connect
from mesh.jetstream.watch import ClusterView
from mesh.operators import precompile
from mesh.settings import ChannelSettings, NatsSettings
from tests.e2e.mesh_cluster import MeshCluster, View

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    Scene = Callable[[View], Coroutine[Any, Any, None]]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeshCluster]:
    """A server, a manager and two workers, w1 and w2."""
    # Workers would do so before they are ready, which the tests don't wait for so long.
    precompile.compile_once()
    found = MeshCluster(tmp_path_factory.mktemp("mesh"))
    yield found
    found.stop()


@pytest.fixture
def play(cluster: MeshCluster) -> Callable[[Scene], None]:
    """Runs a scene with a connection of its own, once both workers are ready."""

    def run(scene: Scene) -> None:
        asyncio.run(_play(cluster, scene))

    return run


async def _play(cluster: MeshCluster, scene: Scene) -> None:
    client = await connect(NatsSettings(url=cluster.nats.url), "test")
    await ensure_buckets(client.jetstream(), ChannelSettings())
    records = ClusterView(client, SystemClock())
    await records.start()
    try:
        view = View(cluster, client, records)
        await view.until_ready("w1", "w2")
        await scene(view)
    finally:
        await records.stop()
        await close(client)
