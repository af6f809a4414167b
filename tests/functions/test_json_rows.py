"""Rows of an answer as JSON: many rows, and every kind of value."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa

from mesh.functions.json_rows import json_rows


def test_rows_of_several_batches_are_one_list() -> None:
    numbers = pa.array(range(1_201), pa.int64())
    batch = pa.record_batch([numbers, numbers.cast(pa.string())], names=["n", "s"])
    found = orjson.loads(json_rows([batch, batch.slice(0, 0), batch.slice(1_000)]))
    expected = [[n, str(n)] for n in range(1_201)]
    assert found == [*expected, *expected[1_000:]]


def test_values_are_those_of_the_types() -> None:
    columns: dict[str, pa.Array[Any]] = {
        "int": pa.array([1, None], pa.int32()),
        "long": pa.array([2**62, -1], pa.int64()),
        "float": pa.array([0.1, None], pa.float32()),
        "double": pa.array([0.1, float("nan")], pa.float64()),
        "missing": pa.array([None, 2.5], pa.float64()),
        "bool": pa.array([True, None]),
        "string": pa.array(["é", None]),
    }
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    assert json_rows([batch]) == (
        '[[1,4611686018427387904,0.1,0.1,null,true,"é"],[null,-1,null,null,2.5,null,null]]'.encode()
    )


def test_no_rows_are_an_empty_list() -> None:
    assert json_rows([]) == b"[]"
    assert json_rows([pa.record_batch([pa.array([], pa.int64())], names=["n"])]) == b"[]"
