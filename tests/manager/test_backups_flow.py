"""A restore as events see it: groups in a row, with snapshots of different moments."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from pyspark_nats.protocol import connection
from tests.support.backup_groups import TEXT, Groups, totals
from tests.support.backups import mesh

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from tests.support.shared_query import Hand

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]


@pytest.mark.slow
async def test_after_a_restore_each_group_reads_what_it_has_not_and_puts_out_what_is_not_out(
    hand: Hand,
    nats_server: NatsServer,
    tmp_path: Path,
) -> None:
    # Tasks keep a connection for each thread that they run in.
    with ThreadPoolExecutor(1) as runner:
        try:
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

                # Once more, from the same backup: the output of the second app is void as well.
                await second.stop()
                await have.service.backups.restore("Pair")
                third = Groups(have, hand, runner, epoch=7)
                third.published = 11
                await third.start()
                await third.until(0, 19)
                await third.until(12, 20)
                assert hand.rows("Pair", "Totals") == totals((1, 9), (7, 11), (7, 12))
                await third.stop()
        finally:
            runner.submit(connection.close_shared).result()
