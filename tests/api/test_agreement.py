"""One view of the cluster: REST, metrics, ``mesh top`` and the pages never contradict."""

from __future__ import annotations

import asyncio
import re
from html import unescape
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from mesh.api.server import ApiServer, listen
from mesh.cli.top import screen
from mesh.client import Client, ClientContext
from mesh.clock import SystemClock
from mesh.dashboard import shown
from mesh.dashboard.server import Front, make_pages
from mesh.jetstream import kv
from mesh.manager.service import ManagerService
from mesh.model import codec, names
from mesh.model.cluster import InstanceState, InstanceStatus
from mesh.settings import ManagerSettings, NatsSettings, Settings, WorkerSettings
from tests.support.agents import looking
from tests.support.api import OPEN

if TYPE_CHECKING:
    from tests.support.agents import Cluster, Eye

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

LATENCIES = (*(0,) * 9, 100, 20, *(0,) * 6)


@pytest.mark.slow
async def test_the_same_cluster_is_the_same_everywhere(cluster: Cluster) -> None:
    async with looking(cluster) as eye:
        cluster.manager("m1")
        cluster.worker("w1")
        await eye.deploy_on("w1")
        await report(eye)
        # A process that is paused for a moment is no other state of the cluster.
        settings = Settings(
            nats=NatsSettings(url=cluster.nats.url),
            manager=ManagerSettings(lease_ttl_s=60.0),
            worker=WorkerSettings(ttl_s=60.0),
        )
        service = ManagerService(eye.client, eye.view, settings, SystemClock(), name="m1")
        service.telemetry.sample()
        clock = SystemClock()
        api = ApiServer(
            service, OPEN, listen(OPEN),
            lambda app, access: Front(app, make_pages(service, access, clock)),
        )  # fmt: skip
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(api.run)
            try:
                await compare(api.url)
            finally:
                api.stop()


async def report(eye: Eye) -> None:
    """Have one instance fail, with counters, in the place of its worker."""
    (placed,) = [one for one in eye.assigned() if one.instance == "Two-one-1"]
    status = InstanceStatus(
        placed.instance, placed.app, placed.worker, placed.epoch, InstanceState.RETRYING, 1000,
        error="broken", restarts=3, events_in=120, events_out=60, errors=4, behind=5000,
        latencies=LATENCIES, latencies_sum_s=2.5, state_bytes=7_300_000,
    )  # fmt: skip
    key = names.status_key(placed.instance)
    js = eye.client.jetstream()
    for reason in ("one", "two", "three"):
        entry = f'{{"stream": "S", "reason": "{reason}"}}'.encode()
        await js.publish(names.error_subject(placed.app), entry)
    await kv.put(js, names.STATUS_BUCKET, key, codec.encode(status))
    await eye.until("status", lambda: eye.states()[placed.instance][0] == "retrying")


async def compare(url: str) -> None:
    async with httpx.AsyncClient(base_url=url) as http:

        async def get(path: str) -> Any:
            return (await http.get(path)).json()

        recorded = await get("/error-handler")
        overview = await get("/overview")
        (app,) = overview["apps"]
        (detailed,) = await get("/siddhi-apps?details=true")
        (counted,) = await get("/siddhi-apps/statistics")
        status = await get("/siddhi-apps/Two/status")
        children = await get("/managers/siddhi-apps/Two")
        nodes = await get("/nodes")
        text = (await http.get("/metrics")).text
        html = {"Accept": "text/html"}
        pages = [(await http.get(path, headers=html)).text for path in ("/", "/apps/Two", "/nodes")]
    with Client(ClientContext(server=url)) as client:
        assert (await asyncio.to_thread(client.overview))["apps"] == [app]
    assert (app["state"], app["reason"]) == ("failing", "Two-one-1: broken")
    for other in (detailed, counted, status):
        assert other["state"] == app["state"]
    assert detailed["reason"] == status["reason"] == app["reason"]
    for key in ("events_in", "events_out", "behind", "restarts"):
        assert counted[key] == app[key] == sum(one[key] for one in status["instances"])
    assert counted["errors"] == sum(one["errors"] for one in status["instances"])
    # Failed events that wait for somebody, whatever the instances have counted.
    assert recorded == [{"app": "Two", "count": app["failed"]}] == [{"app": "Two", "count": 3}]
    assert counted["running"] == app["running"]
    assert {one["instance"]: one["state"] for one in children} == {
        one["instance"]: one["state"] for one in status["instances"]
    }
    sums = sums_of(text)
    assert sums["mesh_instance_events_in_total"] == app["events_in"] == 120
    assert sums["mesh_instance_events_out_total"] == app["events_out"]
    assert sums["mesh_instance_events_failed_total"] == counted["errors"]
    assert sums["mesh_instance_restarts_total"] == app["restarts"]
    assert sums["mesh_instance_backlog_messages"] == app["behind"] == 5000
    assert sums["mesh_instance_running"] == app["running"]
    assert 'mesh_app_state{app="Two",state="failing"} 1.0' in text
    assert sums["mesh_node_up"] == sum(one["presence"] == "alive" for one in nodes)
    assert {one["id"] for one in overview["nodes"]} == {one["id"] for one in nodes}
    assert overview["leader"] == "m1"
    assert 'mesh_leader{manager="m1"} 1.0' in text
    on_pages(pages, app, status, overview)
    assert sums["mesh_instance_latency_seconds_count"] == sum(LATENCIES)
    lines = drawn(overview)
    assert "app Two fails" in lines
    (row,) = [line for line in lines.splitlines() if line.split()[:2] == ["Two", "failing"]]
    for value in (f"{app['running']} of {app['instances']}", "5,000", "Two-one-1: broken"):
        assert value in row


def on_pages(
    pages: list[str], app: dict[str, Any], status: dict[str, Any], overview: dict[str, Any]
) -> None:
    """The pages have the words and numbers of REST."""
    first, own, nodes = pages
    assert "app Two fails" in texts_of(first)
    row = texts_of(first[first.index('<th scope="row"><a href="/apps/Two">') :])
    wanted = ["Two", app["state"], shown.number(app["behind"]), shown.number(app["failed"])]
    assert [one for one in row[:9] if one in wanted] == wanted
    assert f"{app['running']}/{app['instances']}" in row[:9]
    told = texts_of(own)
    for value in (app["reason"], shown.number(app["restarts"]), "1/2"):
        assert any(value in one for one in told), value
    # The size of the state, in the table of groups as in the instance's status.
    (one,) = [i for i in status["instances"] if i["instance"] == "Two-one-1"]
    assert shown.size(one["state_bytes"]) in told
    assert {node["id"] for node in overview["nodes"]} <= set(texts_of(nodes))


def texts_of(html: str) -> list[str]:
    """The texts between tags."""
    return [text for one in re.split(r"<[^>]*>", html) if (text := unescape(one).strip())]


def sums_of(text: str) -> dict[str, float]:
    """The sum of all samples of each name."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def drawn(overview: dict[str, Any]) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(screen(overview, None))
    return captured.get()
