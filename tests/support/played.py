"""All instances of a deployed app, run by hand without Spark."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from mesh.clock import SystemClock
from mesh.jetstream.snapshots import JetStreamSnapshots
from mesh.model.app import GroupKind
from mesh.model.cluster import Assignment
from mesh.spark.instance_context import InstanceContext, InstanceOptions
from mesh.spark.instance_io import InstanceIO
from mesh.spark.shared_query.instance import SharedInstance
from pyspark_nats.protocol import connection
from tests.support.backups import mesh

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from concurrent.futures import Executor
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from mesh.model.cluster import AppRecord, InstanceStatus
    from tests.support.backups import Mesh
    from tests.support.shared_query import Hand

_PLAYED = (GroupKind.QUERIES, GroupKind.PARTITIONER)


class Played:
    """The instances of an app, played by the test."""

    def __init__(self, have: Mesh, app: str, hand: Hand, runner: Executor, epoch: int = 5) -> None:
        self.app, self.hand, self.runner = app, hand, runner
        #: What the instances have reported.
        self.statuses: list[InstanceStatus] = []
        found = have.view.snapshot().app(app)
        assert found is not None
        self.record: AppRecord = found.value
        loop = asyncio.get_running_loop()
        self.instances = {
            instance: SharedInstance(
                hand,  # type: ignore[arg-type]
                InstanceContext(
                    InstanceIO(
                        group,
                        Assignment(
                            instance, app, group.name, number, self.record.incarnation, "w",
                            epoch, 0, skips=self.record.skips,
                        ),
                    ),
                    InstanceOptions("w", hand.nats, 1000, 0.0, 0.0, 30.0, 0.0),
                    hand.directory / f"{instance}-{epoch}",
                    JetStreamSnapshots(
                        have.client.jetstream(), loop, have.pieces,
                        incarnation=self.record.incarnation, group=group.name, epoch=epoch,
                    ),
                    self.statuses.append,
                    SystemClock(),
                ),
            )
            for group in self.record.spec.groups
            if group.kind in _PLAYED
            for number, instance in enumerate(group.instances, 1)
        }  # fmt: skip

    async def start(self) -> None:
        """Start all instances."""
        for one in self.instances.values():
            one.start()
        await self.run(lambda: False, rounds=5)

    async def run(self, is_done: Callable[[], bool], rounds: int = 100) -> None:
        """Run batches until a condition holds; with the most rounds it may not."""
        await asyncio.wrap_future(self.runner.submit(self._run, is_done, rounds))

    def _run(self, is_done: Callable[[], bool], rounds: int) -> None:
        for _ in range(rounds):
            if is_done():
                return
            self.hand.step(0.1)

    async def until(self, stream: str, count: int) -> None:
        """Run batches until a stream of the app has so many events."""
        await self.run(lambda: len(self.hand.rows(self.app, stream)) >= count)

    def rows(self, stream: str) -> list[list[object]]:
        """The events of a stream of the app."""
        return self.hand.rows(self.app, stream)

    async def share(self, *groups: str) -> None:
        """Store snapshots of groups; of all without a name."""
        for name, one in self.instances.items():
            if not groups or any(name.startswith(f"{self.app}-{group}-") for group in groups):
                one.tick(SystemClock().monotonic_s())
        await asyncio.to_thread(self.hand.until_idle)

    async def stop(self) -> None:
        """Stop all instances."""
        for one in self.instances.values():
            one.stop()
        await self.run(lambda: False, rounds=5)
        for one in self.instances.values():
            await asyncio.to_thread(one.join)


@asynccontextmanager
async def playing(
    nats_server: NatsServer, directory: Path
) -> AsyncIterator[tuple[Mesh, ThreadPoolExecutor]]:
    """A manager's service, and a thread for the groups."""
    runner = ThreadPoolExecutor(1)
    try:
        async with mesh(nats_server, directory, "jetstream") as have:
            yield have, runner
    finally:
        # Tasks keep a connection for each thread that they run in.
        await asyncio.wrap_future(runner.submit(connection.close_shared))
        runner.shutdown()


async def played(have: Mesh, app: str, hand: Hand, runner: Executor) -> Played:
    """The instances of an app, started."""
    one = Played(have, app, hand, runner)
    await one.start()
    return one
