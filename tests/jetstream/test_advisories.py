"""Changes of leaders that NATS announces for its streams, in an app's story: a cluster of three."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import orjson
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.errors import ServiceUnavailableError

from mesh.control.journal import JournalEntry, of_elections, of_lost_quorum
from mesh.manager.manager import running
from mesh.model import codec, names
from mesh.settings import ChannelSettings, ManagerSettings, NatsSettings, Settings
from tests.support.nats_cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from mesh.jetstream.server import NatsServer
    from mesh.manager.manager import Manager

ELECTED = "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED"
APP = "@App:name('A') define stream S (a int); from S[a > 1] select a insert into T;"


def told_leaders(entry: JournalEntry) -> dict[str, str]:
    """The leaders that an entry tells, by stream; of few streams, as it counts many."""
    beginning, _, parts = entry.text.partition("NATS reported new leaders: ")
    pairs = [part.split(" of ") for part in parts.split("; ") if not beginning and parts]
    return {stream: leader for leader, streams in pairs for stream in streams.split(", ")}


async def entries(client: Client, app: str) -> AsyncIterator[JournalEntry]:
    """The entries about ``app``, without end."""
    subject = names.journal_subject(app)
    found = await client.jetstream().subscribe(subject, ordered_consumer=True)
    while True:
        yield codec.decode(JournalEntry, (await found.next_msg(timeout=60)).data)


async def leader_other_than(client: Client, stream: str, former: str) -> str:
    """The leader of a stream, as soon as there is one that isn't ``former``."""
    async with asyncio.timeout(60):
        while True:
            # A stream without a leader has no server that answers.
            with contextlib.suppress(NatsTimeoutError, ServiceUnavailableError):
                info = await client.jetstream().stream_info(stream)
                assert info.cluster is not None
                if info.cluster.leader not in (None, "", former):
                    return str(info.cluster.leader)


async def step_down(client: Client, stream: str) -> str:
    """Make a stream's leader step down; returns the next one."""
    before = await leader_other_than(client, stream, "")
    await client.request(f"$JS.API.STREAM.LEADER.STEPDOWN.{stream}", b"", timeout=10)
    return await leader_other_than(client, stream, before)


async def until_made(manager: Manager) -> None:
    """Wait until a manager leads and its view shows that the app's streams are made."""
    async with asyncio.timeout(60):
        while not manager.leads or all(a.value.making for a in manager.view.snapshot().apps):
            await manager.view.changed(manager.view.version, 0.1)


async def test_an_app_is_told_of_its_streams_new_leaders_and_not_of_its_first(
    tmp_path: Path,
) -> None:
    cluster = Cluster(tmp_path)
    # By stream.  A busy machine makes for elections that nobody asked for: they are told as well.
    elected: dict[str, list[str]] = {}

    async def hear(advisory: Msg) -> None:
        found = orjson.loads(advisory.data)
        elected.setdefault(found["stream"], []).append(found["leader"])

    async def told(manager: Manager, app: str, stream: str, leader: str) -> JournalEntry:
        async for entry in entries(manager.client, app):
            found = told_leaders(entry).get(stream)
            if found is not None and found in (leader, elected.get(stream, [""])[-1]):
                return entry
        raise AssertionError(stream)

    try:
        settings = Settings(
            nats=NatsSettings(url=cluster.urls()),
            manager=ManagerSettings(id="m1"),
            channels=ChannelSettings(replicas=3),
        )
        async with running(settings) as (manager, service):
            await manager.client.subscribe(f"{ELECTED}.*", cb=hear)
            await service.deploy(APP)
            await until_made(manager)
            leader = await step_down(manager.client, "mesh-A-S")
            first = await told(manager, "A", "mesh-A-S", leader)
            assert first.by == "manager m1"
            # Buckets belong to no app.
            other = await step_down(manager.client, "KV_mesh_snapshots")
            second = await told(manager, "", "KV_mesh_snapshots", other)
            story = [told_leaders(entry) for entry in await service.story("A")]
            assert any("KV_mesh_snapshots" in leaders for leaders in story)
            own = [stream for stream in elected if stream.startswith("mesh-A-")]
            again = {stream for leaders in story for stream in leaders}.intersection(own)
            assert all(len(elected[stream]) > 1 for stream in again), (story, elected)
            if sum(map(len, elected.values())) == len(own) + 2:
                # No other election than the first ones and the two that were asked for.
                assert first.text == f"NATS reported new leaders: {leader} of mesh-A-S"
                assert second.text == f"NATS reported new leaders: {other} of KV_mesh_snapshots"
                assert sum(map(bool, story)) == 2
    finally:
        cluster.stop()


async def test_the_first_election_of_a_stream_is_no_news_though_it_is_heard_of_late(
    nats_server: NatsServer,
) -> None:
    settings = Settings(nats=NatsSettings(url=nats_server.url), manager=ManagerSettings(id="m1"))
    async with running(settings) as (manager, service):
        await service.deploy(APP)
        await until_made(manager)
        # One server elects nobody, so these are all there are.
        for stream, leader in (("mesh-A-S", "n1"), ("mesh-A-T", "n1"), ("mesh-A-S", "n2")):
            advisory = {"stream": stream, "leader": leader, "timestamp": "2026-01-01T00:00:00Z"}
            await manager.client.publish(f"{ELECTED}.{stream}", orjson.dumps(advisory))
        async for entry in entries(manager.client, "A"):
            if leaders := told_leaders(entry):
                assert leaders == {"mesh-A-S": "n2"}
                break


def test_leaders_are_told_server_by_server_and_many_streams_are_counted() -> None:
    leaders = {f"mesh-A-S{number}": "n1" for number in range(1, 7)} | {"mesh-A-T": "n2"}
    entry = of_elections("A", leaders)
    assert entry.app == "A"
    assert entry.text == (
        "NATS reported new leaders: "
        "n1 of mesh-A-S1, mesh-A-S2, mesh-A-S3, mesh-A-S4 and 2 more; n2 of mesh-A-T"
    )


def test_a_lost_quorum_is_told() -> None:
    assert of_lost_quorum("A", "mesh-A-S").text == (
        "NATS reported that mesh-A-S has lost its quorum"
    )
