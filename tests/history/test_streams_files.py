"""Files of past events: their order and times, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mesh.errors import MeshError
from mesh.history.streams import HistoryFiles

if TYPE_CHECKING:
    from pathlib import Path

KINDS: dict[str, Any] = {"item": pa.string(), "count": pa.int32()}
SCHEMA = pa.schema(KINDS)


def read(root: Path, path: str, time: str = "at") -> list[tuple[object, ...]]:
    return [
        (*row.values(), at)
        for one in HistoryFiles(str(root), path, SCHEMA, time).batches()
        for row, at in zip(one.rows.to_pylist(), one.time_ms.tolist(), strict=True)
    ]


def test_files_are_read_in_the_order_of_their_paths(tmp_path: Path) -> None:
    old = tmp_path / "old"
    (old / "b").mkdir(parents=True)
    (old / "b" / "1.csv").write_text("at,item,count,more\n2026-01-01T00:00:01Z,007,3,x\n")
    (old / "_SUCCESS").write_text("")
    (old / ".hidden.csv").write_text("")
    table = pa.table({"count": [1, 2], "at": [1000, 2000], "item": ["a", None]})
    pq.write_table(table, old / "a.parquet")
    assert read(tmp_path, "old") == [
        ("a", 1, 1000),
        (None, 2, 2000),
        ("007", 3, 1_767_225_601_000),
    ]
    assert HistoryFiles(str(tmp_path), "old/a.parquet", SCHEMA, "at").count() == 2
    assert HistoryFiles(str(tmp_path), "old", SCHEMA, "at").count() == 0


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("postgresql://host/table", "is no path"),
        ("old\0", "has a character"),
        ("../outside", "outside of manager.history_dir"),
        ("leaves", "outside of manager.history_dir"),
        ("with-link", "is a link that leaves"),
        ("gone", "there is no gone"),
        ("empty", "has no files"),
        ("iceberg", "is an Iceberg table"),
        ("text.txt", "neither Parquet nor CSV"),
        ("broken.parquet", "can't be read"),
        ("no-count.csv", 'has no column "count"'),
        ("no-time.csv", "without a time"),
        ("words.csv", "has no times"),
        ("wide.csv", "can't be read"),
    ],
)
def test_what_is_no_history_is_refused_with_the_reason(tmp_path: Path, path: str, why: str) -> None:
    root = tmp_path / "root"
    for name in ("empty", "iceberg/metadata", "with-link"):
        (root / name).mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.csv").write_text("at,item,count\n1,a,1\n")
    (root / "leaves").symlink_to(outside)
    (root / "with-link" / "a.csv").symlink_to(outside / "a.csv")
    (root / "iceberg" / "metadata" / "v1.metadata.json").write_text("{}")
    (root / "text.txt").write_text("a")
    (root / "broken.parquet").write_text("a")
    (root / "no-count.csv").write_text("at,item\n1,a\n")
    (root / "no-time.csv").write_text("at,item,count\n1,a,1\n,b,2\n")
    (root / "words.csv").write_text("at,item,count\nsoon,a,1\n")
    (root / "wide.csv").write_text("at,item,count\n1,a,3000000000\n")
    with pytest.raises(MeshError) as error:
        read(root, path)
    assert error.value.code == "MESH-C161"
    assert why in error.value.message
