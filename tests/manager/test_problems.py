"""Problems that need a person: each has a cause, a remedy and a command."""

from __future__ import annotations

from dataclasses import replace

from mesh.control.lifecycle import AppState, AppStatus
from mesh.manager.overview import overview
from mesh.manager.problems import LATE_S
from mesh.manager.rates import Flow
from mesh.model.cluster import ConnectorStatus, InstanceState
from tests.support.overviews import node, one


def test_problems_come_first_and_each_has_a_remedy() -> None:
    apps = [
        AppStatus("Calm", AppState.RUNNING, None, (one("Calm-g-1"),)),
        AppStatus("Slow", AppState.RUNNING, None, (one("Slow-g-1", behind=5000),)),
        AppStatus("Odd", AppState.RUNNING, None, (one("Odd-g-1", errors=9),)),
        AppStatus("Bad", AppState.FAILING, "Bad-g-1: no", (one("Bad-g-1", "retrying"),)),
        AppStatus("Late", AppState.WAITING, "Late-g-1: no node", (), "add gpu=true to a worker"),
    ]
    refused = ConnectorStatus(
        "sink http", InstanceState.RETRYING, "http://hook/", error="refused", attempts=3
    )
    apps[0] = replace(apps[0], instances=(one("Calm-sink-1", connectors=(refused,)),))
    nodes = [node("m1", role="manager"), node("w1"), node("w2", "gone")]
    # What an instance has counted is no news: the events that failed may have been replayed.
    found = overview(apps, nodes, None, failed={"Odd": 2})
    assert [app.app for app in found.apps] == ["Bad", "Late", "Calm", "Odd", "Slow"]
    assert [n.id for n in found.nodes] == ["w2", "m1", "w1"]
    told = [(p.concern, p.name, p.state) for p in found.problems]
    assert told == [
        ("cluster", "", "no leader"),
        ("node", "w2", "gone"),
        ("app", "Bad", "failing"),
        ("app", "Late", "waiting"),
        ("app", "Calm", "retrying"),
        ("errors", "Odd", "errors"),
    ]
    assert all(p.title and p.cause and p.cure and p.command for p in found.problems)
    assert found.problems[4].cause == "http://hook/: refused"
    assert found.problems[3].cure == "add gpu=true to a worker"
    assert (found.running, found.workers, found.workers_ready) == (3, 1, 1)
    for calm in (replace(refused, attempts=1), replace(refused, state=InstanceState.RUNNING)):
        app = replace(apps[0], instances=(one("Calm-sink-1", connectors=(calm,)),))
        assert overview([app], nodes[:2], "m1").problems == ()


def test_a_group_that_is_late_needs_a_person_and_another_app_does_not() -> None:
    flows = {"Slow-g-1": Flow(120.0, backlog=5000, backlog_s=LATE_S), "Slow-g-2": Flow(backlog=1)}
    slow = AppStatus("Slow", AppState.RUNNING, None, (one("Slow-g-1"), one("Slow-g-2")))
    busy = AppStatus("Busy", AppState.RUNNING, None, (one("Busy-g-1"),))
    flows["Busy-g-1"] = Flow(9000.0, backlog=100_000, backlog_s=LATE_S - 1)
    nodes = [node("m1", role="manager"), node("w1")]
    found = overview([slow, busy], nodes, "m1", flow=flows.__getitem__)
    (problem,) = found.problems
    assert (problem.name, problem.state) == ("Slow", "behind")
    assert problem.title == "group g of app Slow is behind"
    assert problem.cause == "5,001 messages wait, the oldest for 60 s; 120/s are read"
    assert problem.command == "mesh scale Slow g 3"
    connector = ConnectorStatus("sink http", InstanceState.RETRYING, error="refused", attempts=3)
    refused = replace(slow, instances=(one("Slow-g-1", connectors=(connector,)),))
    told = overview([refused], nodes, "m1", flow=flows.__getitem__).problems
    assert [problem.state for problem in told] == ["retrying"]
    paused = replace(slow, state=AppState.PAUSED)
    assert overview([paused], nodes, "m1", flow=flows.__getitem__).problems == ()
    assert found.of({"Busy"}).problems == ()
    assert [app.app for app in found.of({"Busy"}).apps] == ["Busy"]
