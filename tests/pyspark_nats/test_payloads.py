"""Rows as JSON."""

from __future__ import annotations

import orjson

from pyspark_nats import encode
from tests.support.mapped_rows import ROWS


def test_json_says_every_type() -> None:
    texts = encode.to_json(ROWS).to_pylist()
    first, second, third = map(orjson.loads, texts)
    assert first == {
        "text": "a", "tiny": 1, "long": 2**62, "real": 1.5, "double": 0.1, "flag": True,
        "octets": "AAE=", "at": "1970-01-01T00:00:00.000000Z", "wall": "1970-01-01T00:00:00.000000",
        "day": "1970-01-01", "price": 1.2, "list": [1, None], "map": {"k": 1.5},
        "row": {"a": "2026-01-01T00:00:00.000000Z", "b": "eno="}, "nothing": None,
    }  # fmt: skip
    assert b'"price":1.20' in texts[0]
    assert second["double"] == 1e300
    assert [name for name, value in second.items() if value is not None] == [
        "tiny", "long", "double", "flag", "at", "wall", "day",
    ]  # fmt: skip
    assert (third["text"], third["double"], third["list"]) == ('q"\n' + "x" * 40, 23.0, [])
