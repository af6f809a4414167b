"""Two meshes over one database: 30 on one and 40 on the other are 70, on both and at every time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.model.stored import Backend
from mesh.store.sources import SHARD_VARIABLE
from tests.support.trades import APP, TEN_MS, Node, as_the_seed_has_it

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.databases import TestDatabase
    from tests.support.environment import Variables

pytestmark = pytest.mark.usefixtures("ended_partitions")

DURATIONS = ("sec", "min", "hours", "days", "months", "years")


class Meshes:
    """Two nodes with names of their own."""

    def __init__(self, directory: Path, store: TestDatabase, environment: Variables) -> None:
        text = APP.format(store=as_the_seed_has_it(store) + " @PartitionById")
        self.nodes = [Node(directory / name, text, name) for name in ("n1", "n2")]
        self._environment = environment

    def __getitem__(self, number: int) -> Node:
        self._environment[SHARD_VARIABLE] = self.nodes[number].name
        return self.nodes[number]


def test_thirty_and_forty_are_seventy(
    store: TestDatabase, tmp_path: Path, environment: Variables
) -> None:
    meshes = Meshes(tmp_path, store, environment)
    at = TEN_MS + 60_000
    meshes[0].run(at, ("IBM", 100.0, 10, at), ("IBM", 200.0, 20, at + 1_800_000))
    assert meshes[0].total() == [["IBM", 30]]
    meshes[1].run(at + 500, ("IBM", 300.0, 10, at), ("WSO2", 1.0, 5, at), ("IBM", 400.0, 30, at))
    # The other's are seen when it has written them.
    assert meshes[1].total() == [["IBM", 40], ["WSO2", 5]]
    for number in (0, 1):
        meshes[number].run(at + 11_000)
    for number in (0, 1):
        for per in DURATIONS:
            found = meshes[number].ask(
                f"from TradeAggregation within 0L, {2 * TEN_MS}L per '{per}' "
                "select symbol, sum(total) as total group by symbol order by symbol"
            )
            assert found == [["IBM", 70], ["WSO2", 5]], per
        averages = meshes[number].ask(
            "from TradeAggregation on symbol == 'IBM' within 0L, 4000000000000L per 'hours' "
            "select avgPrice"
        )
        assert averages == [[250.0]]
        # The tables by name have the rows of both.
        for table in ("HOURS", "YEARS"):
            found = meshes[number].ask(
                f"from TradeAggregation_{table} select symbol, AGG_SUM_quantity order by symbol"
            )
            assert found == [["IBM", 70], ["WSO2", 5]], table
    quote = "`" if store.database.backend is Backend.MYSQL else '"'
    text = "select distinct 'SHARD_ID' from 'TradeAggregation_HOURS' order by 1"
    assert store.rows(text.replace("'", quote)) == [("n1",), ("n2",)]


def test_a_node_that_ends_in_the_middle_of_a_minute_is_never_missing(
    store: TestDatabase, tmp_path: Path, environment: Variables
) -> None:
    meshes = Meshes(tmp_path, store, environment)
    at = TEN_MS + 60_000
    meshes[0].run(at, ("IBM", 100.0, 10, at), ("IBM", 200.0, 20, at))
    meshes[1].run(at, ("IBM", 300.0, 10, at), ("IBM", 400.0, 30, at))
    for number in (0, 1):
        meshes[number].run(at + 10_000)
    # Node 1 ends; minutes and the retention of seconds pass, and the other writes on.
    meshes[0].forget()
    for minute in (1, 2, 5, 20, 39):
        meshes[1].run(at + minute * 60_000, ("WSO2", 1.0, 1, at + minute * 60_000))
        assert meshes[1].total()[0] == ["IBM", 70]
    # It comes back, with what it had stored.
    meshes[0].run(at + 2_400_000)
    assert meshes[0].total()[0] == ["IBM", 70]
