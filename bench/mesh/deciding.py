"""Time of a new leader's first decision after the last one was killed, and of a deployment."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import TYPE_CHECKING, Final

from bench.connector.harness import Figure
from bench.mesh import harness

if TYPE_CHECKING:
    from bench.mesh.harness import View

RUNS: Final = 10
#: Four groups, each on the output of the previous one.
FOUR: Final = """
@App:name('{name}')
define stream Input (k int, v double);
@dist(execGroup='one')
from Input[v > 0] select k, v insert into Positive;
@dist(execGroup='two')
from Positive#window.length(10) select k, avg(v) as mean insert into Means;
@dist(execGroup='three')
from Means[mean > 1] select k, mean insert into High;
@dist(execGroup='four')
from every a=High -> b=High[mean > a.mean] within 1 min select b.k, b.mean insert into Rising;
"""


async def measure(servers: int) -> list[Figure]:
    """Deploy an app of four groups, and kill the leader, ten times each."""
    async with harness.mesh(2, managers=2, servers=servers) as view:
        await harness.deploy(view, ["First"], FOUR)
        deploys = []
        for number in range(RUNS):
            deploys.append(await harness.deploy(view, [f"Four{number}"], FOUR))
            await view.service.undeploy(f"Four{number}")
        decisions = [await decision_s(view, number) for number in range(RUNS)]
    return [
        Figure(
            "deploy of an app of 4 groups on warm workers, median", statistics.median(deploys), "s",
            3.0, at_least=False, runs=tuple(deploys), note=f"slowest {max(deploys):.2f}",
        ),
        Figure(
            "kill -9 of the leader to the next decision carried out, median",
            statistics.median(decisions), "s", 2.0, at_least=False, runs=tuple(decisions),
        ),
        Figure("the same, slowest of 10", max(decisions), "s", 2.0, at_least=False),
    ]  # fmt: skip


async def decision_s(view: View, number: int) -> float:
    """Seconds from the leader's end to the placement of an app that is deployed right after."""
    await view.until("two managers", lambda: _beats(view, "m1") and _beats(view, "m2"))
    # Not always at the same time of its term.
    await asyncio.sleep(2 + 0.13 * number)
    lease = view.view.snapshot().lease
    assert lease is not None
    assert lease.value is not None
    leader = lease.value.holder
    app = f"Next{number}"
    began_s = time.monotonic()
    view.cluster.kill(leader)
    await view.service.deploy(harness.APP.format(name=app))
    await view.until("a placement", lambda: _is_placed(view, app))
    took_s = time.monotonic() - began_s
    view.cluster.start_manager(leader)
    return took_s


def _beats(view: View, manager: str) -> bool:
    """Whether the running manager's heartbeat has arrived."""
    nodes = view.view.snapshot().nodes
    return any(n.value.id == manager and n.value.pid == view.cluster.pid(manager) for n in nodes)


def _is_placed(view: View, app: str) -> bool:
    return any(a.value.app == app for a in view.view.snapshot().assignments)
