"""Sizes of Arrow messages: values that repeat count as often as they are there."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from pyspark_nats import decode
from pyspark_nats.arrow import arrow
from tests.support.hostile_messages import ARROW, SMALL, column, stream

WORD = "w" * 10_000


def runs(values: Any, length: int) -> Any:
    return arrow.RunEndEncodedArray.from_arrays(pa.array([length], pa.int32()), values)


def views_of(word: str, count: int) -> Any:
    """``count`` times ``word``, which is stored once."""
    view = struct.pack("<i4sii", len(word), word[:4].encode(), 0, 0)
    buffers = [None, pa.py_buffer(view * count), pa.py_buffer(word.encode())]
    return arrow.StringViewArray.from_buffers(pa.string_view(), count, buffers)


def struct_of(length: int) -> Any:
    return arrow.StructArray.from_buffers(pa.struct([]), length, [None])


def lists_of(values: Any) -> Any:
    return arrow.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)


LONGS: Any = pa.list_(pa.int64())
REPEATING: dict[str, tuple[Any, Any]] = {
    "a word of a dictionary": (
        arrow.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int8()), pa.array([WORD])),
        pa.string(),
    ),
    "a run of a word": (runs(pa.array([WORD]), 1000), pa.string()),
    "views of a word": (views_of(WORD, 1000), pa.string()),
    "a list of nulls": (lists_of(pa.nulls(2_000_000_000)), LONGS),
    "a list of empty structs": (
        lists_of(struct_of(2_000_000_000)), pa.list_(pa.struct([("a", pa.int64())])),
    ),
    "fixed lists of nulls": (
        arrow.FixedSizeListArray.from_arrays(pa.nulls(2_000_000_000), 2_000_000_000),
        LONGS,
    ),
    "a dictionary of lists": (
        arrow.DictionaryArray.from_arrays(
            pa.array([0] * 1000, pa.int8()), pa.array([[1] * 1000], LONGS)
        ),
        LONGS,
    ),
    "lists that overlap": (
        arrow.ListViewArray.from_arrays(
            pa.array([0] * 1000, pa.int32()), pa.array([1000] * 1000, pa.int32()),
            pa.array(range(1000), pa.int64()),
        ),
        LONGS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REPEATING)
def test_an_arrow_message_that_repeats_a_value_is_one_error(name: str) -> None:
    values, kind = REPEATING[name]
    schema = pa.schema([("id", kind)])
    payload = stream(column(values))
    assert len(payload) < SMALL.bytes_max
    used = pa.total_allocated_bytes()
    found = decode.decode_messages(
        pa.array([payload]), pa.array([ARROW]), schema, missing="null", limits=SMALL
    )
    assert len(found.rows) == 0
    assert [error[:2] for error in found.errors] == [(0, 0)]
    assert pa.total_allocated_bytes() - used < 10 * SMALL.bytes_max


def test_values_that_repeat_are_read_within_the_limits() -> None:
    words = arrow.DictionaryArray.from_arrays(
        pa.array([0, 1, None], pa.int8()), pa.array(["a", "b"])
    )
    views = pa.array(["x", None, "y" * 40], pa.string_view())
    for values in (words, views, runs(pa.array(["r"]), 3)):
        payload = stream(column(values))
        found = decode.decode_messages(
            pa.array([payload]), pa.array([ARROW]), pa.schema([("id", pa.string())]), limits=SMALL
        )
        assert (found.errors, found.rows.column("id").to_pylist()) == ([], values.to_pylist())
