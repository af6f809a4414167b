"""Check of the values that are written: those that no reader gets back are refused.

JSON has no NaN and no infinities.  No format has times before year 1 or after year 9999: readers
refuse them, as ISO 8601 texts of four digits and Python's ``datetime`` do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_nats.arrow import kernels
from pyspark_nats.decode.values import DAYS_MAX, DAYS_MIN, TIMES_MAX, TIMES_MIN
from pyspark_nats.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_nats.arrow import Array


def check_exact(form: str, rows: pa.RecordBatch) -> None:
    """SchemaError, naming the column, if a value is not read back as the same value."""
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        for values in _leaves(column):
            if pa.types.is_floating(values.type):
                if form == "json":
                    _check_finite(name, values)
            elif not _are_readable(values):
                raise SchemaError(
                    f'column "{name}" is a time before year 1 or after year 9999 in a row',
                    hint="Cast it to a string, or make it null.",
                )


def _leaves(column: Array) -> Iterator[Array]:
    """The floating-point numbers, timestamps and dates in a column, at any depth."""
    types, kind = pa.types, column.type
    if types.is_map(kind):
        # Its keys are strings.
        first, last = _bounds(column)
        yield from _leaves(column.items.slice(first, last - first))
    elif types.is_list(kind):
        yield from _leaves(column.flatten())
    elif types.is_struct(kind):
        for child in column.flatten():
            yield from _leaves(child)
    elif types.is_floating(kind) or types.is_timestamp(kind) or types.is_date32(kind):
        yield column


def _bounds(maps: Array) -> tuple[int, int]:
    """The first item of a column of maps, and the end of its last."""
    offsets = maps.offsets
    return offsets[0].as_py(), offsets[-1].as_py()


def _check_finite(name: str, values: Array) -> None:
    if kernels.all(kernels.is_finite(values)).as_py() is False:
        wrong = values.filter(kernels.invert(kernels.is_finite(values)))[0].as_py()
        shown = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(wrong)]
        raise SchemaError(
            f'column "{name}" is {shown} in a row, which JSON does not have',
            hint='Make it null, for example with nanvl(x, NULL), or set "format" to "msgpack" or '
            '"arrow".',
        )


def _are_readable(times: Array) -> bool:
    is_day = pa.types.is_date32(times.type)
    low, high = (DAYS_MIN, DAYS_MAX) if is_day else (TIMES_MIN, TIMES_MAX)
    bounds = kernels.min_max(times.view(pa.int32() if is_day else pa.int64())).as_py()
    return bounds["min"] is None or (low <= bounds["min"] and bounds["max"] <= high)
