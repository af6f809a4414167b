"""A slot of the shared query with an aggregation in a store, a real broker and a real database."""

from __future__ import annotations

import itertools
import json
import time
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from mesh.model.cluster import InstanceState
from mesh.spark.shared_query.members import FAILED
from mesh.store.engine import engine_of
from tests.support.databases import PASSWORD, DatabaseServer, TestDatabase, new_database
from tests.support.shared_query import Hand, Instances, admitted
from tests.support.trades import APP, TEN_MS, end_partitions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

NAME = "TradeApp"
_numbers = itertools.count(1)
GROUP = "aggregation-TradeAggregation"
TABLE = '"TradeAggregation_SECONDS"'


class Trades:
    """The app in a slot; its group is the only one."""

    def __init__(self, hand: Hand, store: TestDatabase) -> None:
        self.hand, self.store = hand, store
        text = APP.format(store=store.store()).replace("{", "{{").replace("}", "}}")
        self.app = admitted(hand, Instances(hand, NAME, app=text))

    def publish(self, *quantities: int) -> None:
        calls = [
            (
                f"mesh.{NAME}.TradeStream",
                json.dumps(
                    {"symbol": "IBM", "price": 1.0, "quantity": n, "timestamp": TEN_MS}
                ).encode(),
            )
            for n in quantities
        ]
        broker = self.hand.broker
        broker.retry_while_unavailable("publishing", lambda: broker.requests(calls))

    def until_total(self, total: int) -> None:
        """Run rounds until the table of seconds has this sum."""
        found: Any = None
        for _ in range(60):
            # The table is made with the first rows.
            if self.store.rows("select 1 from pg_tables where tablename like 'Trade%'"):
                found = self.store.rows(f'select sum("AGG_SUM_quantity") from {TABLE}')
            if found and found[0][0] is not None and int(found[0][0]) == total:
                return
            self.hand.step(1.0)
        raise AssertionError(f"the table has {found}, and {self.app.statuses}")


@pytest.fixture
def trades(hand: Hand, postgresql: DatabaseServer, tmp_path: Path) -> Iterator[Trades]:
    yield Trades(hand, new_database(postgresql, tmp_path, f"slots{next(_numbers)}"))
    end_partitions()


@pytest.mark.slow
def test_a_timer_writes_the_rows_of_a_second_that_is_over(trades: Trades) -> None:
    trades.publish(10, 20)
    # No event comes.
    trades.until_total(30)
    ((position,),) = trades.store.rows("select position from mesh_marker")
    assert position > 0


@pytest.mark.slow
def test_a_marker_ahead_of_its_input_is_data_loss(trades: Trades) -> None:
    trades.publish(10)
    trades.until_total(10)
    with engine_of(trades.store.database).begin() as connection:
        connection.execute(sa.text("update mesh_marker set position = 9000000000000000"))
    found: set[str] = set()
    deadline_s = time.monotonic() + 20
    while not any("MESH-S148" in error for error in found) and time.monotonic() < deadline_s:
        trades.publish(20)
        trades.hand.step(0.2)
        trades.hand.step(0.2)
        trades.app.by_group[GROUP].tick(10.0**9)
        found.add(str(trades.app.statuses[GROUP].error))
    assert any("DATA-LOSS" in error for error in found), found


@pytest.mark.slow
def test_a_database_that_is_away_is_told_and_nothing_is_lost(
    trades: Trades, postgresql: DatabaseServer
) -> None:
    trades.publish(10)
    trades.until_total(10)
    postgresql.kill()
    trades.publish(20)
    trades.hand.until(FAILED, GROUP.split("-")[0])
    status = trades.app.statuses[GROUP]
    assert status.state is InstanceState.RETRYING
    assert "MESH-S140" in str(status.error)
    assert PASSWORD not in str(status.error)
    trades.publish(30)
    postgresql.start()
    trades.app.by_group[GROUP].tick(10.0**9)
    trades.until_total(60)
