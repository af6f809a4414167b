"""A worker's session as a standby that takes over, with a real server and without Spark."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from mesh.model.cluster import Assignment, Standby
from mesh.settings import NatsSettings, Settings
from mesh.worker.protocol import (
    HoldState,
    ReleaseState,
    Reply,
    SessionConfig,
    StandbyReport,
    StartInstance,
    StopInstance,
    to_line,
)
from mesh.worker.session import Session, instance_options
from pyspark_nats.protocol import connection
from tests.support.backup_groups import TEXT, Groups, totals
from tests.support.backups import Blind, mesh

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from tests.support.backups import Mesh
    from tests.support.shared_query import Hand

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]


class Said:
    """The session's replies."""

    def __init__(self) -> None:
        self.held = 0
        self.changed = asyncio.Event()

    def send(self, reply: Reply) -> None:
        if isinstance(reply, StandbyReport):
            self.held = reply.status.snapshots
            self.changed.set()


def session_of(have: Mesh, by: Hand, said: Said, directory: Path) -> Session:
    settings = replace(Settings(), nats=NatsSettings(url=by.nats["servers"]))
    config = SessionConfig("w2", str(directory), settings)
    options = replace(instance_options(config), snapshot_interval_s=0.0, retry_s=0.0)
    nothing: Any = None
    return Session(
        config, directory, nothing, have.client, cast("Any", said), options, cast("Any", by)
    )


@pytest.mark.slow
async def test_what_is_held_is_taken_and_not_fetched(
    hand: Hand,
    nats_server: NatsServer,
    tmp_path: Path,
) -> None:
    with ThreadPoolExecutor(1) as runner:
        try:
            async with mesh(nats_server, tmp_path, "jetstream") as have:
                await have.service.deploy(TEXT)
                group = have.record.spec.group("one")
                assert group is not None
                incarnation, name = have.record.incarnation, group.instances[0]
                first = Groups(have, hand, runner, epoch=5)
                await first.start()
                await first.until(4, 4)
                await first.share("one")

                said = Said()
                session = session_of(have, hand, said, tmp_path / "w2")
                standby = Standby(name, "Pair", "one", 1, 1, incarnation, "w2", "w2-1", 1)
                await session.handle(to_line(HoldState(standby, group)))
                async with asyncio.timeout(20):
                    while not said.held:
                        said.changed.clear()
                        await said.changed.wait()
                (copies,) = (tmp_path / "w2" / "standby").iterdir()
                held = len(list(copies.iterdir()))

                first.instances["one"].stop()
                await first.settle()
                # Its copies are all that it has.
                session.pieces = Blind()
                assignment = Assignment(name, "Pair", "one", 1, incarnation, "w2", 6, 1)
                await session.handle(to_line(StartInstance(assignment, group)))
                # The leader has chosen another worker by now.
                await session.handle(to_line(ReleaseState(name)))
                await first.until(7, 7)
                assert hand.rows("Pair", "Totals") == totals((1, 7))
                assert held > 0
                assert not list(copies.iterdir())
                await session.handle(to_line(StopInstance(name, 6)))
                # The command only begins the stop.
                ending = asyncio.gather(*session.ending)
                while not ending.done():
                    await first.settle()
                await ending
                assert not copies.exists()
        finally:
            runner.submit(connection.close_shared).result()
