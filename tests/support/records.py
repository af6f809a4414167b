"""Parts of the records of an app."""

from __future__ import annotations

from mesh.model.app import Channel, Format
from mesh.model.types import Attribute, AttributeType, StreamSchema

SCHEMA = StreamSchema(
    "S", (Attribute("a", AttributeType.LONG), Attribute("b", AttributeType.STRING))
)
KEYED = Channel("App", SCHEMA, key=("b",), partitions=8, format=Format.ARROW)
