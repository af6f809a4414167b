"""One mesh for all end-to-end tests: a cold Spark session costs more than most of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from mesh.operators import precompile
from tests.support.scenes import Scenes, viewing
from tests.support.secured import SecuredCluster
from tools.cluster import MeshCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.scenes import Scene


@pytest.fixture(scope="session")
def kind_of_cluster(request: pytest.FixtureRequest) -> type[MeshCluster]:
    """With ``--secured`` one of three servers with TLS, certificates and roles."""
    return SecuredCluster if request.config.getoption("--secured") else MeshCluster


@pytest.fixture(scope="package")
def mesh_cluster(
    tmp_path_factory: pytest.TempPathFactory, kind_of_cluster: type[MeshCluster]
) -> Iterator[MeshCluster]:
    """A server, a manager and two workers, w1 and w2."""
    # Workers would do so before they are ready, which the tests don't wait for so long.
    precompile.compile_once()
    found = kind_of_cluster(tmp_path_factory.mktemp("mesh"))
    yield found
    found.stop()


@pytest.fixture
def play(mesh_cluster: MeshCluster) -> Callable[[Scene], None]:
    """Runs a scene alone, with a connection of its own, once both workers are ready."""

    async def run(scene: Scene) -> None:
        async with viewing(mesh_cluster) as view:
            await scene(view)

    return lambda scene: asyncio.run(run(scene))


@pytest.fixture(scope="package")
def scenes(mesh_cluster: MeshCluster, request: pytest.FixtureRequest) -> Scenes:
    """The scenes of all selected tests that share time or a kill."""
    return Scenes(mesh_cluster, request.session.items)


@pytest.fixture
def scene_outcome(scenes: Scenes, request: pytest.FixtureRequest) -> Callable[[], None]:
    """Raise the error of the test's scene; the first of a kind runs the scenes of all."""
    error = scenes.outcome(request.node)

    def tell() -> None:
        if error is not None:
            raise error

    return tell
