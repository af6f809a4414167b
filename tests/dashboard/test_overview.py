"""The overview: what needs a person comes first, with a cause and a remedy."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import httpx
import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from mesh.cli.commands import app as cli
from mesh.control.lifecycle import AppState, AppStatus, InstanceView
from mesh.control.verification import Finding, Severity
from mesh.dashboard.shown import duration, number, payload, rate, size
from mesh.manager.nodes import NodeView
from mesh.manager.overview import overview
from mesh.manager.problems import LATE_S
from mesh.manager.rates import Flow
from mesh.model.cluster import ConnectorStatus, InstanceState
from tests.support.agents import APP
from tests.support.dashboard import site
from tests.support.load import until

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer


def one(name: str, state: str = "running", **values: Any) -> InstanceView:
    return InstanceView(name, "g", "w1", 1, state, **values)


def node(name: str, presence: str = "alive", role: str = "worker") -> NodeView:
    return NodeView(name, role, presence, role == "manager", True, "", 1, 0, 0.0, 0)


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


def test_every_command_of_a_problem_is_one_of_the_command_line() -> None:
    connector = ConnectorStatus("sink http", InstanceState.RETRYING, error="refused", attempts=3)
    apps = [
        AppStatus("Bad", AppState.FAILING, "no", (one("Bad-g-1", "retrying"),)),
        AppStatus("Sink", AppState.RUNNING, None, (one("Sink-s-1", connectors=(connector,)),)),
        AppStatus("Slow", AppState.RUNNING, None, (one("Slow-g-1"),)),
    ]
    finding = Finding(Severity.FAULT, "stream-missing", "Slow", "S", "It is gone.", "Restore it.")
    nodes = [node("m1", "gone", role="manager"), node("w1", "gone"), node("w2")]
    late = Flow(backlog=1, backlog_s=LATE_S)
    problems = [
        problem
        for some in (nodes, [replace(nodes[2], ready=False)], [])
        for problem in overview(
            apps, some, None, ["NATS is away"], [finding], lambda instance: late, {"Sink": 1}
        ).problems
    ]
    assert len({problem.command for problem in problems}) > 7
    for problem in problems:
        assert parses(problem.command.split()[1:]), problem.command
    assert not parses(["status"])


@cache
def command_line() -> Any:
    """All commands, whose modules and options take a while to be read."""
    return typer.main.get_command(cli)


def parses(words: list[str]) -> bool:
    """Whether the command line takes these words; nothing is run."""
    command = command_line()
    while isinstance(command, TyperGroup):
        found = command.commands.get(words[0]) if words else None
        if found is None:
            return False
        command, words = found, words[1:]
    try:
        command.make_context(command.name, list(words))
    except TyperException:
        return False
    return True


def test_values_are_short_and_payloads_can_not_hide_anything() -> None:
    assert [number(1234567), rate(0.25), rate(123456), size(0), size(1_500_000)] == [
        "1\u202f234\u202f567", "0.2", "123\u202fk", "0\u202fB", "1.5\u202fMB",
    ]  # fmt: skip
    assert [duration(s) for s in (0, 0.02, 3.2, 75, 7260, 90_000)] == [
        "0\u202fs", "20\u202fms", "3.2\u202fs", "1\u202fmin 15\u202fs", "2\u202fh 1\u202fmin",
        "1\u202fd 1\u202fh",
    ]  # fmt: skip
    assert payload("a\u202eb\x00c\u200b") == "a\\u202eb\\u0000c\\u200b"
    assert payload("x" * 1_000_000).endswith("… 998,000 more characters")
    assert payload(b"\xff\xfe\x00") == "3 bytes that are no text: ff fe 00"
    assert payload({"a": [1, None]}) == '{"a":[1,null]}'


async def _parts(client: httpx.AsyncClient, path: str, until: str) -> dict[str, str]:
    """The parts of an open page, once one of them has a text."""
    found: dict[str, str] = {}
    headers = {"Accept": "text/event-stream"}
    async with asyncio.timeout(15), client.stream("GET", path, headers=headers) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        async for line in stream.aiter_lines():
            if line.startswith("data: "):
                found |= json.loads(line[6:])
                if any(until in part for part in found.values()):
                    return found
    raise AssertionError(found)


async def test_an_app_has_its_own_name_on_the_pages(nats_server: NatsServer) -> None:
    text = "define stream S (a int); define table K (a int); from S insert into K;"
    async with site(nats_server) as at, httpx.AsyncClient(base_url=at.url) as client:
        await at.service.deploy(f"@App:name('Shop.North') {text}")
        await _parts(client, "/", '<a href="/apps/Shop--2ENorth">Shop.North</a>')
        assert "<h1>Shop.North " in (await client.get("/apps/Shop--2ENorth")).text
        asked = (await client.get("/query?app=Shop--2ENorth")).text
        assert '<option value="Shop--2ENorth" selected>Shop.North</option>' in asked


async def test_a_lost_worker_and_a_failing_app_are_on_the_open_page(
    nats_server: NatsServer,
) -> None:
    async with site(nats_server) as at, httpx.AsyncClient(base_url=at.url) as client:
        empty = (await client.get("/")).text
        assert "No app is deployed yet" in empty
        assert "mesh deploy shop/shop.siddhi" in empty
        at.start_worker("w1")
        at.start_worker("w2")
        await at.service.deploy(APP)
        await at.until_running("Two")
        await _parts(client, "/", "Nothing needs you: 1 of 1 app run on 2 workers.")
        at.states["Two-one-1"] = {"state": InstanceState.RETRYING, "error": "<i>no</i>"}
        found = await _parts(client, "/", "app Two fails")
        assert "&lt;i&gt;no&lt;/i&gt;" in found["live_problems"]
        connector = ConnectorStatus(
            "sink http", InstanceState.RETRYING, "http://hook/", error="refused", attempts=3
        )
        at.states["Two-one-1"] = {"connectors": (connector,), "error": "sink http: refused"}
        # The app runs, and its page says what fails and where, as the overview does.
        await _parts(client, "/", "sink http of app Two fails")
        found = await _parts(client, "/apps/Two", "http://hook/: refused")
        assert "check that its address answers" in found["live_problem"]
        assert "retrying" in found["live_groups"]
        page = (await client.get("/apps/Two/i/Two-one-1")).text
        assert '<div class="box bad"><p class="cause"><b>Cause</b> sink http: refused' in page
        await at.kill_worker("w2")
        found = await _parts(client, "/", "worker w2 is gone")
        assert "mesh worker --id w2" in found["live_problems"]

        async def has_moved() -> bool:
            instances = (await at.service.status("Two")).instances
            return {(one.worker, one.state) for one in instances} == {("w1", "running")}

        # One place of truth: problems and their order are those of REST.
        await until(has_moved)
        rest = (await client.get("/overview")).json()
        (app,) = rest["apps"]
        found = await _parts(client, "/", f">{app['running']}/{app['instances']}<")
        titles = re.findall(r"<strong>.*?>([^<]+)</a></strong>", found["live_problems"])
        assert titles == [problem["title"] for problem in rest["problems"]]
        assert f">{app['running']}/{app['instances']}<" in found["live_apps"]
        # Findings of the verification are there as well.
        faults = at.service.verification.findings
        faults["Two"] = (Finding(Severity.FAULT, "state-lost", "Two", "one", "Gone.", "Go."),)
        found = await _parts(client, "/", "fault of app Two: state-lost in one")
        rest = (await client.get("/overview")).json()
        assert "state-lost" in [p["title"] for p in rest["problems"]][-1]
        assert "state-lost" in (await client.get("/apps/Two")).text
        filtered = (await client.get("/?q=nothing")).text
        assert "No app fits the filter" in filtered
