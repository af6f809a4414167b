"""A stream, its rows, and mappers of it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from mesh.mapping import source_mapper
from mesh.model.types import Attribute, AttributeType, StreamSchema

STREAM = StreamSchema(
    "S",
    (
        Attribute("s", AttributeType.STRING),
        Attribute("n", AttributeType.INT),
        Attribute("d", AttributeType.DOUBLE),
        Attribute("b", AttributeType.BOOL),
    ),
)
ROWS: list[dict[str, Any]] = [
    {"s": "x", "n": 1, "d": 1.5, "b": True},
    {"s": 'q"<&>,\n', "n": -2, "d": 2.0, "b": False},
    {"s": None, "n": None, "d": None, "b": None},
]
BATCH = pa.RecordBatch.from_pylist(ROWS, schema=STREAM.arrow)
DEFAULTS: dict[str, dict[str, Any]] = {"text": {"delimiter": "~~~~~~~~~~"}}


def decoded(kind: str, payloads: list[bytes], **more: Any) -> Any:
    options = DEFAULTS.get(kind, {}) | more.get("options", {})
    mapper = source_mapper(kind, options, more.get("attributes", ()), STREAM)
    return mapper.decode(payloads, more.get("properties"))


def rows(kind: str, payloads: list[bytes], **more: Any) -> list[dict[str, Any]]:
    found = decoded(kind, payloads, **more)
    assert found.errors == []
    return list(found.rows.to_pylist())
