"""Values do not depend on the events beside them, which choose between fast and slow readers."""

from __future__ import annotations

import itertools
import re
from typing import Any

import orjson
import pyarrow as pa
import pytest

from mesh.mapping import sink_mapper, source_mapper
from mesh.model.types import Attribute, AttributeType, StreamSchema

STREAM = StreamSchema(
    "S",
    (
        Attribute("s", AttributeType.STRING),
        Attribute("n", AttributeType.INT),
        Attribute("f", AttributeType.FLOAT),
        Attribute("d", AttributeType.DOUBLE),
        Attribute("b", AttributeType.BOOL),
    ),
)
PLAIN = b'{"s":"x","n":1,"f":0.5,"d":1.5,"b":true}'
VALUES = [
    ("s", b"1.10"),
    ("s", b"12345678901234567890"),
    ("s", b"true"),
    ("s", b"null"),
    ("n", b"5.00"),
    ("n", b"5.5"),
    ("n", b"1e2"),
    ("n", b'" 7 "'),
    ("n", b"2147483648"),
    ("f", b"16777217"),
    ("f", b"16777217.0"),
    ("f", b"33554432"),
    ("f", b"1e39"),
    ("d", b"9007199254740993"),
    ("d", b"9007199254740993.0"),
    ("d", b"9007199254740994"),
    ("d", b"1e400"),
    ("d", b"-0"),
    ("d", b'"NaN"'),
    ("d", b'"1.25"'),
    ("b", b"1"),
    ("b", b"2"),
    ("b", b'"TRUE"'),
]
ODD = [
    *(re.sub(b'"%b":[^,}]+' % name.encode(), b'"%b":%b' % (name.encode(), text), PLAIN)
      for name, text in VALUES),
    b'{"s":"x","n":1,"d":1.5,"b":true}',
    b'{"s":"x","f":0.5,"d":1.5,"b":true,"@refused":{"is odd":["n"]}}',
    b'{"s":"x","n":1,"f":0.5,"d":1.5,"b":true,"@refused":{"the row is odd":["*"]}}',
    b"no JSON",
    b"\xef\xbb\xbf" + PLAIN,
    b"s=x&n=1&f=0.5&d=1.5&b=true",
]  # fmt: skip


def outcomes(mapper: Any, payloads: list[bytes]) -> list[Any]:
    """The row of each payload, or the reasons against it."""
    found = mapper.decode(payloads)
    made: list[Any] = [
        [why for n, _, why in found.errors if n == at] for at in range(len(payloads))
    ]
    rows = found.rows.to_pylist()
    assert found.message.tolist() == sorted(found.message.tolist())
    for number, row in zip(found.message.tolist(), rows, strict=True):
        # -0.0 is another number, and NaN is none that equals itself.
        made[number] = repr(row)
    return made


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("kind", "options", "attributes", "are_rows"),
    [
        ("json", {}, (), True),
        ("json", {"fail.on.missing.attribute": False}, (), True),
        ("json", {}, [(name, f"$.{name}") for name in STREAM.names], True),
        ("keyvalue", {"implicit.cast.enable": True}, (), True),
        ("json", {}, (), False),
        ("json", {}, [(name, f"$.{name}") for name in STREAM.names], False),
        ("keyvalue", {}, (), False),
        ("keyvalue", {"implicit.cast.enable": True}, (), False),
    ],
)
def test_values_do_not_depend_on_the_first_event(
    kind: str, options: dict[str, Any], attributes: Any, are_rows: bool
) -> None:
    mapper = source_mapper(kind, options, attributes, STREAM, are_rows=are_rows)
    alone = [outcomes(mapper, [payload])[0] for payload in ODD]
    assert any(isinstance(one, str) for one in alone)
    assert any(isinstance(one, list) for one in alone)
    for first in (PLAIN, *ODD):
        assert outcomes(mapper, [first, *ODD, PLAIN])[1:-1] == alone


AVRO = orjson.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "s", "type": ["null", "string"]},
            {"name": "n", "type": "int"},
            {"name": "f", "type": "float"},
            {"name": "d", "type": "double"},
            {"name": "b", "type": "boolean", "default": False},
        ],
    }
).decode()


def test_records_of_templates_do_not_depend_on_their_neighbours() -> None:
    of_text = StreamSchema("T", (Attribute("text", AttributeType.STRING),))
    mapper = sink_mapper("avro", {"schema.def": AVRO}, [(None, "text")], of_text)
    whole = [PLAIN, *ODD, b'{"s":"x","n":1,"f":0.5,"d":1.5}', b'{"n":1}', b"[1]"]

    def encoded(texts: list[bytes]) -> list[tuple[type, bytes]]:
        rows = pa.RecordBatch.from_pydict({"text": [one.decode() for one in texts]})
        return [(type(one), bytes(one)) for one in mapper.encode(rows)]

    assert encoded(whole) == [encoded([one])[0] for one in whole]


@pytest.mark.parametrize("names", [("s",), ("s", "n")], ids=len)
def test_lines_do_not_depend_on_the_payloads_beside_them(names: tuple[str, ...]) -> None:
    stream = StreamSchema("S", tuple(a for a in STREAM.attributes if a.name in names))
    decoder = source_mapper("csv", {}, (), stream)
    line = b"a,1"[: 2 * len(names) - 1]
    payloads = [line, b"", b"\n", *(text % line for text in (b"%b\n", b"\n%b", b"%b\n\n"))]
    payloads.append(line + b"\n" + line)
    alone = [_found(decoder, [payload]) for payload in payloads]

    for picked in itertools.product(range(len(payloads)), repeat=3):
        wanted = [(n, *one) for n, at in enumerate(picked) for _, *one in alone[at]]
        assert _found(decoder, [payloads[at] for at in picked]) == wanted


def _found(decoder: Any, payloads: list[bytes]) -> list[tuple[Any, ...]]:
    """Message, place and values of each event, message, place and reason of each that is none."""
    found = decoder.decode(payloads)
    places = zip(found.message.tolist(), found.index.tolist(), strict=True)
    rows = zip(places, found.rows.to_pylist(), strict=True)
    events = [(*place, tuple(row.values())) for place, row in rows]
    return sorted([*events, *found.errors], key=lambda one: one[:2])
