"""Monitoring of a cluster through the API, and the permissions that it needs."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import anyio
import httpx

from tests.support.api import OPEN, TEXT, TEXT_PLAIN, FakeService, served
from tests.support.monitored import SHOP, ask


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


def test_apps_that_are_active_are_those_that_run() -> None:
    assert ask("/siddhi-apps?isActive=true").json() == []
    assert ask("/siddhi-apps?isActive=false").json() == ["Shop", "Idle"]
    assert ask("/siddhi-apps?isActive=perhaps").status_code == 400
    assert [app["status"] for app in ask("/siddhi-apps?details=true").json()] == [
        "inactive",
        "waiting",
    ]
    assert ask("/siddhi-apps/Idle/status").json()["status"] == "waiting"


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
