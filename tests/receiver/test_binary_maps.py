"""Avro and Protocol Buffers: both ways, custom mappings, and payloads of strangers."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from mesh.mapping import sink_mapper, source_mapper
from mesh.model.types import Attribute, AttributeType, StreamSchema
from tests.support.binary_maps import SMALL
from tests.support.connectors import staged

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

STREAM = StreamSchema(
    "S",
    (
        Attribute("k", AttributeType.STRING),
        Attribute("n", AttributeType.INT),
        Attribute("big", AttributeType.LONG),
        Attribute("v", AttributeType.DOUBLE),
        Attribute("ok", AttributeType.BOOL),
    ),
)
ROWS: list[dict[str, Any]] = [
    {"k": "a", "n": 1, "big": 1 << 40, "v": 1.5, "ok": True},
    {"k": None, "n": None, "big": None, "v": None, "ok": None},
    {"k": "ä\n", "n": -1, "big": 0, "v": 0.0, "ok": False},
]


@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_every_type_goes_out_and_comes_in(kind: str) -> None:
    rows = pa.RecordBatch.from_pylist(ROWS, schema=STREAM.arrow)
    payloads = sink_mapper(kind, {}, (), STREAM).encode(rows)
    found = source_mapper(kind, {}, (), STREAM).decode(payloads)
    assert found.rows.to_pylist() == ROWS
    assert not found.errors


@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_payloads_of_strangers_give_errors_and_never_an_exception(kind: str) -> None:
    source = source_mapper(kind, {}, (), STREAM)
    rows = pa.RecordBatch.from_pylist(ROWS, schema=STREAM.arrow)
    good = sink_mapper(kind, {}, (), STREAM).encode(rows)[0]
    drawn = random.Random(7)
    payloads = [good[:at] for at in range(1, len(good))]
    payloads += [drawn.randbytes(drawn.randrange(1, 200)) for _ in range(2000)]
    # Lengths of 2**60 octets, deep messages, an overlong number.
    payloads += [b"\x02\xfe\xff\xff\xff\xff\xff\xff\xff\x1f", b"\x0a\xff\xff\xff\xff\x0f"]
    payloads += [b"\x0b" * 100_000, b"\xff" * 100, good + b"\0"]
    found = source.decode(payloads)
    assert found.rows.num_rows + len(found.errors) == len(payloads)
    assert found.errors
    assert source.decode([b"x", good]).rows.to_pylist()[-1] == ROWS[0]


@pytest.mark.parametrize(
    ("kind", "options", "reason"),
    [
        ("avro", {"schema.def": "{"}, "not JSON"),
        ("avro", {"schema.def": '"int"'}, "not the schema of a record"),
        ("avro", {"schema.def": '{"type":"record","name":"R","fields":[]}'}, 'no field "who"'),
        (
            "avro",
            {"schema.def": json.dumps({"type": "record", "name": "R", "fields": [
                {"name": "a", "type": {"type": "array", "items": "null"}}]})},
            "without any bytes",
        ),
        (
            "avro",
            {"schema.def": json.dumps({"type": "record", "name": "R", "fields": [
                {"name": "next", "type": ["null", "R"]}]})},
            "contains itself",
        ),
        ("protobuf", {"proto": "message A { int32 n = 1; }"}, 'no field "who"'),
        ("protobuf", {"proto": "message A { int32 who }"}, 'instead of "="'),
        ("protobuf", {"proto": 'import "x.proto";'}, "compiled, in option descriptor"),
        ("protobuf", {"proto": 'edition = "2023";'}, "compiled, in option descriptor"),
        ("protobuf", {"proto": "message A { repeated group G = 1 {} }"}, "compiled, in option"),
        ("protobuf", {"descriptor": "x"}, "not base64"),
        ("protobuf", {"descriptor": "eHh4eA=="}, "has no file"),
        ("protobuf", {"descriptor": "eA==", "proto": "message A {}"}, "exclude each other"),
        ("protobuf", {"proto": "message A { bytes who = 1; int32 n = 2; }"}, "is bytes"),
        ("protobuf", {"proto": "message A {}", "message": "B"}, 'no message "B"'),
        ("protobuf", {"proto": "message A { Other who = 1; }"}, "invalid"),
    ],
)  # fmt: skip
def test_definitions_are_checked_when_an_app_is_planned(
    kind: str, options: dict[str, str], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        source_mapper(kind, options, (), SMALL)


@pytest.mark.nats
async def test_an_event_that_does_not_fit_is_recorded(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]})
    text = f'''@App:name('Fits')
define stream S (n long);
@sink(type='log', @map(type='avro', schema.def="""{schema}""")) define stream T (n long);
from S select n insert into T;
'''

    async with staged(nats_server, text) as stage:
        await stage.publish("T", {"n": 1}, {"n": 1 << 40}, {"n": 2})
        instance = stage.start("sink-T")
        (entry,) = await stage.until("the large one", stage.errors)
        assert "does not fit" in entry["reason"]
        await stage.until("the others", lambda: instance.status().events_out == 2)
