"""A slot of the shared query with a table in Redis: a server that is emptied, or away."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from mesh.model.cluster import InstanceState
from mesh.spark.shared_query.members import FAILED
from mesh.store.redis_client import connected
from tests.support import databases
from tests.support.databases import PASSWORD, new_database
from tests.support.shared_query import Hand, Instances, admitted
from tests.support.trades import end_partitions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import DatabaseServer

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

APP = """@App:name('Shop')
define stream Orders (item string, number long);
{store} @PrimaryKey('item') define table Sold (item string, number long);
@info(name='sum') @dist(execGroup='sold')
from Orders left outer join Sold on Sold.item == Orders.item
select Orders.item, coalesce(Sold.number, 0L) + Orders.number as number
update or insert into Sold on Sold.item == item;
"""


class Shop:
    """The app in a slot, and another program at its server."""

    def __init__(self, hand: Hand, server: DatabaseServer, directory: Path) -> None:
        self.hand, self.server = hand, server
        store = new_database(server, directory, "")
        self.client = connected(store.database)
        text = APP.format(store=store.store()).replace("{", "{{").replace("}", "}}")
        self.app = admitted(hand, Instances(hand, "Shop", app=text))

    def publish(self, **sold: int) -> None:
        calls = [
            ("mesh.Shop.Orders", json.dumps({"item": item, "number": number}).encode())
            for item, number in sold.items()
        ]
        broker = self.hand.broker
        broker.retry_while_unavailable("publishing", lambda: broker.requests(calls))

    def until(self, **sold: int) -> None:
        """Run rounds until the table has these rows."""
        found: Any = None
        for _ in range(60):
            keys = self.client.keys("Sold:*")
            found = {k.decode()[5:]: int(self.client.hget(k, "number")) for k in keys}
            if found == sold:
                return
            self.hand.step(1.0)
            self.app.by_group["sold"].tick(10.0**9)
        raise AssertionError(f"the table has {found}, and {self.app.statuses}")


@pytest.fixture
def shop(hand: Hand, tmp_path: Path) -> Iterator[Shop]:
    with databases.redis() as server:
        made = Shop(hand, server, tmp_path)
        yield made
        made.client.close()
        end_partitions()


def test_a_server_that_is_emptied_gets_the_rows_of_the_state(shop: Shop) -> None:
    shop.publish(tea=1, rum=2)
    shop.until(tea=1, rum=2)
    shop.client.flushall()
    shop.publish(tea=10)
    shop.until(tea=11, rum=2)


@pytest.mark.slow
def test_a_server_that_is_away_is_told_and_nothing_is_lost(shop: Shop) -> None:
    shop.publish(tea=1)
    shop.until(tea=1)
    shop.server.kill()
    shop.publish(tea=10)
    shop.hand.until(FAILED, "sold")
    status = shop.app.statuses["sold"]
    assert status.state is InstanceState.RETRYING
    assert "MESH-S140" in str(status.error)
    assert PASSWORD not in str(status.error)
    shop.publish(tea=100)
    shop.server.start()
    shop.until(tea=111)
