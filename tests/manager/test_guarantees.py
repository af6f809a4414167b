"""The audit of guarantees on a real server: settings of streams, refusals, API and CLI."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import httpx
import nats
import pytest
from nats.errors import NoRespondersError
from nats.js.api import StorageType
from typer.testing import CliRunner

from mesh.cli import local
from mesh.cli.commands import app as commands
from mesh.errors import MeshError
from mesh.jetstream import server
from mesh.manager import guarantees
from mesh.manager.manager import running
from mesh.model import names
from mesh.plan.build import plan
from mesh.plan.guarantees import NOTHING, AuditPlace, Failure
from mesh.settings import ChannelSettings, ManagerSettings, NatsSettings, Settings
from tests.support.manager_api import manager_api
from tests.support.nats_cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.msg import Msg

    from mesh.jetstream.server import NatsServer
    from mesh.manager.guarantees import Guarantees
    from mesh.manager.manager import Manager
    from mesh.manager.service import ManagerService

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

TEXT = """@App:name('A') @App:guarantee('exactly-once')
define stream S (a int);
@dist(execGroup='g') from S#window.length(2) select a insert into T;
"""
NEXT = TEXT.replace("length(2)", "length(2)[a > 0]")


@asynccontextmanager
async def manager_on(
    nats_server: NatsServer, **channels: Any
) -> AsyncIterator[tuple[Manager, ManagerService]]:
    settings = Settings(
        nats=NatsSettings(url=nats_server.url),
        manager=ManagerSettings(id="m1"),
        channels=ChannelSettings(**channels),
    )
    async with running(settings) as (manager, service):
        yield manager, service


def held(found: Guarantees, place: AuditPlace, name: str) -> dict[Failure, str]:
    return {r.failure: r.holds for r in found.rows if (r.place, r.name) == (place, name)}


async def keep_for(manager: Manager, stream: str, age_s: float) -> None:
    """Change the retention of a stream, as an operator does."""
    js = manager.client.jetstream()
    config = (await js.stream_info(stream)).config
    await js.update_stream(config.evolve(max_age=age_s, duplicate_window=min(age_s, 120)))


async def test_a_single_server_holds_through_killed_processes(nats_server: NatsServer) -> None:
    async with manager_on(nats_server) as (_, service):
        done = await service.deploy(TEXT)
        first, *others = done.guarantees
        assert first.startswith("exactly once between channels through a process killed, ")
        assert len([line for line in others if "on one server only" in line]) == 1
        found = await service.guarantees.of_app("A")
        channel = held(found, AuditPlace.CHANNEL, names.js_stream("A", "T"))
        assert channel[Failure.PROCESS] == channel[Failure.READER] == "exactly once"
        assert channel[Failure.SERVER] == channel[Failure.POWER] == NOTHING
        state = held(found, AuditPlace.STATE, "snapshots and records")
        assert (state[Failure.PROCESS], state[Failure.SERVER]) == ("exactly once", NOTHING)
        assert found.sync_interval_s is None
        with pytest.raises(MeshError, match="MESH-A404"):
            await service.guarantees.of_app("Gone")


async def test_deploys_in_a_row_ask_once_about_the_records_of_the_mesh(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarantees, "_CACHE_AGE_S", 3600.0)
    asked: list[str] = []

    async def note(message: Msg) -> None:
        asked.append(message.subject.removeprefix("$JS.API.STREAM.INFO."))

    async with manager_on(nats_server) as (manager, service):
        audit, spec = service.guarantees, plan(TEXT).spec
        await manager.client.subscribe("$JS.API.STREAM.INFO.>", cb=note)
        first = await audit.summary(spec)
        assert await audit.summary(spec) == first
        await audit.of(spec)
        await manager.client.flush()
        assert asked.count("KV_mesh_apps") == 2
        assert asked.count(names.js_stream("A", "T")) == 3


async def test_what_would_be_made_is_what_is_made(nats_server: NatsServer) -> None:
    async with manager_on(
        nats_server, max_age_s=7200.0, max_bytes=9000, keep_unread=False, sync_interval_s=0.0
    ) as (_, service):
        before = (await service.preview(TEXT)).guarantees
        await service.deploy(TEXT)
        after = await service.guarantees.of_app("A")
        assert before == after
        channel = held(after, AuditPlace.CHANNEL, names.js_stream("A", "T"))
        assert channel[Failure.POWER] == channel[Failure.POWERS] == "exactly once"
        assert channel[Failure.READER] == NOTHING


async def test_a_stream_in_memory_refuses_exactly_once_and_nothing_is_written(
    nats_server: NatsServer,
) -> None:
    async with manager_on(nats_server) as (manager, service):
        js = manager.client.jetstream()
        (channel,) = (c for c in plan(TEXT).spec.channels if c.stream.name == "T")
        name, markers = channel.js_stream(), names.marker_subject(channel.js_stream())
        await js.add_stream(
            name=name,
            subjects=[channel.subject(), f"{markers}.>"],
            storage=StorageType.MEMORY,
        )
        call = f"$JS.API.STREAM.UPDATE.{name}"
        config = json.loads((await manager.client.request(f"$JS.API.STREAM.INFO.{name}")).data)
        changed = json.dumps(config["config"] | {"allow_atomic": True}).encode()
        assert b"error" not in (await manager.client.request(call, changed)).data
        shown = await service.preview(TEXT)
        assert shown.refused is not None
        assert shown.refused["code"] == "MESH-C125"
        with pytest.raises(MeshError, match="MESH-C125") as caught:
            await service.deploy(TEXT)
        assert "in memory" in str(caught.value.detail)
        assert service.record("A") is None
        # Without the demand it is a report.
        done = await service.deploy(TEXT.replace("@App:guarantee('exactly-once')", ""))
        assert "its events are in memory" in " ".join(done.guarantees)


async def test_an_edit_is_refused_while_a_retention_is_shorter_than_a_failover(
    nats_server: NatsServer,
) -> None:
    async with manager_on(nats_server) as (manager, service):
        await service.deploy(TEXT)
        stream = names.js_stream("A", "T")
        await keep_for(manager, stream, 10)
        with pytest.raises(MeshError, match="MESH-C125") as caught:
            await service.update(NEXT, reset=["g"])
        assert "events go after 10 s" in str(caught.value.detail)
        assert (await service.app("A")).text == TEXT
        await keep_for(manager, stream, 3600)
        assert (await service.update(NEXT, reset=["g"])).edited


async def test_a_replacement_is_refused_before_anything_is_removed(nats_server: NatsServer) -> None:
    async with manager_on(nats_server, max_age_s=30.0) as (manager, service):
        free = TEXT.replace("@App:guarantee('exactly-once')", "")
        await service.deploy(free)
        # Of the stream that would be made, not of the one that is there.
        await keep_for(manager, names.js_stream("A", "T"), 3600)
        await keep_for(manager, names.js_stream("A", "S"), 3600)
        with pytest.raises(MeshError, match="MESH-C125"):
            await service.update(NEXT, replace=True)
        record = service.record("A")
        assert record is not None
        assert (record.spec.text, record.deleting) == (free, False)
        # The same plan, with a demand: of the streams that are there.
        await service.update(TEXT)
        await keep_for(manager, names.js_stream("A", "T"), 30)
        for deploy in (service.update, service.deploy):
            with pytest.raises(MeshError, match="MESH-C125"):
                await deploy(TEXT)
        assert not (await service.update(free)).edited


@pytest.mark.slow
async def test_one_copy_on_a_cluster_of_three_is_refused(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)

    try:
        channels = ChannelSettings(replicas=3, sync_interval_s=0.0)
        settings = Settings(
            nats=NatsSettings(url=cluster.urls()),
            manager=ManagerSettings(id="m1"),
            channels=channels,
        )
        async with running(settings) as (manager, service):
            done = await service.deploy(TEXT)
            assert done.guarantees == (
                f"exactly once between channels through {', '.join(Failure)}",
            )
            assert (await service.guarantees.of_app("A")).servers == ("n1", "n2", "n3")
            js = manager.client.jetstream()
            stream = names.js_stream("A", "T")
            await js.update_stream((await js.stream_info(stream)).config.evolve(num_replicas=1))
            with pytest.raises(MeshError, match="MESH-C125") as caught:
                await service.update(NEXT, reset=["g"])
            assert f"{stream} gives nothing through a server lost for good" in str(caught.value)
            assert "'nats stream edit --replicas 3'" in str(caught.value.hint)
    finally:
        cluster.stop()


@pytest.mark.parametrize(
    ("block", "interval_s"),
    [('jetstream { sync_interval: "7s" }', 7.0), ("", server.SYNC_INTERVAL_S)],
    ids=["written", "default"],
)
def test_only_the_servers_monitoring_and_the_system_account_tell_sync_interval(
    tmp_path: Path, block: str, interval_s: float
) -> None:
    """So a manager, which has neither, takes it from a setting."""
    port = server.free_port()
    config = tmp_path / "nats.conf"
    config.write_text(f'http: "127.0.0.1:{port}"\n{block}\n')
    started = server.start(tmp_path / "nats", arguments=["-c", str(config)])

    async def scene() -> None:
        client = await nats.connect(started.url)
        for call in ("SERVER.PING.VARZ", "SERVER.PING.JSZ"):
            with pytest.raises(NoRespondersError):
                await client.request(f"$SYS.REQ.{call}", b"", timeout=5)
        await client.close()

    try:
        asyncio.run(scene())
        with urlopen(f"http://127.0.0.1:{port}/varz", timeout=5) as answer:
            told = json.load(answer)
        assert told["jetstream"]["config"]["sync_interval"] == interval_s * 1e9
    finally:
        started.stop()


@pytest.mark.parametrize(("stated_s", "told_s"), [(-1.0, server.SYNC_INTERVAL_S), (0.0, 0.0)])
def test_a_local_cluster_states_that_of_its_own_server(
    tmp_path: Path, stated_s: float, told_s: float
) -> None:
    settings = Settings(channels=ChannelSettings(sync_interval_s=stated_s))
    made = local.settings_of(local.LocalPlan(tmp_path, 1, settings), "nats://h", tmp_path, 1)
    assert made.channels.sync_interval_s == told_s


@pytest.mark.slow
def test_guarantees_from_the_command_line(nats_server: NatsServer, alone: Path) -> None:
    (alone / "a.siddhi").write_text(TEXT)
    with manager_api(nats_server, alone) as url:
        known = {
            "MESH_SERVER": url,
            "MESH_USER": "ada",
            "MESH_PASSWORD": "pw",
            "COLUMNS": "200",
        }

        def mesh(*arguments: str, fails: bool = False) -> str:
            result = CliRunner().invoke(commands, list(arguments), env=known)
            assert (result.exit_code != 0) == fails, result.output
            return result.stdout + result.stderr

        shown = mesh("plan", "a.siddhi", "--on-cluster")
        assert all(failure in shown for failure in Failure)
        assert "mesh-A-T" in shown
        assert "channels.replicas: 1, sync_interval: not stated, 2 minutes assumed" in shown
        found = json.loads(mesh("plan", "a.siddhi", "--on-cluster", "--output", "json"))
        assert {row["place"] for row in found["rows"]} == {"channel", "state"}
        mesh("plan", "a.siddhi", "--on-cluster", "--output", "svg", fails=True)
        said = mesh("deploy", "a.siddhi", "--timeout", "0")
        assert "\n  exactly once between channels through a process killed, " in said
        assert "\n    not through a server lost for good: " in said

        answer = httpx.get(f"{url}/siddhi-apps/A/guarantees", auth=("ada", "pw"))
        assert answer.status_code == 200
        # Its streams are there now, as they were announced.
        assert answer.json() == found
        gone = httpx.get(f"{url}/siddhi-apps/B/guarantees", auth=("ada", "pw"))
        assert gone.status_code == 404
        assert httpx.get(f"{url}/siddhi-apps/A/guarantees").status_code == 401

        async def shorten() -> None:
            client = await nats.connect(nats_server.url)
            config = (await client.jetstream().stream_info("mesh-A-T")).config
            await client.jetstream().update_stream(config.evolve(max_age=10, duplicate_window=10))
            await client.close()

        asyncio.run(shorten())
        (alone / "a.siddhi").write_text(NEXT)
        assert "MESH-C125" in mesh("deploy", "a.siddhi", "--reset", "g", fails=True)
