"""``mesh trace``: hops in servers from NATS's own tracing, later channels and sinks, with times."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from typer.testing import CliRunner

from mesh.cli import commands, trace
from mesh.client import ClientContext, rest
from mesh.jetstream import server
from mesh.jetstream.connection import close, connect
from mesh.manager.manager import running
from mesh.model import names
from mesh.plan.build import plan
from mesh.settings import ManagerSettings, NatsSettings, Settings
from tests.support.permissions import PASSWORDS, inbox_of, write_accounts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nats.aio.msg import Msg

    from mesh.jetstream.server import NatsServer

TEXT = """@App:name('Shop') define stream Orders (item string, count int);
@sink(type='log') define stream Last (item string, count int);
@dist(execGroup='one') from Orders[count > 1] select item, count insert into Big;
@dist(execGroup='two') from Big select item, count insert into Last;
"""


def test_channels_are_followed_in_the_order_of_the_groups() -> None:
    found = trace.steps(plan(TEXT).spec, "Orders")
    assert [(one.stream, one.of) for one in found] == [
        ("Big", "Orders"),
        ("Last", "Big"),
    ]
    assert found[0].subjects == ("mesh.Shop.Big",)
    assert trace.steps(plan(TEXT).spec, "Last") == []


def test_hops_of_servers_are_in_the_order_of_their_times() -> None:
    reports: list[dict[str, Any]] = [
        {
            "server": {"name": "n2"},
            "events": [
                {"type": "js", "ts": "2026-11-23T14:00:00.002000100Z",
                 "stream": "mesh-Shop-Orders"},
            ],
        },
        {
            "server": {"name": "n1"},
            "events": [
                {"type": "in", "ts": "2026-11-23T14:00:00Z", "kind": 0, "cid": 7, "name": "till"},
                {"type": "sm", "ts": "2026-11-23T14:00:00.0005Z", "to": "mesh.Shop.Orders"},
                {"type": "eg", "ts": "2026-11-23T14:00:00.001Z", "kind": 1, "name": "n2",
                 "error": "slow"},
            ],
        },
    ]  # fmt: skip
    hops = trace.server_hops(reports)
    assert [(one.after_ms, one.where, one.what) for one in hops] == [
        (0.0, "server n1", "received from client till"),
        (0.5, "server n1", "mapped to mesh.Shop.Orders"),
        (1.0, "server n1", "sent to route n2: slow"),
        (2.0, "server n2", "stored in mesh-Shop-Orders"),
    ]
    assert trace.server_hops([]) == []


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server with the roles of ``mesh dev``."""
    directory = tmp_path_factory.mktemp("roles")
    made = server.start(directory / "nats", arguments=write_accounts(directory / "accounts.conf"))
    yield made
    made.stop()


@pytest.mark.nats
def test_an_event_is_followed_from_its_publisher_to_the_sink(
    guarded: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, str]] = []
    # The worker reports the sink's position, once it has sent the first event.
    connector = {"name": "sink log", "position": 1}
    status = {"instances": [{"instance": "Shop-sink-Last-1", "connectors": [connector]}]}
    monkeypatch.setattr(rest.Client, "status", lambda self, app: status)

    async def scene() -> tuple[list[trace.Hop], list[str]]:
        def login(name: str) -> dict[str, Any]:
            values = {"user": name, "password": PASSWORDS[name], "inbox_prefix": inbox_of(name)}
            return {**values, "url": guarded.url}

        settings = NatsSettings(**login("manager"))
        managers = Settings(nats=settings, manager=ManagerSettings(id="m1"))
        async with running(managers) as (_, service):
            await service.deploy(TEXT)
            groups = await connect(NatsSettings(**login("worker")), "groups")

            async def one(message: Msg) -> None:
                seen.append(dict(message.headers or {}))
                await groups.jetstream().publish("mesh.Shop.Big", message.data)

            async def two(message: Msg) -> None:
                await groups.jetstream().publish("mesh.Shop.Last", message.data)
                marker = f"{names.marker_subject('mesh-Shop-Last')}.two"
                await groups.jetstream().publish(marker, b"")

            try:
                await groups.subscribe("mesh.Shop.Orders", cb=one)
                await groups.subscribe("mesh.Shop.Big", cb=two)
                await groups.flush()
                values = {f"nats_{name}": value for name, value in login("operator").items()}
                at = ClientContext(
                    server="http://127.0.0.1:1", nats=values.pop("nats_url"), **values
                )
                return await trace.trace_event(
                    at, "Shop", "Orders", b'{"item":"tea","count":2}', 60.0
                )
            finally:
                await close(groups)

    hops, missing = asyncio.run(scene())
    told = [f"{one.where}: {one.what}" for one in hops]
    assert any("received from client" in one for one in told)
    assert any("stored in mesh-Shop-Orders" in one for one in told)
    assert "publisher: acknowledged as sequence 1 of mesh-Shop-Orders" in told
    order = [
        told.index("group one: emitted to Big"),
        told.index("group two: emitted to Last"),
        told.index("sink log of Shop-sink-Last-1: has sent it, as its worker reports"),
    ]
    assert order == sorted(order)
    assert missing == []
    # The context of the trace arrives at the group.
    assert seen[0]["traceparent"].startswith("00-")


def test_what_is_not_reached_is_named_and_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def traced(*_: Any) -> tuple[list[trace.Hop], list[str]]:
        return [trace.Hop(1.5, "publisher", "acknowledged")], ["stream Big"]

    monkeypatch.setattr(trace, "trace_event", traced)
    arguments = ["trace", "Shop", "Orders", "--event", '{"a": 1}', "--nats", "nats://x"]
    said = CliRunner().invoke(commands.app, [*arguments, "--server", "http://127.0.0.1:1"])
    assert said.exit_code == 1
    assert "stream Big was not reached within 5 s" in said.output
    arguments += ["--output", "json", "--server", "http://127.0.0.1:1"]
    values = orjson.loads(CliRunner().invoke(commands.app, arguments).output)
    assert values["hops"] == [{"after_ms": 1.5, "where": "publisher", "what": "acknowledged"}]
    bad = CliRunner().invoke(commands.app, ["trace", "Shop", "Orders", "--event", "tea"])
    assert "MESH-D110" in bad.output
