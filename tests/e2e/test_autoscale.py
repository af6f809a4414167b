"""A group under load that gets more instances by itself, through NATS and Spark."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.support.events import rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.cluster import MeshClusterView

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

#: Each event keeps a task for 4 ms, on any processor, and on one that others use.
APP = """@App:name('Growing')
define stream Feed (n int);
define function slow[python] return int {
    import time
    time.sleep(0.004)
    return data[0]
};
@dist(execGroup='copy', min='1', max='2')
from Feed select slow(n) as n insert into Out;
"""
EVENTS = 30_000


@pytest.mark.extended
def test_a_backlog_brings_a_second_instance_and_each_event_is_put_out_once(
    play: Callable[..., None],
) -> None:
    async def scene(view: MeshClusterView) -> None:
        await view.service.deploy(APP)
        await view.until_running("Growing")
        for first in range(0, EVENTS, 1000):
            # A stream drops messages that come faster than it stores them, if none is awaited.
            await asyncio.gather(
                *(
                    view.js.publish("mesh.Growing.Feed", b'{"n":%d}' % n)
                    for n in range(first, first + 1000)
                )
            )

        def has_grown() -> bool:
            record = view.service.record("Growing")
            return record is not None and record.scaled == {"copy": 2}

        await view.until("two instances", has_grown)
        found = await rows(view, "Growing", "Out", EVENTS)
        assert sorted(row["n"] for row in found) == list(range(EVENTS))
        story = await view.service.story("Growing")
        (entry,) = [e for e in story if e.by == "autoscaler"]
        assert entry.text == "scaled group copy from 1 to 2 by load"
        await view.service.undeploy("Growing")

    play(scene)
