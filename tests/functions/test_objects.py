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
