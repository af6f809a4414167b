"""The marker transaction on real databases: rows are merged once, whatever is repeated."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from mesh.errors import MeshError
from mesh.model.stored import (
    Backend,
    MergeRule,
    StoredColumn,
    StoredTable,
    purge_channel,
    purge_schema,
    rows_channel,
)
from mesh.model.types import AttributeType
from mesh.store.reader import BehindError, read_rows
from mesh.store.writer import StoredRows, StoreWriter
from tests.support.databases import PASSWORD

if TYPE_CHECKING:
    from tests.support.databases import TestDatabase

T = AttributeType
TABLE = StoredTable(
    "A_SECONDS",
    (
        StoredColumn("AGG_TIMESTAMP", T.LONG, MergeRule.KEY),
        StoredColumn("AGG_EVENT_TIMESTAMP", T.LONG, MergeRule.KEY),
        StoredColumn("symbol", T.STRING, MergeRule.KEY, 20),
        StoredColumn("user", T.INT, MergeRule.KEY),
        StoredColumn("is_open", T.BOOL, MergeRule.KEY),
        StoredColumn("note", T.STRING, MergeRule.LATEST, 20),
        StoredColumn("flag", T.BOOL, MergeRule.LATEST),
        StoredColumn("AGG_LAST_EVENT_TIMESTAMP", T.LONG, MergeRule.LAST),
        StoredColumn("AGG_SUM_x", T.DOUBLE, MergeRule.SUM),
        StoredColumn("AGG_COUNT", T.LONG, MergeRule.SUM),
        StoredColumn("AGG_MIN_f", T.FLOAT, MergeRule.MIN),
        StoredColumn("AGG_MAX_k", T.INT, MergeRule.MAX),
    ),
    "AGG_EVENT_TIMESTAMP",
    (("symbol", "user"),),
)
Row = tuple[Any, ...]


def rows_of(*rows: Row) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True))
    arrays = [
        pa.array(list(values), column.type.arrow)
        for values, column in zip(columns, TABLE.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=TABLE.arrow)


def row(bucket: int, symbol: str | None, last: int, **given: Any) -> Row:
    base = {"user": 1, "is_open": True, "note": "n", "flag": None, "x": 1.5, "n": 1, "f": 0.1}
    one = {**base, "k": 7, **given}
    return (
        bucket, bucket, symbol, one["user"], one["is_open"], one["note"], one["flag"], last,
        one["x"], one["n"], one["f"], one["k"],
    )  # fmt: skip


def batch(first: int, *rows: Row) -> StoredRows:
    position = np.arange(first, first + len(rows), dtype=np.int64)
    return StoredRows(rows_channel(TABLE.name), position, rows_of(*rows))


def writer_of(store: TestDatabase, epoch: int = 1, producer: str = "p") -> StoreWriter:
    return StoreWriter(store.database, producer, epoch, [TABLE])


def found(store: TestDatabase, position: int = 10**9) -> list[Row]:
    (rows,) = read_rows(store.database, [TABLE], (-(10**9), 10**9), "p", position)
    listed: list[Row] = [tuple(one.values()) for one in rows.to_pylist()]
    return sorted(listed, key=str)


FEW = (
    row(1000, "b", 1, note="old", x=None, f=None),
    row(1000, "a", 5, flag=True, user=None),
    row(1000, "b", 3, note=None, k=9, n=2),
    row(2000, None, 2, is_open=None, f=2.5, x=-0.25),
)
MERGED = sorted(
    [
        row(1000, "a", 5, flag=True, user=None, f=np.float32(0.1).item()),
        row(1000, "b", 3, note=None, k=9, n=3, f=np.float32(0.1).item()),
        row(2000, "null", 2, is_open=None, f=2.5, x=-0.25),
    ],
    key=str,
)


@pytest.mark.parametrize("copy_rows", [1, 1000], ids=["bulk", "few"])
def test_rows_are_merged_by_key_once(store: TestDatabase, copy_rows: int) -> None:
    one = writer_of(store)
    one.copy_rows = copy_rows
    one.commit([batch(1, *FEW)])
    assert found(store) == MERGED
    # A replay, cut otherwise, writes what is new only.
    later = row(1000, "a", 4, note="earlier", k=3, f=-1.0, user=None)
    one.commit([batch(3, *FEW[2:], later)])
    one.close()
    (a, *_) = found(store)
    assert a == row(1000, "a", 5, flag=True, user=None, x=3.0, n=2, f=-1.0, k=7, note="n")
    again = writer_of(store)
    again.copy_rows = copy_rows
    again.commit([batch(1, *FEW, later)])
    assert again.position == 5
    assert found(store)[0] == a
    again.close()


@pytest.mark.parametrize("copy_rows", [1, 1000], ids=["bulk", "few"])
def test_rows_of_keys_alone_are_written_once(store: TestDatabase, copy_rows: int) -> None:
    table = StoredTable("Keys", (StoredColumn("k", AttributeType.STRING, MergeRule.KEY),))
    rows = pa.RecordBatch.from_pydict({"k": ["a", "b", "a"]}, table.arrow)
    one = StoreWriter(store.database, "keys", 1, [table])
    one.copy_rows = copy_rows
    try:
        one.commit([StoredRows(rows_channel("Keys"), np.arange(1, 4), rows)])
        one.commit([StoredRows(rows_channel("Keys"), np.arange(4, 7), rows)])
        assert one.rows(table).num_rows == 2
        assert set(one.rows(table).column("k").to_pylist()) == {"a", "b"}
    finally:
        one.close()


@pytest.mark.parametrize("copy_rows", [1, 1000], ids=["bulk", "few"])
def test_zeros_of_both_signs_and_each_nan_are_one_key(store: TestDatabase, copy_rows: int) -> None:
    columns = (
        StoredColumn("k", AttributeType.DOUBLE, MergeRule.KEY),
        StoredColumn("n", AttributeType.LONG, MergeRule.SUM),
    )
    table = StoredTable("Signs", columns)
    nans = np.array([0x7FF8000000000000, 0x7FF8000000000001], np.uint64).view(np.float64)
    is_postgresql = store.database.backend is Backend.POSTGRESQL
    keys = [0.0, -0.0, *(nans.tolist() if is_postgresql else [1.5, 1.5])]
    rows = pa.RecordBatch.from_pydict({"k": keys, "n": [1, 2, 3, 4]}, table.arrow)
    one = StoreWriter(store.database, "signs", 1, [table])
    one.copy_rows = copy_rows
    try:
        one.commit([StoredRows(rows_channel("Signs"), np.arange(1, 5), rows)])
        one.commit([StoredRows(rows_channel("Signs"), np.arange(5, 9), rows)])
        found = one.rows(table).to_pydict()
        assert sorted(zip(map(str, found["k"]), found["n"], strict=True)) == [
            ("0.0", 6), ("nan" if is_postgresql else "1.5", 14),
        ]  # fmt: skip
    finally:
        one.close()


def test_text_keeps_its_case_and_its_letters(store: TestDatabase) -> None:
    one = writer_of(store)
    texts = ["X", "größe'\"%s:n 😀", "x", "x ", " x", "", " "]
    one.commit([batch(1, *(row(0, text, 1) for text in texts))])
    assert sorted(r[2] for r in found(store)) == sorted(texts)
    one.close()


def test_an_older_epoch_writes_nothing(store: TestDatabase) -> None:
    old = writer_of(store, 1)
    old.commit([batch(1, FEW[0])])
    new = writer_of(store, 2)
    new.open()
    with pytest.raises(MeshError, match="MESH-S141"):
        old.commit([batch(2, FEW[1])])
    with pytest.raises(MeshError, match="MESH-S141"):
        old.open()
    assert len(found(store)) == 1
    new.commit([batch(2, FEW[1])])
    assert len(found(store)) == 2
    new.close()


def test_two_writers_of_one_epoch_write_each_row_once(store: TestDatabase) -> None:
    one, other = writer_of(store), writer_of(store)
    one.open()
    other.open()
    one.commit([batch(1, FEW[0])])
    with pytest.raises(MeshError, match="MESH-S141"):
        other.commit([batch(1, FEW[0], FEW[2])])
    other.commit([batch(1, FEW[0], FEW[2])])
    assert found(store) == [MERGED[1]]
    one.close()
    other.close()


def test_a_state_that_is_older_than_the_rows_is_not_read_with_them(store: TestDatabase) -> None:
    assert found(store) == []
    one = writer_of(store)
    one.commit([batch(1, *FEW)])
    assert len(found(store, 4)) == 3
    with pytest.raises(BehindError):
        found(store, 3)
    one.close()


def test_purges_and_rows_keep_their_order(store: TestDatabase) -> None:
    purge = pa.RecordBatch.from_pydict({"before_ms": [1500]}, purge_schema())
    one = writer_of(store)
    purges = StoredRows(purge_channel(TABLE.name), np.array([3]), purge)
    rows = batch(1, row(1000, "a", 1), row(2000, "a", 1))
    late = StoredRows(rows.channel, np.array([4]), rows_of(row(1000, "late", 1)))
    both = pa.Table.from_batches([rows.rows, late.rows]).combine_chunks().to_batches()[0]
    one.commit([StoredRows(rows.channel, np.array([1, 2, 4]), both), purges])
    assert [(r[1], r[2]) for r in found(store)] == [(1000, "late"), (2000, "a")]
    one.close()


def test_a_table_that_lacks_columns_is_refused(store: TestDatabase) -> None:
    one = writer_of(store)
    one.open()
    one.close()
    wider = StoredTable(
        TABLE.name, (*TABLE.columns, StoredColumn("more", T.LONG, MergeRule.SUM)), TABLE.time
    )
    with pytest.raises(MeshError, match="lacks columns"):
        StoreWriter(store.database, "p", 1, [wider]).open()


def test_errors_name_no_password(store: TestDatabase) -> None:
    is_file = store.database.backend is Backend.SQLITE
    away = replace(store.database, **({"database": "/none/none"} if is_file else {"port": 1}))
    with pytest.raises(MeshError, match="MESH-S140") as raised:
        StoreWriter(away, "p", 1, [TABLE]).open()
    assert PASSWORD not in str(raised.value.to_dict()) + repr(away)
