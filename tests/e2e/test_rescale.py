"""Handover of instances, and changes of groups while events arrive: through NATS and Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.control.lifecycle import AppState
from mesh.errors import MeshError
from tests.support.events import counts_are_continuous, load, more, rows
from tests.support.scenes import calm

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.cluster import MeshClusterView

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.mark.extended
def test_an_instance_that_moves_leaves_nothing_to_read_again(play: Callable[..., None]) -> None:
    app = """@App:name('Moving')
    define stream Feed (k string, n long);
    @dist(execGroup='count', parallel='2')
    partition with (k of Feed) begin from Feed select k, count() as c insert into Counts; end;
    @dist(execGroup='copy') from Feed[n % 2 == 0] select n insert into Even;
    """

    async def scene(view: MeshClusterView) -> None:
        await view.service.deploy(app)
        await view.until_running("Moving")
        async with load(view, "Moving") as sent:
            await more(view, sent, 500)
            await view.service.order_node("w1", "draining")

            def is_empty() -> bool:
                return all(a.value.worker == "w2" for a in view.view.snapshot().assignments)

            await view.until("w1 empty", is_empty)
            await view.until_running("Moving")
            await view.service.order_node("w1", "open")
            await more(view, sent, 500)
        await counts_are_continuous(view, "Moving", len(sent))
        even = await rows(view, "Moving", "Even", (len(sent) + 1) // 2)
        assert [row["n"] for row in even] == sent[::2]
        stops = [e.text for e in await view.service.story("Moving") if "has stopped" in e.text]
        assert stops
        assert all("state shared" in text for text in stops), stops
        await view.service.undeploy("Moving")

    play(scene)


#: States of an app between the request to scale a group and its end.
_UNDER_WAY = {AppState.RESCALING, AppState.WAITING, AppState.STARTING}
CALM = (("count", 4), ("copy", 3), ("count", 1), ("copy", 2))


async def scaled(
    view: MeshClusterView, steps: tuple[tuple[str, int], ...], is_killed: bool
) -> None:
    name = f"Scaled{len(steps)}{int(is_killed)}"
    app = f"""@App:name('{name}')
    define stream Feed (k string, n long);
    @dist(execGroup='count', parallel='2')
    partition with (k of Feed) begin from Feed select k, count() as c insert into Counts; end;
    @dist(execGroup='copy') from Feed[n % 2 == 0] select n insert into Even;
    """

    async def scale(group: str, parallel: int) -> None:
        status = await view.service.scale(name, group, parallel)
        # The leader may have done all of it before the answer is here.
        is_done = sum(i.group == group for i in status.instances) == parallel
        assert status.state in (_UNDER_WAY | {AppState.RUNNING} if is_done else _UNDER_WAY), status
        if is_killed:
            # In the middle: some have stopped, and others are about to.
            view.cluster.kill_session("w1" if parallel % 2 else "w2")
        status = await view.until_running(name)
        assert sum(i.group == group for i in status.instances) == parallel

    await view.service.deploy(app)
    await view.until_running(name)
    async with load(view, name) as sent:
        for group, parallel in steps:
            await more(view, sent, 300)
            await scale(group, parallel)
        await more(view, sent, 300)
    await counts_are_continuous(view, name, len(sent))
    even = await rows(view, name, "Even", (len(sent) + 1) // 2)
    assert sorted(row["n"] for row in even) == sent[::2]
    with pytest.raises(MeshError) as refused:
        await view.service.scale(name, "count", 9)
    assert refused.value.code == "MESH-A422"
    await view.service.undeploy(name)
    await view.until("it is gone", lambda: view.view.snapshot().app(name) is None)
    assert not [f for f in view.view.snapshot().forms if f.value.app == name]


@calm
async def test_a_group_is_scaled_under_load(view: MeshClusterView) -> None:
    await scaled(view, CALM[:2], is_killed=False)


@pytest.mark.long
@pytest.mark.parametrize(
    ("steps", "is_killed"),
    [
        pytest.param(CALM, False, id="calm and back"),
        pytest.param(CALM[:2], True, id="killed"),
    ],
)
def test_a_group_is_scaled_under_load_for_longer(
    play: Callable[..., None], steps: tuple[tuple[str, int], ...], is_killed: bool
) -> None:
    play(lambda view: scaled(view, steps, is_killed))
