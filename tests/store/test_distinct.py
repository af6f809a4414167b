"""Distinct values of an aggregation in a database: each value of a bucket and group counts once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from mesh.functions.objects import from_binary
from mesh.model.stored import Backend
from mesh.store import writer
from mesh.store.sources import SHARD_VARIABLE
from tests.support.pages import every_passage
from tests.support.trades import TEN_MS, Node

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.databases import TestDatabase
    from tests.support.environment import Variables


STREAM = """@App:name('TradeApp')
define stream TradeStream (symbol string, price double, quantity long, timestamp long);
"""
SEEN = f"""{STREAM}
{{store}} define aggregation Seen from TradeStream
select symbol, distinctCount(price) as prices, distinctCount(quantity) as quantities,
sum(quantity) as total
group by symbol aggregate by timestamp every sec ... year;
"""
SYMBOLS = f"""{STREAM}
{{store}} @purge(interval='10 sec', @retentionPeriod(sec='120 sec', min='120 min'))
define aggregation Symbols from TradeStream
select distinctCount(symbol) as symbols aggregate every sec, min;
"""
pytestmark = pytest.mark.usefixtures("ended_partitions")

PERS = ("sec", "min", "hours", "days", "months", "years")


def node_of(directory: Path, store: TestDatabase, text: str = SEEN, name: str = "n1") -> Node:
    return Node(directory, text.replace("{store}", store.store()), name)


def counts(node: Node, per: str = "hours") -> dict[str, tuple[int, int]]:
    """By symbol the numbers of prices and quantities; all trades are of one bucket."""
    found = node.ask(
        f"from Seen within 0L, 4000000000000L per '{per}' select symbol, prices, quantities"
    )
    assert found is not None
    assert len({row[0] for row in found}) == len(found), "one bucket of each symbol"
    return {symbol: (prices, quantities) for symbol, prices, quantities in found}


def rows(store: TestDatabase, table: str) -> list[tuple[Any, ...]]:
    quote = "`" if store.database.backend is Backend.MYSQL else '"'
    return sorted(store.rows(f"select * from {quote}{table}{quote}"), key=str)


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("copied", [1, 1000], ids=["in bulk", "one by one"])
def test_what_runs_and_what_is_written_count_together(
    store: TestDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copied: int
) -> None:
    monkeypatch.setattr(writer, "COPY_ROWS", copied)
    node = node_of(tmp_path / "node", store)
    node.run(TEN_MS, ("IBM", 1.5, 10, TEN_MS), ("IBM", 2.5, 10, TEN_MS), ("a", 0.5, 1, TEN_MS))
    assert counts(node) == {"IBM": (2, 1), "a": (1, 1)}
    # Both are written; then one value comes again and one is new, in the same buckets.
    node.run(TEN_MS + 20_000)
    node.run(TEN_MS + 21_000, ("IBM", 2.5, 10, TEN_MS), ("IBM", 3.5, 20, TEN_MS))
    for per in PERS:
        assert counts(node, per) == {"IBM": (3, 2), "a": (1, 1)}, per
    node.forget()
    node.run(TEN_MS + 60_000, ("IBM", 1.5, 30, TEN_MS))
    node.run(TEN_MS + 90_000)
    for per in PERS:
        assert counts(node, per) == {"IBM": (3, 3), "a": (1, 1)}, per
    for suffix in ("SECONDS", "YEARS"):
        found = rows(store, f"Seen_{suffix}_SET_price")
        assert [row[1:] for row in found] == [
            ("IBM", 1.5, 0), ("IBM", 2.5, 0), ("IBM", 3.5, 0), ("a", 0.5, 0),
        ]  # fmt: skip
        assert len(rows(store, f"Seen_{suffix}")) == 2
    named = node.ask("from Seen_DAYS select symbol, AGG_SET_price, AGG_SUM_quantity")
    assert named is not None
    sets = from_binary(pa.array([found for _, found, _ in named]))
    values = {
        symbol: (set(found), total) for (symbol, _, total), found in zip(named, sets, strict=True)
    }
    assert values == {"IBM": ({1.5, 2.5, 3.5}, 80), "a": ({0.5}, 1)}


def test_the_statement_of_the_page_counts_them(store: TestDatabase, tmp_path: Path) -> None:
    (shown,) = (one for one in every_passage() if one.text.startswith('select "symbol", count('))
    text = f"""{STREAM}
    {{store}} define aggregation Totals from TradeStream
    select symbol, distinctCount(quantity) as quantities
    group by symbol aggregate by timestamp every sec ... year;
    """
    node = node_of(tmp_path / "node", store, text)
    (start_ms,) = re.findall(r'"AGG_TIMESTAMP" = (\d+)', shown.text)
    at_ms = int(start_ms) + 5
    node.run(at_ms, ("IBM", 1.5, 10, at_ms), ("IBM", 1.5, 20, at_ms), ("IBM", 2.5, 10, at_ms))
    node.run(at_ms + 20_000)
    statement = shown.text.replace("_trader", "_quantity").replace("AGG_T", "AGG_EVENT_T")
    quote = "`" if store.database.backend is Backend.MYSQL else '"'
    assert store.rows(statement.replace('"', quote)) == [("IBM", 2)]


def test_names_as_long_as_a_database_takes_are_not_mixed_up(
    store: TestDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "COPY_ROWS", 1)
    name = "Seen".ljust(63 - len("_SECONDS_SET_quantity"), "n")
    node = node_of(tmp_path / "node", store, SEEN.replace("Seen", name))
    node.run(TEN_MS, ("IBM", 1.5, 10, TEN_MS), ("IBM", 2.5, 10, TEN_MS))
    node.run(TEN_MS + 20_000)
    assert [row[2] for row in rows(store, f"{name}_SECONDS_SET_quantity")] == [10]
    assert [row[2] for row in rows(store, f"{name}_SECONDS_SET_price")] == [1.5, 2.5]


def test_values_that_no_key_has_count(store: TestDatabase, tmp_path: Path) -> None:
    """Nulls, numbers that a database does not have, and the lowest ones beside them."""
    # Without a sum, which wraps in the state, and is an error in a database.
    node = node_of(tmp_path / "node", store, SEEN.replace("sum(quantity)", "count()"))
    prices: list[Any] = [
        None, float("nan"), float("inf"), float("-inf"), 0.0, -0.0, -1.7976931348623157e308, 0.5,
    ]  # fmt: skip
    quantities: list[Any] = [None, -(2**63), 2**63 - 1, 0, 0, 0, None, -(2**63)]
    given: list[Any] = [
        ("x", price, quantity, TEN_MS) for price, quantity in zip(prices, quantities, strict=True)
    ]
    expected = {"x": (len(prices), 4)}
    for second in range(3):
        node.run(TEN_MS + 20_000 * second, *given)
        assert counts(node) == expected, second
    node.run(TEN_MS + 100_000)
    assert counts(node) == expected
    assert len(rows(store, "Seen_HOURS_SET_price")) == len(prices)
    assert len(rows(store, "Seen_HOURS_SET_quantity")) == 4


def test_a_null_and_the_text_null_are_two_values(store: TestDatabase, tmp_path: Path) -> None:
    node = node_of(tmp_path / "node", store, SYMBOLS)
    symbols: list[Any] = ["null", None, "", "größe", "Größe", "a", "a "]
    count = len(symbols)
    for second in range(3):
        at = TEN_MS + 60_000 * second
        node.run(at, *((symbol, 1.0, 1, at) for symbol in symbols))
    node.run(at + 20_000)
    found = node.ask("from Symbols within 0L, 4000000000000L per 'min' select symbols")
    assert found == [[count]] * 3
    assert len(rows(store, "Symbols_MINUTES_SET_symbol")) == 3 * count


def test_values_are_purged_with_their_buckets(store: TestDatabase, tmp_path: Path) -> None:
    node = node_of(tmp_path / "node", store, SYMBOLS)
    node.run(TEN_MS, ("a", 1.0, 1, TEN_MS), ("b", 1.0, 1, TEN_MS))
    node.run(TEN_MS + 20_000)
    assert len(rows(store, "Symbols_SECONDS_SET_symbol")) == 2
    at = TEN_MS + 200_000
    node.run(at, ("a", 1.0, 1, at))
    node.run(at + 20_000)
    for table in ("Symbols_SECONDS", "Symbols_SECONDS_SET_symbol"):
        (kept,) = rows(store, table)
        assert kept[0] == at, table
    assert len(rows(store, "Symbols_MINUTES_SET_symbol")) == 3


def test_values_of_two_meshes_count_once(
    store: TestDatabase, tmp_path: Path, environment: Variables
) -> None:
    text = SEEN.replace("{store}", "{store} @PartitionById")
    nodes = [node_of(tmp_path / name, store, text, name) for name in ("n1", "n2")]

    def run(number: int, now_ms: int, *trades: Any) -> None:
        environment[SHARD_VARIABLE] = nodes[number].name
        nodes[number].run(now_ms, *trades)

    at = TEN_MS + 60_000
    run(0, at, ("IBM", 1.0, 10, at), ("IBM", 2.0, 10, at))
    run(1, at, ("IBM", 2.0, 10, at), ("IBM", 3.0, 30, at), ("WSO2", 1.0, 5, at))
    # Each mesh has its own share until the other has written.
    assert counts(nodes[0]) == {"IBM": (2, 1)}
    for number in (0, 1):
        run(number, at + 20_000)
    for number in (0, 1):
        environment[SHARD_VARIABLE] = nodes[number].name
        for per in PERS:
            assert counts(nodes[number], per) == {"IBM": (3, 2), "WSO2": (1, 1)}, per
    # Running values of this mesh are merged with written ones of the other.
    run(0, at + 21_000, ("IBM", 3.0, 40, at))
    assert counts(nodes[0]) == {"IBM": (3, 3), "WSO2": (1, 1)}
    values = {(row[1], row[3]) for row in rows(store, "Seen_HOURS_SET_price") if row[2] == "IBM"}
    assert values == {("n1", 1.0), ("n1", 2.0), ("n2", 2.0), ("n2", 3.0)}
