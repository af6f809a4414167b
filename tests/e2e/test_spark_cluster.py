"""A worker on a standalone Spark cluster: a master and two workers, which lose executors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import psutil
import pytest

from mesh.operators import precompile
from tests.e2e import test_temperature
from tests.support.scenes import viewing
from tests.support.standalone import WORKERS, Standalone
from tools.cluster import MeshCluster, MeshClusterView

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.nats,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.extended,
    pytest.mark.timeout(600),
]

SECRET: Final = "s3cr3t-of-the-cluster"
CONF: Final = {
    "spark.authenticate": "true",
    "spark.authenticate.secret": SECRET,
    "spark.network.crypto.enabled": "true",
}


@dataclass
class OnSpark:
    """A mesh of one worker, and the Spark cluster of which it is a driver."""

    mesh: MeshCluster
    spark: Standalone
    directory: Path


@pytest.fixture(scope="module")
def on_spark(
    tmp_path_factory: pytest.TempPathFactory, kind_of_cluster: type[MeshCluster]
) -> Iterator[OnSpark]:
    precompile.compile_once()
    directory = tmp_path_factory.mktemp("on-spark")
    for name in ("spark", "mesh", "events"):
        (directory / name).mkdir()
    # A master that is started again knows its workers and applications.
    kept = {
        "spark.deploy.recoveryMode": "FILESYSTEM",
        "spark.deploy.recoveryDirectory": str(directory / "spark" / "master"),
    }
    spark = Standalone(directory / "spark", cores=4, memory="1200m", conf=CONF | kept)
    mesh: MeshCluster | None = None
    try:
        spark.start()
        conf = directory / "driver.conf"
        given = {
            **CONF,
            "spark.executor.memory": "600m",
            "spark.executor.cores": "4",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": f"file://{directory / 'events'}",
        }
        conf.write_text("".join(f"{key} {value}\n" for key, value in given.items()))
        mesh = kind_of_cluster(directory / "mesh", workers=0)
        mesh.start_worker("w1", MESH_SPARK_MASTER=spark.url, MESH_SPARK_CONF_FILE=str(conf))
        yield OnSpark(mesh, spark, directory)
    finally:
        if mesh is not None:
            mesh.stop()
        spark.stop()


def play(found: OnSpark, scene: Callable[[MeshClusterView], Awaitable[None]]) -> None:
    async def run() -> None:
        async with viewing(found.mesh, "w1") as view:
            await scene(view)

    asyncio.run(run())


def test_the_year_with_the_master_an_executor_and_the_driver_killed(on_spark: OnSpark) -> None:
    async def faults(view: MeshClusterView, app: str) -> None:
        stream = f"mesh-{app}-AlertStream", f"mesh.{app}.AlertStream"
        alerts = len(test_temperature.expected().rows["AlertStream"])

        async def goes_on_after(what: str) -> None:
            before = await view.count(*stream)

            async def has_gone_on() -> bool:
                return await view.count(*stream) > min(before, alerts - 1)

            await view.until(f"output after the end of {what}", has_gone_on)

        on_spark.spark.kill("master")
        await goes_on_after("the master")
        on_spark.spark.executors("w1")[0].kill()
        await goes_on_after("an executor without a master")
        on_spark.spark.start_master()
        view.cluster.kill_session("w1")

    play(on_spark, lambda view: test_temperature.year(view, "OnSpark", faults))
    # Nothing that gives access is in Spark's event log, nor in what executors write.
    written = [*on_spark.directory.glob("events/**/*"), *on_spark.directory.glob("spark/**/std*")]
    texts = [path.read_text(errors="replace") for path in written if path.is_file()]
    assert any("spark.authenticate.secret" in text for text in texts)
    for text in texts:
        assert SECRET not in text
        assert "PRIVATE KEY" not in text


EIGHT: Final = """@App:name('Eight')
define stream Numbers (n int);
@dist(execGroup='tenfold', parallel='8')
from Numbers select n * 10 as tenfold insert into Tenfold;
"""


def test_eight_instances_run_on_both_workers(on_spark: OnSpark) -> None:
    count = 4000

    async def scene(view: MeshClusterView) -> None:
        await view.service.deploy(EIGHT)
        await view.until_running("Eight")
        for start in range(0, count, 500):
            numbers = range(start, start + 500)
            await asyncio.gather(
                *(view.js.publish("mesh.Eight.Numbers", b'{"n": %d}' % n) for n in numbers)
            )

        async def is_complete() -> bool:
            return await view.count("mesh-Eight-Tenfold", "mesh.Eight.Tenfold") >= count

        await view.until("all rows", is_complete)
        found = await view.messages("mesh-Eight-Tenfold", "mesh.Eight.Tenfold")
        assert sorted(json.loads(m.data)["tenfold"] for m in found) == [
            n * 10 for n in range(count)
        ]
        servers = view.cluster.settings("worker").url.split(",")
        ports = {int(one.rpartition(":")[2]) for one in servers}
        for name in WORKERS:
            assert readers(on_spark.spark.executors(name), ports), f"{name} serves no instance"
        await view.service.undeploy("Eight")

    play(on_spark, scene)


def readers(executors: list[psutil.Process], ports: set[int]) -> list[int]:
    """The Python processes of executors that are connected to NATS."""
    children = [child for one in executors for child in one.children(recursive=True)]
    return [
        child.pid
        for child in children
        if any(ports.intersection(c.raddr[1:]) for c in child.net_connections("tcp"))
    ]
