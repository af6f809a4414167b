"""Changes of leaders that NATS announces for its streams, in an app's story: a cluster of three."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.errors import ServiceUnavailableError

from mesh.control.journal import JournalEntry, of_elections, of_lost_quorum
from mesh.manager.manager import running
from mesh.model import codec, names
from mesh.settings import ChannelSettings, ManagerSettings, NatsSettings, Settings
from tests.support.nats_cluster import Cluster

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client

APP = "@App:name('A') define stream S (a int); from S[a > 1] select a insert into T;"


async def first_entry(client: Client, app: str, text: str) -> JournalEntry:
    """The first entry about ``app`` that begins with ``text``; waits for it."""
    subject = names.journal_subject(app)
    entries = await client.jetstream().subscribe(subject, ordered_consumer=True)
    while True:
        entry = codec.decode(JournalEntry, (await entries.next_msg(timeout=60)).data)
        if entry.text.startswith(text):
            await entries.unsubscribe()
            return entry


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


async def test_an_app_is_told_of_its_streams_new_leaders_and_not_of_its_first(
    tmp_path: Path,
) -> None:
    cluster = Cluster(tmp_path)
    try:
        settings = Settings(
            nats=NatsSettings(url=cluster.urls()),
            manager=ManagerSettings(id="m1"),
            channels=ChannelSettings(replicas=3),
        )
        async with running(settings) as (manager, service):
            await service.deploy(APP)
            async with asyncio.timeout(60):
                while not manager.leads:
                    await manager.view.changed(manager.view.version, 0.1)
            leader = await step_down(manager.client, "mesh-A-S")
            told = await first_entry(manager.client, "A", "NATS reported")
            assert told.text == f"NATS reported new leaders: {leader} of mesh-A-S"
            assert told.by == "manager m1"
            # Buckets belong to no app.
            leader = await step_down(manager.client, "KV_mesh_snapshots")
            told = await first_entry(manager.client, "", "NATS reported")
            assert told.text == f"NATS reported new leaders: {leader} of KV_mesh_snapshots"
            story = [entry.text for entry in await service.story("A")]
            assert sum(text.startswith("NATS reported") for text in story) == 2
    finally:
        cluster.stop()


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
