"""Triggers in a cluster: the same times for all readers, also when sessions die half-way."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.events import row_values
from tests.support.scenes import killed

if TYPE_CHECKING:
    from tests.support.scenes import Kill
    from tools.cluster import MeshClusterView

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]

EVERY_MS = 250
APP = f"""@App:name('Timed')
define trigger Tick at every {EVERY_MS} millisec;
define trigger Opening at 'start';
define stream S (k string, v int);
@dist(execGroup='counted') from Tick select triggered_time as t, count() as n insert into Counted;
@dist(execGroup='plain', parallel='2') from Tick select triggered_time as t insert into Plain;
@dist(execGroup='latest')
from Tick join S#window.length(1) as s select Tick.triggered_time as t, s.v as v insert into Latest;
@dist(execGroup='begun') from Opening select triggered_time as t insert into Begun;
"""


@killed
async def test_times_come_once_when_sessions_are_killed(view: MeshClusterView, kill: Kill) -> None:
    async def ticks(view: MeshClusterView, count: int) -> list[int]:
        return [t for (t,) in await row_values(view, "Timed", "Tick", count)]

    await view.service.deploy(APP)
    await view.until_running("Timed")
    event: dict[str, Any] = {"k": "a", "v": 7}
    await view.js.publish("mesh.Timed.S", json.dumps(event).encode())
    before = await ticks(view, 12)
    await kill.happens()
    times = await ticks(view, len(before) + 40)
    first = times[0]
    assert times == [first + EVERY_MS * n for n in range(len(times))]

    counted = await row_values(view, "Timed", "Counted", len(times))
    assert counted[: len(times)] == [[t, n] for n, t in enumerate(times, 1)]

    async def all_plain() -> list[int] | None:
        found = [t for (t,) in await row_values(view, "Timed", "Plain", len(times))]
        # Of two instances, one may be ahead of the other.
        return found if set(times) <= set(found) else None

    plain = await view.until("each time in Plain", all_plain)
    assert len(set(plain)) == len(plain)
    latest = await row_values(view, "Timed", "Latest", 20)
    held = [t for t, _ in latest]
    assert held == [held[0] + EVERY_MS * n for n in range(len(held))]
    assert {v for _, v in latest} == {7}
    ((begun,),) = await row_values(view, "Timed", "Begun", 1)
    assert abs(begun - (first - EVERY_MS)) < 30_000
    await view.service.undeploy("Timed")
