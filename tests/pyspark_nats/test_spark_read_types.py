"""Values that others wrote, read by each type of Spark: docs/types.md, cell by cell."""

from __future__ import annotations

import base64
from decimal import Decimal
from typing import Any

import msgpack  # type: ignore[import-untyped]  # it has no stubs
import orjson
import pyarrow as pa
import pytest

from pyspark_nats.conversions import ConversionOutcome
from pyspark_nats.sql_types import SPARK_READ
from tests.support.decoded_types import AT, LOCAL, decoded

#: By row of the table: values of JSON, and those that MessagePack alone has.
SPARKS: dict[str, list[Any]] = {
    "text": ["", "x", "12", "AP8=", "2026-11-21", "2026-11-21T09:30:00"],
    "whole number": [0, -3, 300, 1 << 40, 1 << 62, (1 << 53) + 1],
    "number with a fraction": [0.5, -1.25],
    "true, false": [True, False],
    "array": [[], [1, None]],
    "object": [{}, {"a": 1}],
    "binary of MessagePack": [b"\0\xff"],
    "timestamp of MessagePack": [msgpack.Timestamp(1763717400, 0)],
}
SPARK_COLUMNS: dict[str, tuple[pa.DataType, ...]] = {
    "string": (pa.string(),),
    "byte .. long": (pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    "float, double": (pa.float32(), pa.float64()),
    "boolean": (pa.bool_(),),
    "decimal": (pa.decimal128(4, 2), pa.decimal128(38, 0)),
    "timestamp": (AT,),
    "timestamp_ntz": (LOCAL,),
    "date": (pa.date32(),),
    "binary": (pa.binary(),),
    "array": (pa.list_(pa.int64()),),
    "struct, map": (pa.struct([("a", pa.int64())]), pa.map_(pa.string(), pa.int64())),
}


def same(value: Any, found: Any, kind: pa.DataType) -> bool:
    """Whether a value that was read is the one that was written."""
    if isinstance(value, dict):
        return dict(found) == ({"a": None} | value if pa.types.is_struct(kind) else value)
    if isinstance(value, msgpack.Timestamp):
        return bool(found == value.to_datetime())
    if isinstance(value, str) and pa.types.is_binary(kind):
        return base64.b64encode(found).decode() == value
    if isinstance(value, str) and pa.types.is_decimal(kind):
        return bool(found == Decimal(value))
    if isinstance(value, str) and pa.types.is_temporal(kind):
        return str(found).replace(" ", "T").startswith(value)
    if pa.types.is_temporal(kind):
        return bool(found.timestamp() == value)
    return bool(found == value)


@pytest.mark.parametrize("row", SPARK_READ.rows)
@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_values_of_others_are_read_as_the_table_says(row: str, form: str) -> None:
    if "MessagePack" in row and form == "json":
        return
    pack = orjson.dumps if form == "json" else msgpack.packb
    for column, cell in zip(SPARK_READ.columns, SPARK_READ.rows[row], strict=True):
        outcomes = set()
        for kind in SPARK_COLUMNS[column]:
            for value in SPARKS[row]:
                found = decoded([pack({"v": value})], pa.schema([("v", kind)]), form, "null")
                outcomes.add(found.rows.num_rows)
                if found.rows.num_rows:
                    (read,) = found.rows.column("v").to_pylist()
                    assert same(value, read, kind), (value, kind)
                else:
                    assert 'attribute "v' in found.errors[0][2]
        wanted = (
            {0} if cell.outcome is ConversionOutcome.REFUSED else {0, 1} if cell.refused else {1}
        )
        assert outcomes == wanted, (column, cell)
