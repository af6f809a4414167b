"""Two servers of three lose the end of a stream: the third keeps other messages under it."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import pytest

from mesh.clock import SystemClock
from mesh.jetstream import copies
from mesh.jetstream.connection import UNREACHABLE, close, connect
from mesh.jetstream.copies import Copies, different_sequences
from mesh.settings import NatsSettings
from tests.support.nats_cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nats.aio.client import Client
    from nats.js import JetStreamContext

    from mesh.control.journal import JournalEntry

pytestmark = [pytest.mark.nats, pytest.mark.timeout(180)]

STREAM = "mesh-A-S"


class Told:
    """A journal that keeps what it notes."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, entry: JournalEntry) -> None:
        self.texts.append(entry.text)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.stop()


async def publish(js: JetStreamContext, first: int, last: int) -> None:
    for number in range(first, last + 1):
        while True:
            try:
                headers = {"Nats-Msg-Id": str(number)}
                await js.publish(STREAM, str(number).encode(), timeout=2, headers=headers)
                break
            except UNREACHABLE:
                pass


async def differing(client: Client, times: list[int]) -> list[tuple[int, int]]:
    async with asyncio.timeout(60):
        while True:
            try:
                return await different_sequences(client, STREAM, times)
            except UNREACHABLE:
                pass


def test_sequences_with_other_messages_are_named_once_all_servers_are_back(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "ATTEMPT_S", 0.1)
    clock = SystemClock()

    def all_killed(directory: Path | None = None) -> None:
        for name in cluster.nodes:
            cluster.kill(name)
        for name in ("n1", "n2"):
            kept, present = cluster.nodes[name].directory, cluster.nodes[name].directory
            kept = kept.with_name(f"{name}-kept")
            if directory is None:
                shutil.copytree(present / "jetstream", kept)
            else:
                shutil.rmtree(present / "jetstream")
                shutil.copytree(kept, present / "jetstream")

    async def play() -> None:
        client = await connect(NatsSettings(url=cluster.urls()), "test")
        try:
            js = client.jetstream()
            await js.add_stream(
                name=STREAM, subjects=[STREAM], num_replicas=3, allow_direct=True
            )
            await publish(js, 1, 100)
            all_killed()
            for name in cluster.nodes:
                cluster.restart(name)
            await publish(js, 101, 200)
            all_killed(cluster.nodes["n1"].directory)
            elected_ms = clock.wall_ms()
            for name in ("n1", "n2"):
                cluster.restart(name)
            await publish(js, 201, 230)
            with pytest.raises(OSError, match="not all servers"):
                await different_sequences(client, STREAM, [elected_ms])
            told = Told()
            seen = Copies(client, told, lambda: True)  # type: ignore[arg-type]
            seen.note(STREAM, "A", elected_ms)
            watching = asyncio.create_task(seen.watch())
            cluster.restart("n3")
            await publish(js, 231, 330)
            # The third server has 101 to 200 where the others have the next hundred.
            assert await differing(client, [elected_ms - 60_000, elected_ms]) == [(101, 200)]
            assert await different_sequences(client, STREAM, [elected_ms - 60_000]) == []
            async with asyncio.timeout(60):
                while not told.texts:
                    await asyncio.sleep(0)
            watching.cancel()
            assert told.texts == [f"found that NATS's copies of {STREAM} differ in sequences 101 to 200"]
        finally:
            await close(client)

    asyncio.run(play())


def test_copies_that_agree_differ_in_nothing(cluster: Cluster) -> None:
    async def play() -> None:
        client = await connect(NatsSettings(url=cluster.urls()), "test")
        try:
            js = client.jetstream()
            await js.add_stream(
                name=STREAM, subjects=[STREAM], num_replicas=3, allow_direct=True
            )
            started_ms = SystemClock().wall_ms()
            await publish(js, 1, 5)
            cluster.kill("n1")
            cluster.restart("n1")
            await publish(js, 6, 20)
            assert await differing(client, [started_ms, SystemClock().wall_ms()]) == []
        finally:
            await close(client)

    asyncio.run(play())
