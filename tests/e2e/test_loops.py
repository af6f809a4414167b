"""Texts as others wrote them in a cluster: without names and queries, and with loops."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mesh.language.naming import named
from tests.support.events import row_values
from tests.support.scenes import killed

if TYPE_CHECKING:
    from tests.support.scenes import Kill
    from tools.cluster import MeshClusterView

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]

ALERTS = """define stream A (k string, n int);
define stream Alerts (k string, n int, before string);
from A left outer join Alerts#window.time(1 hour) as sent on A.k == sent.k
select A.k as k, A.n as n, sent.k as before having before is null insert into Alerts;
"""
DOWN = """define stream Down (n int);
from Down[n > 0] select n - 1 as n insert into Down;
from Down select n insert into Seen;
"""


@pytest.mark.thorough
@killed
async def test_loops_go_on_where_they_were(view: MeshClusterView, kill: Kill) -> None:
    alerts = (await view.service.deploy(ALERTS)).app
    down = (await view.service.deploy(named(DOWN, "count.down"))).app
    still = (await view.service.deploy("define table T (a int);")).app
    assert (alerts[:4], down) == ("app-", "count--2Edown")
    for app in (alerts, down, still):
        await view.until_running(app)

    async def send(app: str, stream: str, **event: object) -> None:
        await view.js.publish(f"mesh.{app}.{stream}", json.dumps(event).encode())

    for n in range(4):
        await send(alerts, "A", k=f"k{n % 2}", n=n)
    await send(down, "Down", n=2)
    first = [["k0", 0, None], ["k1", 1, None]]
    assert await row_values(view, alerts, "Alerts", 2) == first
    assert await row_values(view, down, "Seen", 3) == [[0], [1], [2]]
    await kill.happens()
    for n in range(6):
        await send(alerts, "A", k=f"k{n % 3}", n=n)
    await send(down, "Down", n=1)
    assert await row_values(view, alerts, "Alerts", 3) == [*first, ["k2", 2, None]]
    assert await row_values(view, down, "Seen", 5) == [[0], [1], [2], [0], [1]]
    for app in (alerts, down, still):
        await view.service.undeploy(app)
