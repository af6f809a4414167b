"""The groups of an app with backups, run by hand without Spark."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mesh.clock import SystemClock
from mesh.jetstream.snapshots import JetStreamSnapshots
from mesh.model.cluster import Assignment
from mesh.spark.instance_context import InstanceContext, InstanceOptions
from mesh.spark.instance_io import InstanceIO
from mesh.spark.shared_query.instance import SharedInstance

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tests.support.backups import Mesh
    from tests.support.shared_query import Hand


#: The last group keeps no state.
TEXT = """@App:name('Pair')
define stream Numbers (n long);
@dist(execGroup='one') from Numbers#window.length(100) select n, count() as seen insert into Middle;
@dist(execGroup='two') from Middle select n, seen, sum(n) as total insert into Sums;
@dist(execGroup='three') from Sums[n > 0] select n, seen, total insert into Totals;
"""


def totals(*spans: tuple[int, int]) -> list[list[int]]:
    return [[n, n, n * (n + 1) // 2] for first, last in spans for n in range(first, last + 1)]


class Groups:
    """The instances of the deployed groups, played by the test."""

    def __init__(self, have: Mesh, by: Hand, runner: Executor, epoch: int) -> None:
        self.have = have
        self.runner = runner
        self.hand = by
        record = have.record
        loop = asyncio.get_running_loop()
        self.instances = {
            group.name: SharedInstance(
                by,  # type: ignore[arg-type]
                InstanceContext(
                    InstanceIO(
                        group,
                        Assignment(
                            group.instances[0], "Pair", group.name, 1, record.incarnation, "w",
                            epoch, 0, skips=record.skips,
                        ),
                    ),
                    InstanceOptions("w", by.nats, 1000, 0.0, 0.0, 30.0, 0.0),
                    by.directory / f"{group.name}-{epoch}",
                    JetStreamSnapshots(
                        have.client.jetstream(), loop, have.pieces,
                        incarnation=record.incarnation, group=group.name, epoch=epoch,
                    ),
                    lambda status: None,
                    SystemClock(),
                ),
            )
            for group in record.spec.groups
        }  # fmt: skip

    async def until(self, last: int, rows: int) -> None:
        """Publish up to ``last``, and run batches until so many rows are out."""
        await asyncio.wrap_future(self.runner.submit(self._until, last, rows))

    def _until(self, last: int, rows: int) -> None:
        if last:
            self.hand.publish("Pair", *range(self.published + 1, last + 1))
            self.published = last
        for _ in range(60):
            self.hand.step(0.2)
            if len(self.hand.rows("Pair", "Totals")) >= rows:
                return
        raise AssertionError(self.hand.rows("Pair", "Totals"))

    published = 0

    async def start(self) -> None:
        for one in self.instances.values():
            one.start()
        await self.settle()

    async def settle(self) -> None:
        """Run a few batches."""
        await asyncio.wrap_future(self.runner.submit(self._settle))

    def _settle(self) -> None:
        for _ in range(5):
            self.hand.step(0.1)

    async def share(self, *groups: str) -> None:
        for group in groups:
            self.instances[group].tick(SystemClock().monotonic_s())
        await asyncio.to_thread(self.hand.until_idle)

    async def stop(self) -> None:
        for one in self.instances.values():
            one.stop()
        await self.settle()
        for one in self.instances.values():
            await asyncio.to_thread(one.join)
