"""Past events in tables: their order, times and types in each kind of database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from mesh.errors import MeshError
from mesh.history.process import table_reader
from mesh.history.tables import HistoryTable
from mesh.model.history import HistoryInput
from mesh.plan.history_addresses import TablePlace, check_address, is_table, table_of
from mesh.settings import Settings, StoreSettings
from mesh.store import sources
from mesh.store.engine import engine_of

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.model.stored import Database
    from tests.support.databases import TestDatabase
    from tests.support.environment import Variables


KINDS: dict[str, Any] = {"item": pa.string(), "price": pa.float64(), "sold": pa.bool_()}
SCHEMA = pa.schema(KINDS)


def fill(database: Database) -> None:
    """Orders in another order than that of their times; two of one time."""
    orders = sa.Table(
        "orders",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("item", sa.String(20)),
        sa.Column("price", sa.Numeric(8, 2)),
        sa.Column("sold", sa.Boolean),
        sa.Column("at", sa.DateTime),
        sa.Column("at_ms", sa.BigInteger),
    )
    with engine_of(database).begin() as connection:
        orders.create(connection)
        for number, item, price, second in ((3, "c", 1.5, 7), (2, "b", None, 7), (1, "z", 2, 9)):
            connection.execute(
                sa.insert(orders).values(
                    id=number, item=item, price=price, sold=number > 1,
                    at=datetime.fromtimestamp(second, UTC).replace(tzinfo=None),
                    at_ms=1000 * second,
                )
            )  # fmt: skip


@pytest.mark.parametrize("time", ["at", "at_ms"])
def test_a_table_is_read_in_the_order_of_times_and_keys(store: TestDatabase, time: str) -> None:
    database = store.database
    fill(database)
    table = HistoryTable(TablePlace(database, "", "orders"), SCHEMA, time)
    assert table.count() == 3
    rows = [
        (*row.values(), at)
        for one in table.batches()
        for row, at in zip(one.rows.to_pylist(), one.time_ms.tolist(), strict=True)
    ]
    assert rows == [
        ("b", None, True, 7000), ("c", 1.5, True, 7000), ("z", 2.0, False, 9000),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("table", "time", "why"),
    [
        ("gone", "at", "there is no table gone"),
        ("orders", "then", 'no column "then"'),
        ("orders", "item", "has no times"),
    ],
)
def test_a_table_without_events_is_refused(
    store: TestDatabase, table: str, time: str, why: str
) -> None:
    database = store.database
    fill(database)
    with pytest.raises(MeshError, match="MESH-C161") as refused:
        list(HistoryTable(TablePlace(database, "", table), SCHEMA, time).batches())
    assert why in refused.value.message
    assert database.password not in str(refused.value) or not database.password


def test_a_database_may_have_a_name_of_the_settings(tmp_path: Path, environment: Variables) -> None:
    (tmp_path / "sources.yaml").write_text(f"shop: {{url: 'jdbc:sqlite:{tmp_path}/shop.db'}}\n")
    settings = Settings(stores=StoreSettings(sources_file=str(tmp_path / "sources.yaml")))
    environment.update(sources.variables(settings))
    with sa.create_engine(f"sqlite:///{tmp_path}/shop.db").begin() as connection:
        connection.execute(sa.text("create table orders (item text, price real, sold int, at int)"))
        connection.execute(sa.text("insert into orders values ('a', 1, 1, 5)"))
    reader = table_reader("", HistoryInput("Orders", "datasource:shop#orders", "at"), SCHEMA)
    assert [one.rows.to_pylist() for one in reader.batches()] == [
        [{"item": "a", "price": 1.0, "sold": True}]
    ]


def test_addresses_are_those_of_the_setting() -> None:
    assert [is_table(one) for one in ("orders/2025", "s3://b/a#t", "jdbc:mysql://h/n#t")] == [
        False, False, True,
    ]  # fmt: skip
    place = table_of("", "postgresql://ann@db.example/shop#public.orders")
    assert (str(place), place.table) == (
        "table public.orders of postgresql://db.example/shop", "public.orders",
    )  # fmt: skip
    check_address(place, ["*.example:5432"])
    with pytest.raises(MeshError, match="MESH-C161"):
        check_address(place, ["db.example:5433", "other:1-65535"])
