"""The overview: what needs a person comes first, with a cause and a remedy."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from mesh.cli.commands import app as cli
from mesh.control.lifecycle import AppState, AppStatus
from mesh.control.verification import Finding, Severity
from mesh.manager.overview import overview
from mesh.manager.problems import LATE_S
from mesh.manager.rates import Flow
from mesh.model.cluster import ConnectorStatus, InstanceState
from tests.support.agents import APP
from tests.support.dashboard import site
from tests.support.load import until
from tests.support.overviews import node, one

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer


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


@pytest.mark.slow
async def test_an_app_has_its_own_name_on_the_pages(nats_server: NatsServer) -> None:
    text = "define stream S (a int); define table K (a int); from S insert into K;"
    async with site(nats_server) as at, httpx.AsyncClient(base_url=at.url) as client:
        await at.service.deploy(f"@App:name('Shop.North') {text}")
        await _parts(client, "/", '<a href="/apps/Shop--2ENorth">Shop.North</a>')
        assert "<h1>Shop.North " in (await client.get("/apps/Shop--2ENorth")).text
        asked = (await client.get("/query?app=Shop--2ENorth")).text
        assert '<option value="Shop--2ENorth" selected>Shop.North</option>' in asked


@pytest.mark.slow
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
