"""Rows to payloads: JSON with one object a row, or Arrow IPC streams with many rows each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import orjson
import pyarrow as pa

from pyspark_nats.arrow import kernels
from pyspark_nats.decode import EVENT_TIME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_nats.arrow import Array

#: What must be escaped in a JSON string: quote, backslash and control characters.
_ESCAPED = r'["\\\x00-\x1f]'


def to_json(rows: pa.RecordBatch) -> Array:
    """One JSON object a row.

    Args:
        rows: n rows of string, integer, float, double and bool columns.

    Returns:
        Length n, binary: ``{"symbol":"IBM","price":null}``.  Null is null, and so are NaN and the
        infinities, which JSON does not have.  Numbers read back as the same value.
    """
    if rows.num_columns == 0:
        return pa.array([b"{}"] * rows.num_rows, pa.binary())
    pieces: list[Array] = []
    for at, (name, column) in enumerate(zip(rows.schema.names, rows.columns, strict=True)):
        lead = ("," if at else "{") + json.dumps(name, ensure_ascii=False) + ":"
        pieces += [pa.scalar(lead), _values(column)]
    pieces.append(pa.scalar("}"))
    return kernels.binary_join_element_wise(*pieces, pa.scalar("")).cast(pa.binary())


def _values(column: Array) -> Array:
    """The values as JSON text; no nulls."""
    kind = column.type
    if pa.types.is_floating(kind):
        # Arrow prints the shortest text that reads back as the same value, as JSON wants it.
        column = kernels.if_else(kernels.is_finite(column), column, None)
        texts = column.cast(pa.string())
        # ``23`` would read as an integer where types are told from the text, ``23.0`` doesn't.
        whole = kernels.match_substring_regex(texts, r"^-?[0-9]+$")
        texts = kernels.if_else(whole, kernels.binary_join_element_wise(texts, "0", "."), texts)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        texts = _quoted(column.cast(pa.string()))
    else:
        # Arrow prints truth values as true and false.
        texts = column.cast(pa.string())
    return kernels.fill_null(texts, "null")


def _quoted(texts: Array) -> Array:
    needs = kernels.fill_null(kernels.match_substring_regex(texts, _ESCAPED), False)
    if kernels.any(needs).as_py():
        # Few strings hold such characters; those are quoted by a JSON encoder.
        escaped = pa.array(
            [orjson.dumps(text)[1:-1].decode() for text in texts.filter(needs).to_pylist()],
            pa.string(),
        )
        texts = kernels.replace_with_mask(texts, needs, escaped)
    return kernels.binary_join_element_wise('"', texts, '"', "")


def to_arrow(
    rows: pa.RecordBatch, event_time_ms: Array | None, rows_per_message: int
) -> list[tuple[bytes, int, int]]:
    """Arrow IPC streams of up to ``rows_per_message`` rows each.

    Args:
        rows: n rows.
        event_time_ms: length n, int64, ms since 1970; travels as a column of its own.
        rows_per_message: at least 1.

    Returns:
        (payload, first row, row count) of each message, in order; none for no rows.
    """
    if event_time_ms is not None:
        rows = pa.RecordBatch.from_arrays(
            [*rows.columns, event_time_ms],
            schema=rows.schema.append(pa.field(EVENT_TIME, pa.int64())),
        )
    return list(_streams(rows, rows_per_message))


def _streams(rows: pa.RecordBatch, size: int) -> Iterator[tuple[bytes, int, int]]:
    for first in range(0, rows.num_rows, size):
        part = rows.slice(first, size)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, part.schema) as writer:
            writer.write_batch(part)
        yield sink.getvalue().to_pybytes(), first, part.num_rows
