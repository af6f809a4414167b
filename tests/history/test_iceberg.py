"""Iceberg tables of past events: real ones, of a catalog in SQLite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyiceberg.catalog
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.utils.config import Config

from mesh.errors import MeshError
from mesh.history.iceberg import HistoryIceberg
from mesh.history.process import table_reader
from mesh.model.history import HistoryInput
from mesh.plan.history_addresses import check_catalog, iceberg_of

if TYPE_CHECKING:
    from pathlib import Path

KINDS: dict[str, Any] = {"item": pa.string(), "count": pa.int32()}
SCHEMA = pa.schema(KINDS)
MICROS: pa.DataType = pa.timestamp("us")
STORED = pa.schema({**KINDS, "at": MICROS, "more": pa.float64()})
DAY_MS = 86_400_000


def catalog(root: Path) -> SqlCatalog:
    where = {"uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}/lake"}
    found = SqlCatalog("lake", **where)
    found.create_namespace_if_not_exists("shop")
    return found


def orders(root: Path, *pieces: list[int], at: pa.DataType = MICROS) -> Any:
    """A table with a file for each piece: numbers of days, of which an item is named."""
    schema = STORED.set(2, pa.field("at", at))
    table = catalog(root).create_table("shop.orders", schema=schema)
    for number, days in enumerate(pieces):
        times: Any = pa.array([day * DAY_MS for day in days])
        times = times.cast(pa.timestamp("ms")).cast(at) if pa.types.is_timestamp(at) else times
        columns: list[Any] = [
            pa.array([f"d{day}-{number}" for day in days]), pa.array(days, pa.int32()), times,
            pa.array([0.5] * len(days)),
        ]  # fmt: skip
        table.append(pa.Table.from_arrays(columns, schema=schema))
    return table


def path_of(table: Any) -> str:
    return str(table.metadata_location).removeprefix("file://")


def items(root: Path, path: str, skipped: int = 0) -> list[tuple[str, int]]:
    reader = table_reader(str(root), HistoryInput("Orders", path, "at"), SCHEMA)
    return [
        (row["item"], at // DAY_MS)
        for one in reader.batches(skipped)
        for row, at in zip(one.rows.to_pylist(), one.time_ms.tolist(), strict=True)
    ]


def test_rows_are_read_in_the_order_of_their_times(tmp_path: Path) -> None:
    # Files in another order than their times; two of them overlap.
    table = orders(tmp_path, [9, 8], [3, 1], [2, 4])
    found = items(tmp_path, path_of(table))
    assert found == [("d1-1", 1), ("d2-2", 2), ("d3-1", 3), ("d4-2", 4), ("d8-0", 8), ("d9-0", 9)]
    for skipped in range(7):
        assert items(tmp_path, path_of(table), skipped) == found[skipped:]


def test_rows_of_a_later_snapshot_are_none_of_it_and_deleted_ones_neither(tmp_path: Path) -> None:
    table = orders(tmp_path, [1, 2], [3], at=pa.int64())
    before = path_of(table)
    reader = HistoryIceberg(iceberg_of(str(tmp_path), before), SCHEMA, "at")
    assert reader.count() == 3
    table.delete("count = 2")
    after = HistoryIceberg(iceberg_of(str(tmp_path), path_of(table)), SCHEMA, "at")
    assert after.contents() != reader.contents()
    assert [day for _, day in items(tmp_path, before)] == [1, 2, 3]
    assert [day for _, day in items(tmp_path, path_of(table))] == [1, 3]


def test_a_table_is_found_by_its_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders(tmp_path, [1])
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/catalog.db")
    # Its configuration is read once.
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())
    assert items(tmp_path, "iceberg:lake#shop.orders") == [("d1-0", 1)]
    place = iceberg_of("", "iceberg:lake#shop.orders")
    check_catalog(place, ["lake"])
    with pytest.raises(MeshError, match="from Iceberg catalog lake"):
        check_catalog(place, [])


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("iceberg:lake", "names no table"),
        ("../x.metadata.json", "there is no"),
        ("gone.metadata.json", "there is no"),
        ("broken.metadata.json", "can't be opened"),
        ("iceberg:unknown#shop.orders", "can't be opened"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, path: str, why: str) -> None:
    (tmp_path / "broken.metadata.json").write_text("{}")
    with pytest.raises(MeshError, match=why) as refused:
        items(tmp_path, path)
    assert refused.value.code == "MESH-C161"


def test_files_outside_of_the_directory_are_not_read(tmp_path: Path) -> None:
    table = orders(tmp_path, [1])
    inside = tmp_path / "inside"
    inside.mkdir()
    metadata = inside / "1.metadata.json"
    metadata.write_text(table.io.new_input(table.metadata_location).open().read().decode())
    with pytest.raises(MeshError, match=r"files outside of manager\.history_dir"):
        items(inside, str(metadata))


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    table = orders(tmp_path, [1])
    reader = HistoryIceberg(iceberg_of(str(tmp_path), path_of(table)), SCHEMA, "when")
    with pytest.raises(MeshError, match='no column "when"'):
        list(reader.batches())
