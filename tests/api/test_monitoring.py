"""Monitoring of a cluster through the API, and the permissions that it needs.

Metrics of apps, as Prometheus reads them.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import anyio
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from mesh.manager.nodes import Leadership
from tests.support.api import OPEN, TEXT, TEXT_PLAIN, FakeService, served
from tests.support.monitored import SHOP, Cluster, ask


def test_statistics_add_up_what_instances_did() -> None:
    shop, idle = ask("/siddhi-apps/statistics").json()
    assert shop == {
        "appName": "Shop", "status": "inactive", "age": 0, "isStatEnabled": True,
        "enabledSiddhiStatLevel": "BASIC", "app": "Shop", "state": "failing", "instances": 2,
        "running": 1, "events_in": 15,
        "events_out": 4, "errors": 1, "behind": 2, "restarts": 3, "batch_ms_p50": 20.0,
    }  # fmt: skip
    assert (idle["running"], idle["batch_ms_p50"]) == (0, None)


def test_an_apps_elements_are_a_graph() -> None:
    values = ask("/siddhi-apps/Shop/elements").json()
    ids = [one["id"] for one in values["elements"]]
    assert len(ids) == len(set(ids))
    assert {"stream Orders", "table Seen", "query sums", "inner stream #Last of partition 1"} <= {
        *ids
    }
    ends = {end for edge in values["edges"] for end in edge.values()}
    assert ends <= set(ids)
    edges = [(edge["from"], edge["to"]) for edge in values["edges"]]
    assert ("query inner", "inner stream #Last of partition 1") in edges
    assert ("table Seen", "query keep") in edges
    assert ("query keep", "table Seen") in edges
    by_id = {one["id"]: one for one in values["elements"]}
    assert by_id["query sums"]["group"] == "sums"
    assert by_id["query outer"]["partition"] == 1
    assert by_id["query keep"]["text"].startswith("@dist(execGroup='rest')")
    assert by_id["stream Totals"]["on_the_wire"]
    assert not by_id["stream Out"]["on_the_wire"]
    groups = {group["name"]: group["queries"] for group in values["groups"]}
    assert groups["rest"] == ["query keep", "query inner", "query outer"]
    assert groups["partition-Orders-item"] == []


@pytest.mark.slow
def test_a_plan_is_told_and_drawn() -> None:
    assert [g["name"] for g in ask("/siddhi-apps/Shop/plan").json()["groups"]] == [
        "partition-Orders-item", "sums", "rest",
    ]  # fmt: skip
    drawn = ask("/siddhi-apps/Shop/plan?output=svg")
    assert drawn.headers["content-type"].startswith("image/svg+xml")
    assert ET.fromstring(drawn.text).tag.endswith("svg")
    assert ask("/siddhi-apps/Shop/plan?output=dot").text.startswith("digraph")
    assert ask("/siddhi-apps/Shop/plan?output=png").status_code == 400
    assert ask("/siddhi-apps/Nothing/plan").status_code == 404


@pytest.mark.slow
def test_apps_that_are_active_are_those_that_run() -> None:
    assert ask("/siddhi-apps?isActive=true").json() == []
    assert ask("/siddhi-apps?isActive=false").json() == ["Shop", "Idle"]
    assert ask("/siddhi-apps?isActive=perhaps").status_code == 400
    assert [app["status"] for app in ask("/siddhi-apps?details=true").json()] == [
        "inactive",
        "waiting",
    ]
    assert ask("/siddhi-apps/Idle/status").json()["status"] == "waiting"


@pytest.mark.slow
def test_managers_tell_who_leads_and_what_runs_where() -> None:
    assert [m["leads"] for m in ask("/managers").json()] == [True, False]
    follower = ask("/managers/isActive")
    assert follower.status_code == 404
    assert follower.json() == {"isActive": False, "manager": "m2", "leader": "m1"}
    assert ask("/managers/isActive", service=FakeService()).status_code == 200
    shop, _ = ask("/managers/siddhi-apps").json()
    assert shop["groups"] == [{"group": "sums", "instances": 2, "running": 1}]
    first, second = ask("/managers/siddhi-apps/Shop").json()
    assert (first["worker"], first["worker_presence"]) == ("w1", "alive")
    assert first["last_heartbeat_ago_s"] == 0.25
    assert second["error"] == "broken"
    (idle,) = ask("/managers/siddhi-apps/Idle").json()
    assert (idle["worker"], idle["last_heartbeat_ago_s"]) == (None, None)
    assert ask("/managers/siddhi-apps/Nothing").status_code == 404
    assert ask("/managers/siddhi-apps-execution/Shop").json() == {"content": SHOP}
    assert ask("/managers/siddhi-apps-execution/Nothing").status_code == 404


def test_workers_are_counted_that_are_there() -> None:
    told = ask("/resourceClusterWorkers?details=true").json()
    assert told == {"clusteredWorkers": 1, "ready": 1}
    (worker,) = ask("/resourceClusterWorkers/clusteredWorkerNodeDetails").json()
    assert (worker["id"], worker["labels"]) == ("w1", ["gpu=true"])


@pytest.mark.slow
def test_the_overview_has_flows_and_the_history_a_key() -> None:
    found = ask("/overview", service=FakeService(texts={"Shop": TEXT})).json()
    assert (found["leader"], found["flows"]["Shop"]["events_in"]) == ("m1", 2.5)
    past = ask("/history?app=Shop&seconds=60&step=30").json()
    assert (past["of"], past["step_s"], past["values"]) == (
        "app Shop",
        30,
        {"events_in": [None, 2.5]},
    )
    for path in ("", "?app=Shop&seconds=-1", "?app=Shop&step=1e99"):
        assert ask(f"/history{path}").status_code == 400
    for path in ("app=Nothing", "app=Shop&group=one", "node=w1"):
        told = ask(f"/history?{path}")
        assert told.status_code == 404
    assert told.json()["message"] == 'node "worker/w1" has no history'


def test_an_app_is_put_in_the_place_of_another() -> None:
    async def run() -> list[tuple[int, str | None]]:
        service = FakeService()
        async with served(service, OPEN) as api, httpx.AsyncClient(base_url=api.url) as client:

            async def put(text: str, **query: str) -> tuple[int, str | None]:
                answer = await client.put(
                    "/siddhi-apps", content=text, headers=TEXT_PLAIN, params=query
                )
                return answer.status_code, answer.headers.get("location")

            return [
                await put(TEXT),
                await put(TEXT),
                await put(TEXT + " "),
                await put(TEXT + " ", replace="true"),
                await put(TEXT, replace="maybe"),
            ]

    there = "/siddhi-apps/Shop"
    assert anyio.run(run) == [(201, there), (200, there), (409, None), (200, there), (400, None)]


class Leading(Cluster):
    """The same, seen by the manager that leads."""

    async def leadership(self) -> Leadership:
        return Leadership("m1", "m1")


def test_metrics_are_read_by_prometheus() -> None:
    answer = ask("/metrics", service=Leading())
    assert answer.headers["content-type"].startswith("text/plain")
    families = {f.name: f for f in text_string_to_metric_families(answer.text)}
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families.values()
        for sample in family.samples
    }
    labels = ("Shop", "sums", "Shop-sums-1")
    assert samples["mesh_instance_events_in_total", *labels] == 10
    assert samples["mesh_instance_events_failed_total", *labels] == 1
    assert samples["mesh_instance_backlog_messages", *labels] == 2
    assert samples["mesh_instance_backlog_seconds", *labels] == 1.5
    assert samples["mesh_instance_batch_seconds_count", *labels] == 3
    assert samples["mesh_instance_batch_seconds_bucket", *labels, "0.005"] == 2
    assert ("mesh_instance_batch_seconds_count", "Shop", "sums", "Shop-sums-2") not in samples
    assert samples["mesh_instance_latency_seconds_count", *labels] == 3
    assert samples["mesh_instance_latency_seconds_bucket", *labels, "120.0"] == 2
    assert samples["mesh_instance_latency_seconds_sum", *labels] == 1.5
    assert samples["mesh_element_events_in_total", "Shop", "sums", *labels[1:], "query"] == 10
    assert samples["mesh_element_events_out_total", "Shop", "sums", *labels[1:], "query"] == 4
    assert samples["mesh_element_rows", "Shop", "T", *labels[1:], "table"] == 7
    assert ("mesh_element_rows", "Shop", "sums", *labels[1:], "query") not in samples
    assert samples["mesh_connector_up", "Shop", "sink http 1", *labels[1:]] == 1
    assert samples["mesh_connector_up", "Shop", "sink http 2", *labels[1:]] == 0
    assert samples["mesh_instance_running", "Idle", "default", "Idle-default-1"] == 0
    assert samples["mesh_instance_info", *labels, "w1"] == 1
    assert samples["mesh_app_state", "Shop", "failing"] == 1
    assert samples["mesh_app_state", "Shop", "running"] == 0
    assert samples["mesh_leader", "m1"] == 1
    assert samples["mesh_node_up", "w2", "worker"] == 0
    assert samples["mesh_node_cpu_ratio", "w1", "worker"] == 0.125
    assert samples["mesh_moves_total", "Shop"] == 3
    assert samples["mesh_channel_limit_ratio", "Shop", "mesh-Shop-Orders"] == 0.5
    assert samples["mesh_snapshot_age_seconds", "Shop", "sums"] == 4
    assert samples["mesh_group_wanted_instances", "Shop", "sums"] == 3
    assert samples["mesh_findings", "Shop", "input-lost", "fault"] == 2
    assert families["mesh_instance_restarts"].type == "counter"
    assert samples["mesh_history_bytes",] == 4096


def test_findings_of_an_app_are_counted_by_severity() -> None:
    found = ask("/siddhi-apps/Shop/verification", service=FakeService(texts={"Shop": TEXT})).json()
    assert (found["app"], found["faults"], found["risks"]) == ("Shop", 0, 1)
    assert found["findings"][0]["kind"] == "copies-few"
    assert ask("/siddhi-apps/Nothing/verification").status_code == 404
    assert ask("/siddhi-apps/Nothing/guarantees").status_code == 404


def test_an_app_without_statistics_has_its_state_alone() -> None:
    service = Leading()
    service.statuses = tuple(replace(one, statistics="OFF") for one in service.statuses)
    text = ask("/metrics", service=service).text
    assert 'mesh_app_state{app="Shop",state="failing"} 1.0' in text
    assert "mesh_instance_events_in_total{" not in text
    assert "mesh_leader" in ask("/metrics").text
    assert "mesh_app_state" not in ask("/metrics").text
