"""A restore as events see it: groups in a row, with snapshots of different moments."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from mesh.clock import SystemClock
from mesh.jetstream.snapshots import JetStreamSnapshots
from mesh.model.cluster import Assignment
from mesh.spark.carried import CarriedInstance
from mesh.spark.given import Given, InstanceOptions
from mesh.spark.wiring import Wiring
from pyspark_nats.protocol.connection import close_shared
from tests.test_backups import Mesh, mesh
from tests.test_carrier import hand  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from tests.test_carrier import Hand

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

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
    """The instances of what is deployed, in a hand."""

    def __init__(self, have: Mesh, by: Hand, runner: Executor, epoch: int) -> None:
        self.have = have
        self.runner = runner
        self.hand = by
        record = have.record
        loop = asyncio.get_running_loop()
        self.instances = {
            group.name: CarriedInstance(
                by,  # type: ignore[arg-type]
                Given(
                    Wiring(
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
            self.instances[group].look(SystemClock().monotonic_s())
        await asyncio.to_thread(self.hand.pool.submit(int).result)

    async def stop(self) -> None:
        for one in self.instances.values():
            one.stop()
        await self.settle()
        for one in self.instances.values():
            await asyncio.to_thread(one.join)


def test_after_a_restore_each_group_reads_what_it_has_not_and_puts_out_what_is_not_out(
    hand: Hand,  # noqa: F811 - the fixture
    nats_server: NatsServer,
    tmp_path: Path,
) -> None:
    async def scene(runner: Executor) -> None:
        async with mesh(nats_server, tmp_path, "jetstream") as have:
            await have.service.deploy(TEXT)
            first = Groups(have, hand, runner, epoch=5)
            await first.start()
            await first.until(3, 3)
            await first.share("one", "three")
            await first.until(5, 5)
            await first.share("two")
            await first.until(6, 6)
            # One is at 3, two at 5, three at 3, and the channels at 6.
            made = await have.service.backups.make("Pair")
            assert made.snapshots == 3
            await first.until(9, 9)
            await first.stop()
            assert hand.rows("Pair", "Totals") == totals((1, 9))

            done = await have.service.backups.restore("Pair")
            # Numbers 4 to 9, Middle 6, Sums 4 to 6; and markers beside them.
            assert done.behind >= 6 + 1 + 3
            second = Groups(have, hand, runner, epoch=6)
            second.published = 9
            await second.start()
            await second.until(0, 12)
            assert hand.rows("Pair", "Totals") == totals((1, 9), (7, 9))
            await second.until(11, 14)
            assert hand.rows("Pair", "Totals") == totals((1, 9), (7, 11))

            # Once more, from the same: what the second one has put out counts for nothing as well.
            await second.stop()
            await have.service.backups.restore("Pair")
            third = Groups(have, hand, runner, epoch=7)
            third.published = 11
            await third.start()
            await third.until(0, 19)
            await third.until(12, 20)
            assert hand.rows("Pair", "Totals") == totals((1, 9), (7, 11), (7, 12))
            await third.stop()

    # Tasks keep a connection for each thread that they run in.
    with ThreadPoolExecutor(1) as runner:
        try:
            asyncio.run(scene(runner))
        finally:
            runner.submit(close_shared).result()
