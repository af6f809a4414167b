"""Rows of an answer as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa

from mesh.functions.objects import from_binary, python_value

if TYPE_CHECKING:
    from collections.abc import Iterable


def json_rows(batches: Iterable[pa.RecordBatch]) -> bytes:
    """A JSON list with a list of the values of each row."""
    rows: list[Any] = []
    for batch in batches:
        columns = [_values(column) for column in batch.columns]
        rows += map(list, zip(*columns, strict=True))
    return orjson.dumps(rows, default=str)


def _values(column: pa.Array[Any]) -> list[Any]:
    """A column as JSON values; a float with the digits that it needs."""
    if pa.types.is_binary(column.type):
        return [python_value(value) for value in from_binary(column)]
    values: list[Any] = column.to_pylist()
    if pa.types.is_float32(column.type):
        return [None if value is None else float(str(np.float32(value))) for value in values]
    return values
