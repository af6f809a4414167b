"""Rows as MessagePack."""

from __future__ import annotations

import msgpack  # type: ignore[import-untyped]  # it has no stubs
import orjson
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pyspark_nats import encode
from pyspark_nats.arrow import arrow
from pyspark_nats.encode import msgpack_rows
from tests.support.mapped_rows import ROWS


def test_messagepack_says_every_type() -> None:
    first, second, third = map(msgpack.unpackb, msgpack_rows.to_msgpack(ROWS).to_pylist())
    assert first == {
        "text": "a", "tiny": 1, "long": 2**62, "real": 1.5, "double": 0.1, "flag": True,
        "octets": b"\0\1", "at": "1970-01-01T00:00:00.000000Z",
        "wall": "1970-01-01T00:00:00.000000", "day": "1970-01-01", "price": "1.20",
        "list": [1, None], "map": {"k": 1.5},
        "row": {"a": "2026-01-01T00:00:00.000000Z", "b": b"zz"}, "nothing": None,
    }  # fmt: skip
    assert second["real"] != second["real"]
    assert third["octets"] == b"x" * 300


@given(st.lists(st.none() | st.text(max_size=70_000 // 100) | st.just("x" * 70_000), max_size=5))
def test_texts_of_every_length_read_back(texts: list[str | None]) -> None:
    rows = arrow.record_batch({"t": pa.array(texts, pa.string())})
    packed = [msgpack.unpackb(data)["t"] for data in msgpack_rows.to_msgpack(rows).to_pylist()]
    read = [orjson.loads(data)["t"] for data in encode.to_json(rows).to_pylist()]
    assert packed == read == texts
