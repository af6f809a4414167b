"""Objects in events of any publisher: octets that hold no object raise nothing."""

from __future__ import annotations

from typing import Any

import msgpack  # type: ignore[import-untyped]  # it has no stubs
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.functions.objects import (
    Opaque,
    ValueSet,
    from_binary,
    java_class,
    json_rows,
    object_text,
    python_value,
    to_binary,
)
from mesh.functions.objects import identity as key_of


def read(data: bytes) -> Any:
    """The object in ``data``, after all that apps may do with it."""
    (value,) = from_binary(pa.array([data], pa.binary()))
    orjson.dumps(python_value(value), default=str)
    hash(key_of(value))
    assert isinstance(object_text(value), str)
    assert isinstance(java_class(value), str)
    to_binary([value])
    return value


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xc1", b"\x81", b"\x81\x90\x01", b"\x91" * 300 + b"\x01", b"\x91" * 5000 + b"\x01",
        msgpack.packb(msgpack.ExtType(1, b"xx")), msgpack.packb(msgpack.ExtType(3, b"\x01")),
        msgpack.packb(msgpack.ExtType(4, b"\x01")), msgpack.packb(msgpack.ExtType(5, b"x")),
        msgpack.packb(msgpack.ExtType(5, b"9" * 9999)),
    ],
)  # fmt: skip
def test_octets_that_hold_no_object_are_opaque(data: bytes) -> None:
    assert read(data) == Opaque("byte[]", f"{len(data)} bytes that are no object")


def test_nested_objects_are_read() -> None:
    value: Any = [1.5, {"a": [True, None]}, ValueSet(["x"])]
    (data,) = to_binary([value]).to_pylist()
    assert data is not None
    assert read(data) == value


@given(data=st.binary(max_size=30))
def test_any_octets_raise_nothing(data: bytes) -> None:
    read(data)


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
