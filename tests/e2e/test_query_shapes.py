"""A worker with instances in a shared query, beside one with a query for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.events import counts_are_continuous, load, more, rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.cluster import MeshClusterView

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(280)]

APP = """@App:name('Shapes')
define stream Feed (k string, n long);
@dist(execGroup='count', parallel='2')
partition with (k of Feed) begin from Feed select k, count() as c insert into Counts; end;
@dist(execGroup='copy') from Feed[n % 2 == 0] select n insert into Even;
"""


@pytest.mark.extended
def test_instances_move_between_workers_with_queries_of_both_kinds(
    play: Callable[..., None],
) -> None:
    async def order(view: MeshClusterView, opened: set[str]) -> None:
        """Place all instances on these workers."""
        for worker in ("w1", "w2", "w3"):
            await view.service.order_node(worker, "open" if worker in opened else "draining")

        def is_moved() -> bool:
            return all(a.value.worker in opened for a in view.view.snapshot().assignments)

        await view.until(f"all on {opened}", is_moved)
        await view.until_running("Shapes")

    async def scene(view: MeshClusterView) -> None:
        # The other two are as the settings have it.
        view.cluster.start_worker("w3", MESH_SPARK_SHARED_QUERY="false")
        try:
            await view.service.deploy(APP)
            await view.until_running("Shapes")
            await view.until_ready("w3")
            async with load(view, "Shapes") as sent:
                await more(view, sent, 200)
                await order(view, {"w3"})
                await more(view, sent, 200)
                view.cluster.kill_session("w3")
                await view.until_running("Shapes")
                await order(view, {"w1", "w2"})
                await more(view, sent, 200)
            await counts_are_continuous(view, "Shapes", len(sent))
            even = await rows(view, "Shapes", "Even", (len(sent) + 1) // 2)
            assert [row["n"] for row in even] == sent[::2]
            await view.service.undeploy("Shapes")
        finally:
            for worker in ("w1", "w2"):
                await view.service.order_node(worker, "open")
            view.cluster.kill("w3")

    play(scene)
