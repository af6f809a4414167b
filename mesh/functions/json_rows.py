"""Rows of an answer as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson
import pyarrow as pa

from mesh.functions.objects import from_binary, python_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_nats.arrow import ArrowArray

#: Rows that are Python objects at one time: with all of them the garbage collector looks at
#: everything that the process has, again and again.
_ROWS: Final = 500


def json_rows(batches: Iterable[pa.RecordBatch]) -> bytes:
    """A JSON list with a list of the values of each row."""
    parts = []
    for batch in batches:
        for start in range(0, batch.num_rows, _ROWS):
            columns = [_values(column) for column in batch.slice(start, _ROWS).columns]
            parts.append(orjson.dumps(list(zip(*columns, strict=True)), default=str)[1:-1])
    return b"[%b]" % b",".join(parts)


def _values(column: ArrowArray) -> list[object]:
    """A column as JSON values; a float with the digits that it needs."""
    if pa.types.is_binary(column.type):
        return [python_value(value) for value in from_binary(column)]
    values: list[Any]
    if column.null_count == 0 and (pa.types.is_integer(column.type) or column.type == pa.float64()):
        # Several times as fast.
        values = column.to_numpy().tolist()
        return values
    values = column.to_pylist()
    if pa.types.is_float32(column.type):
        return [None if value is None else float(str(np.float32(value))) for value in values]
    return values
