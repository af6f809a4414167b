"""Attributes from properties of the transport, beside those of payloads."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from mesh.mapping import source_mapper
from mesh.mapping.text_sources import PropertySource, split
from mesh.model.types import Attribute, AttributeType, StreamSchema

STREAM = StreamSchema(
    "S",
    (
        Attribute("n", AttributeType.INT),
        Attribute("at", AttributeType.LONG),
        Attribute("of", AttributeType.STRING),
    ),
)
PAYLOADS = StreamSchema("P", (Attribute("n", AttributeType.INT),))


def test_paths_are_divided_by_their_prefix() -> None:
    assert split({"a": "trp:Key", "b": "a.b", "c": "trp:x.Y"}) == (
        {"b": "a.b"}, {"a": "key", "c": "x.y"},
    )  # fmt: skip


def source(missing: str = "error") -> PropertySource:
    inner = source_mapper("json", {}, (), PAYLOADS)
    # The schema of the rows, and a mapper of the attribute that is no property.
    return PropertySource(STREAM.arrow, missing, {"at": "time", "of": "origin"}, inner)


def decoded(found: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in found.rows.to_pylist()]


def test_each_event_has_the_properties_of_its_message() -> None:
    payloads = [b'[{"event":{"n":1}},{"event":{"n":2}}]', b'{"event":{"n":3}}']
    properties: Any = [{"time": "7", "origin": "a"}, {"time": 8, "origin": "b"}]
    found = source().decode(payloads, properties)
    assert decoded(found) == [(1, 7, "a"), (2, 7, "a"), (3, 8, "b")]
    assert found.errors == []


@pytest.mark.parametrize(
    ("missing", "rows", "reasons"),
    [
        ("error", [(1, 7, "a")], {1: '"at" is missing', 2: '"of" is missing'}),
        ("null", [(1, 7, "a"), (2, None, "b"), (3, 9, None)], {}),
    ],
)
def test_a_property_that_is_missing(
    missing: str, rows: list[tuple[Any, ...]], reasons: dict[int, str]
) -> None:
    payloads = [b'{"event":{"n":%d}}' % n for n in (1, 2, 3)]
    properties = [{"time": "7", "origin": "a"}, {"origin": "b"}, {"time": "9"}]
    found = source(missing).decode(payloads, properties)
    assert decoded(found) == rows
    assert {message for message, *_ in found.errors} == set(reasons)
    for message, _, reason in found.errors:
        assert reasons[message] in reason


def test_a_property_of_another_type_costs_its_event_alone() -> None:
    payloads = [b'{"event":{"n":1}}', b'{"event":{"n":2}}']
    found = source().decode(
        payloads, [{"time": "soon", "origin": "a"}, {"time": "1", "origin": "b"}]
    )
    assert decoded(found) == [(2, 1, "b")]
    ((message, _, reason),) = found.errors
    assert (message, '"at"' in reason) == (0, True)


def test_where_all_attributes_are_properties_each_payload_is_an_event() -> None:
    schema = pa.schema([pa.field("of", pa.string())])
    alone = PropertySource(schema, "null", {"of": "origin"}, None)
    found = alone.decode([b"\xff", b""], [{"origin": "a"}, {}])
    assert decoded(found) == [("a",), (None,)]
    assert decoded(alone.decode([b"x"])) == [(None,)]
