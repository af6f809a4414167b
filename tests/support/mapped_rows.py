"""Rows as messages."""

from __future__ import annotations

import datetime as dt
import decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyspark_nats.arrow import arrow
from pyspark_nats.sink import messages_out

if TYPE_CHECKING:
    from pyspark_nats.encode import row_mapping

UTC = dt.UTC
ROWS = arrow.record_batch(
    {
        "text": pa.array(["a", None, 'q"\n' + "x" * 40]),
        "tiny": pa.array([1, -5, None], pa.int8()),
        "long": pa.array([2**62, -1, None]),
        "real": pa.array([1.5, float("nan"), None], pa.float32()),
        "double": pa.array([0.1, 1e300, 23.0]),
        "flag": pa.array([True, False, None]),
        "octets": pa.array([b"\0\1", None, b"x" * 300], pa.binary()),
        "at": pa.array([0, 1, None], pa.timestamp("us", tz="Europe/Berlin")),
        "wall": pa.array([0, 1_500_000, None], pa.timestamp("us")),
        "day": pa.array([0, 1, None], pa.date32()),
        "price": pa.array([decimal.Decimal("1.20"), None, decimal.Decimal("-3.00")]),
        "list": pa.array([[1, None], None, []], pa.list_(pa.int32())),
        "map": pa.array([[("k", 1.5)], None, []], pa.map_(pa.string(), pa.float64())),
        "row": pa.array(
            [{"a": dt.datetime(2026, 1, 1, tzinfo=UTC), "b": b"zz"}, None, {"a": None, "b": None}],
            pa.struct([("a", pa.timestamp("us", tz="UTC")), ("b", pa.binary())]),
        ),
        "nothing": pa.nulls(3),
    }
)


def made(shaped: row_mapping.RowMapper, rows: pa.RecordBatch, cuts: list[int]) -> Any:
    bounds = [0, *sorted(min(cut, rows.num_rows) for cut in cuts), rows.num_rows]
    found = [
        batch
        for first, last in pairwise(bounds)
        for batch in shaped.push(rows.slice(first, last - first))
    ]
    found += shaped.finish()
    return pa.Table.from_batches(found, messages_out.SCHEMA)
