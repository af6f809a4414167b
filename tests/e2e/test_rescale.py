"""Instances that hand over, and groups that change while events come: through NATS and Spark."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from mesh.control.lifecycle import AppState
from mesh.errors import MeshError
from tests.e2e.test_groups import rows

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.e2e.mesh_cluster import View

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

KEYS = 13


@contextlib.asynccontextmanager
async def load(view: View, app: str) -> AsyncIterator[list[int]]:
    """Events for stream Feed of ``app``, one after the other; the list holds what was published."""
    sent: list[int] = []
    done = asyncio.Event()

    async def publish() -> None:
        while not done.is_set():
            event = {"k": f"key-{len(sent) % KEYS}", "n": len(sent)}
            await view.js.publish(f"mesh.{app}.Feed", json.dumps(event).encode())
            sent.append(len(sent))
            # Some hundred a second: what piles up while a session starts is read by the test too.
            await asyncio.sleep(0.003)

    publishing = asyncio.create_task(publish())
    try:
        yield sent
    finally:
        done.set()
        await publishing


async def more(view: View, sent: list[int], count: int) -> None:
    """Until so many more have been published."""
    wanted = len(sent) + count
    await view.until("more events", lambda: len(sent) >= wanted)


async def counts_are_continuous(view: View, app: str, total: int) -> None:
    """Each key's events were counted 1, 2, 3 and so on: none lost, none doubled."""
    found: dict[str, list[int]] = defaultdict(list)
    for row in await rows(view, app, "Counts", total):
        found[row["k"]].append(row["c"])
    assert {key: sorted(counts) for key, counts in found.items()} == {
        key: list(range(1, len(counts) + 1)) for key, counts in found.items()
    }


def test_an_instance_that_moves_leaves_nothing_to_read_again(play: Callable[..., None]) -> None:
    app = """@App:name('Moving')
    define stream Feed (k string, n long);
    @dist(execGroup='count', parallel='2')
    partition with (k of Feed) begin from Feed select k, count() as c insert into Counts; end;
    @dist(execGroup='copy') from Feed[n % 2 == 0] select n insert into Even;
    """

    async def scene(view: View) -> None:
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


CALM = (("count", 4), ("copy", 3), ("count", 1), ("copy", 2))


@pytest.mark.parametrize(
    ("steps", "is_killed"),
    [
        pytest.param(CALM[:2], False, id="calm"),
        pytest.param(CALM, False, id="calm and back", marks=pytest.mark.long),
        pytest.param(CALM[:2], True, id="killed", marks=pytest.mark.long),
    ],
)
def test_a_group_is_scaled_under_load(
    play: Callable[..., None], steps: tuple[tuple[str, int], ...], is_killed: bool
) -> None:
    name = f"Scaled{len(steps)}{int(is_killed)}"
    app = f"""@App:name('{name}')
    define stream Feed (k string, n long);
    @dist(execGroup='count', parallel='2')
    partition with (k of Feed) begin from Feed select k, count() as c insert into Counts; end;
    @dist(execGroup='copy') from Feed[n % 2 == 0] select n insert into Even;
    """

    async def scale(view: View, group: str, parallel: int) -> None:
        status = await view.service.scale(name, group, parallel)
        assert status.state is AppState.RESCALING, status
        if is_killed:
            # In the middle: some have stopped, and others are about to.
            view.cluster.kill_session("w1" if parallel % 2 else "w2")
        status = await view.until_running(name)
        assert sum(i.group == group for i in status.instances) == parallel

    async def scene(view: View) -> None:
        await view.service.deploy(app)
        await view.until_running(name)
        async with load(view, name) as sent:
            for group, parallel in steps:
                await more(view, sent, 300)
                await scale(view, group, parallel)
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

    play(scene)
