"""A cluster that is monitored through the API."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import httpx

from mesh.control.lifecycle import AppState, AppStatus, InstanceView
from mesh.errors import MeshError
from mesh.manager.nodes import Leadership, NodeView
from mesh.model.cluster import ConnectorStatus, ElementCounts, InstanceState
from mesh.plan.build import plan
from tests.support.api import OPEN, FakeService, served

if TYPE_CHECKING:
    from mesh.model.app import AppSpec

SHOP = """
@App:name('Shop')
define stream Orders (item string, price int);
define table Seen (item string);
@info(name='sums') @dist(execGroup='sums', parallel='2')
from Orders select item, sum(price) as total group by item insert into Totals;
@dist(execGroup='rest') partition with (item of Totals) begin
@info(name='inner') from Totals#window.length(2) select item, total insert into #Last;
@info(name='outer') from #Last select item insert into Out;
end;
@dist(execGroup='rest') @info(name='keep')
from Out[not (item in Seen)] select item insert into Seen;
"""


def instance(name: str, group: str, state: str, **more: Any) -> InstanceView:
    return InstanceView(name, group, "w1" if state != "unplaced" else None, 3, state, **more)


def node(name: str, role: str, **more: Any) -> NodeView:
    values: dict[str, Any] = {
        "presence": "alive", "leads": False, "ready": True, "address": "", "pid": 7,
        "instances": 0, "cpu_percent": 12.5, "memory_bytes": 1024,
    }  # fmt: skip
    return NodeView(id=name, role=role, **(values | more))


#: Durations of three batches by bucket.
COUNTS = (1, 0, 1, 0, 0, 1, *(0,) * 9)
ELEMENTS = (ElementCounts("query", "sums", 10, 4), ElementCounts("table", "T", rows=7))
CONNECTORS = (
    ConnectorStatus("sink http 1", InstanceState.RUNNING, "https://a.example/in"),
    ConnectorStatus(
        "sink http 2", InstanceState.RETRYING, "https://b.example/in", behind=7, error="refused"
    ),
)
LATENCIES = (*(0,) * 14, 2, 0, 1)


@dataclass
class Cluster(FakeService):
    """Two apps over a manager and two workers."""

    statuses: tuple[AppStatus, ...] = (
        AppStatus(
            "Shop",
            AppState.FAILING,
            "Shop-sums-2: broken",
            (
                instance("Shop-sums-1", "sums", "running", events_in=10, events_out=4, behind=2,
                         batch_ms_p50=20.0, errors=1, batches=COUNTS, batches_sum_s=0.02,
                         latencies=LATENCIES, latencies_sum_s=1.5, elements=ELEMENTS,
                         connectors=CONNECTORS),
                instance("Shop-sums-2", "sums", "retrying", events_in=5, restarts=3,
                         error="broken", batches=(1, 2)),
            ),
        ),
        AppStatus("Idle", AppState.WAITING, "no worker",
                  (instance("Idle-default-1", "default", "unplaced", reason="no worker"),)),
    )  # fmt: skip
    there: list[NodeView] = field(
        default_factory=lambda: [
            node("m1", "manager", leads=True),
            node("m2", "manager"),
            node("w1", "worker", instances=2, last_heartbeat_ago_s=0.25, labels=("gpu=true",)),
            node("w2", "worker", presence="gone", ready=False),
        ]
    )

    async def apps(self) -> list[Any]:
        return list(self.statuses)

    async def status(self, app: str) -> Any:
        found = next((one for one in self.statuses if one.app == app), None)
        if found is None:
            raise MeshError("MESH-A404", f'app "{app}" is not deployed')
        return found

    async def app(self, app: str) -> AppSpec:
        await self.status(app)
        return plan(SHOP).spec

    async def nodes(self) -> list[Any]:
        return self.there

    async def leadership(self) -> Leadership:
        return Leadership("m2", "m1")


def ask(path: str, method: str = "GET", service: FakeService | None = None) -> httpx.Response:
    async def run() -> httpx.Response:
        async with (
            served(service or Cluster(), OPEN) as api,
            httpx.AsyncClient(base_url=api.url) as client,
        ):
            return await client.request(method, path)

    return anyio.run(run)
