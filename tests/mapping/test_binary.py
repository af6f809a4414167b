"""The binary mapper of the original: times, nulls, and payloads of strangers."""

from __future__ import annotations

import struct

import pytest

from mesh.mapping import sink_mapper, source_mapper
from mesh.mapping.events import Refusal
from mesh.model.types import Attribute, AttributeType, StreamSchema
from tests.support.tcp_payloads import PAYLOAD, TIMES

STREAM = StreamSchema(
    "S",
    tuple(
        Attribute(name, AttributeType(kind))
        for name, kind in zip(
            "silfdb", ("string", "int", "long", "float", "double", "bool"), strict=True
        )
    ),
)
ROWS = [
    {"s": "IBM", "i": -5, "l": 1 << 40, "f": 1.5, "d": -0.1, "b": True},
    {"s": None, "i": 7, "l": -1, "f": 0.0, "d": 1e300, "b": False},
]


def test_a_payload_of_the_original_is_read_with_the_times_of_its_events() -> None:
    found = source_mapper("binary", {}, (), STREAM).decode([PAYLOAD])
    assert found.errors == []
    assert found.rows.to_pylist() == ROWS
    assert found.event_time_ms.to_pylist() == TIMES


def test_what_is_written_is_read_again() -> None:
    rows = source_mapper("binary", {}, (), STREAM).decode([PAYLOAD]).rows
    written = sink_mapper("binary", {}, (), STREAM).encode(rows)
    again = source_mapper("binary", {}, (), STREAM).decode(written)
    assert again.rows.to_pylist() == ROWS
    # All but the number of events and their times.
    assert b"".join(one[12:] for one in written) == PAYLOAD[12:44] + PAYLOAD[52:]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "its 0 bytes end within a value"),
        (PAYLOAD[:-1], "its 80 bytes end within a value"),
        (PAYLOAD + b"x", "1 bytes follow the last of 2 events"),
        (struct.pack(">i", -1), "-1 events don't fit"),
        (struct.pack(">i", 1 << 30), "events don't fit"),
        (struct.pack(">iqi", 1, 0, 1 << 30), 'a text of 1073741824 bytes for "s" exceeds'),
        (PAYLOAD.replace(b"IBM", b"I\xffM"), 'attribute "s" is no UTF-8'),
    ],
)
def test_a_payload_of_a_stranger_is_refused_alone(payload: bytes, reason: str) -> None:
    found = source_mapper("binary", {}, (), STREAM).decode([PAYLOAD, payload, PAYLOAD])
    assert [(message, reason in text) for message, _, text in found.errors] == [(1, True)]
    assert len(found.rows) == (5 if "UTF-8" in reason else 4)


def test_null_is_refused_but_for_a_text() -> None:
    rows = (
        source_mapper("json", {}, (), STREAM)
        .decode([b'{"s":null,"i":null,"l":1,"f":1,"d":1,"b":true}'])
        .rows
    )
    (made,) = sink_mapper("binary", {}, (), STREAM).encode(rows)
    assert isinstance(made, Refusal)
    assert '"i" is null' in made.decode()
