"""Streams and definitions for binary mappers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from mesh.model.types import Attribute, AttributeType, StreamSchema

SMALL = StreamSchema(
    "T",
    (Attribute("who", AttributeType.STRING), Attribute("n", AttributeType.INT)),
)


def rows_of(events: list[dict[str, Any]], stream: StreamSchema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(events, schema=stream.arrow)
