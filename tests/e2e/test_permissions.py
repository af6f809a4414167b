"""A whole mesh in the accounts of ``mesh nats-config``: managers, workers and their sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import nats
import orjson
import pytest

from mesh.clock import SystemClock
from mesh.jetstream.connection import close, connect
from mesh.jetstream.watch import ClusterView
from mesh.operators import precompile
from tests.support.permissions import PASSWORDS, write_accounts
from tools.cluster import MeshCluster, Outside

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

#: A group without state, and one with state.
SHOP = """@App:name('Shop') define stream Orders (item string, price double);
@dist(execGroup='dear') from Orders[price > 100.0] select item, price insert into Few;
@dist(execGroup='count') from Few#window.length(5)
select item, count() as price group by item insert into DearOrders;"""


@pytest.mark.extended
async def test_a_mesh_runs_in_accounts_of_least_privilege(tmp_path: Path) -> None:
    # A worker would do so before it is ready, for which the test doesn't wait so long.
    precompile.compile_once()
    arguments = write_accounts(tmp_path / "accounts.conf")
    cluster = MeshCluster(tmp_path, workers=1, arguments=arguments, passwords=PASSWORDS)

    try:
        client = await connect(cluster.settings("manager"), "test")
        view = ClusterView(client, SystemClock())
        await view.start()
        outside = Outside(cluster, client, view)
        await outside.until_ready("w1")
        await outside.service.deploy(SHOP)
        await outside.until_running("Shop")
        till = await nats.connect(cluster.nats.url, user="till", password=PASSWORDS["till"])
        board = await nats.connect(cluster.nats.url, user="board", password=PASSWORDS["board"])
        seen = await board.subscribe("mesh.Shop.DearOrders")
        await board.flush()
        for price in (120.0, 5.0, 130.0):
            event = orjson.dumps({"item": "lamp", "price": price})
            await till.jetstream().publish("mesh.Shop.Orders", event)
        # A subscription of another account may miss the first one.
        while orjson.loads((await seen.next_msg(60)).data)["price"] != 2:
            pass
        await outside.service.backups.make("Shop")
        await outside.service.undeploy("Shop")
        await outside.until("removed", lambda: outside.service.record("Shop") is None)
        for one in (till, board):
            await one.close()
        await view.stop()
        await close(client)
    finally:
        cluster.stop()
    violations = [line for line in cluster.nats.log.read_text().splitlines() if "Violation" in line]
    assert violations == []
