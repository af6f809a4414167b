"""Avro and Protocol Buffers: both ways, custom mappings, and payloads of strangers."""

from __future__ import annotations

import base64
import io
import json
import random
from typing import TYPE_CHECKING, Any

import fastavro
import httpx
import orjson
import pyarrow as pa
import pytest

from mesh.mapping import sink_mapper, source_mapper
from mesh.mapping.contract import Refusal
from mesh.mapping.proto_text import message_class
from mesh.model.types import Attribute, AttributeType, StreamSchema
from mesh.receiver.http_server import HttpServers, Request, Response
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
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "who", "type": {"type": "record", "name": "Person", "fields": [
            {"name": "name", "type": "string"}]}},
        {"name": "n", "type": "int"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}  # fmt: skip
PROTO = """
syntax = "proto3";
package shop;  // comment
message Order {
  enum Kind { NEW = 0; OLD = 7; }
  message Person { string name = 1; repeated string tags = 2; }
  Person who = 1;
  optional sint64 n = 2 [deprecated = true];
  Kind kind = 3;
}
"""
SMALL = StreamSchema(
    "T",
    (Attribute("who", AttributeType.STRING), Attribute("n", AttributeType.INT)),
)


def rows_of(events: list[dict[str, Any]], stream: StreamSchema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(events, schema=stream.arrow)


@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_every_type_goes_out_and_comes_in(kind: str) -> None:
    rows = pa.RecordBatch.from_pylist(ROWS, schema=STREAM.arrow)
    payloads = sink_mapper(kind, {}, (), STREAM).encode(rows)
    found = source_mapper(kind, {}, (), STREAM).decode(payloads)
    assert found.rows.to_pylist() == ROWS
    assert not found.errors


def test_avro_by_paths_and_by_a_template() -> None:
    options = {"schema.def": json.dumps(SCHEMA)}
    template = '{"who":{"name":"{{who}}"},"n":{{n}},"tags":[]}'
    sink = sink_mapper("avro", options, [(None, template)], SMALL)
    rows = rows_of([{"who": 'a"b', "n": 7}, {"who": "x", "n": None}], SMALL)
    good, bad = sink.encode(rows)
    read = fastavro.schemaless_reader(io.BytesIO(good), fastavro.parse_schema(SCHEMA), None)
    assert read == {"who": {"name": 'a"b'}, "n": 7, "tags": []}
    assert isinstance(bad, Refusal)
    assert "does not fit" in bad.decode()
    source = source_mapper("avro", options, [("who", "who.name"), ("n", "$.n")], SMALL)
    assert source.decode([good]).rows.to_pylist() == [{"who": 'a"b', "n": 7}]


def test_the_head_of_a_registry() -> None:
    rows = pa.RecordBatch.from_pylist([{"who": "a", "n": 7}], schema=SMALL.arrow)
    options = {"use.avro.serializer": True, "schema.id": 258}
    (payload,) = sink_mapper("avro", options, (), SMALL).encode(rows)
    assert payload[:5] == b"\0\0\0\1\2"
    source = source_mapper("avro", {"use.avro.deserializer": True}, (), SMALL)
    found = source.decode([payload, payload[3:]])
    assert found.rows.to_pylist() == [{"who": "a", "n": 7}]
    assert "byte 0" in found.errors[0][2]


def test_protobuf_by_paths_and_enums() -> None:
    stream = StreamSchema("T", (*SMALL.attributes, Attribute("kind", AttributeType.STRING)))
    options = {"proto": PROTO, "message": "shop.Order"}
    keyed = [("who.name", "who"), ("n", "n"), ("kind", "kind")]
    sink = sink_mapper("protobuf", options, keyed, stream)
    rows = rows_of(
        [{"who": "a", "n": None, "kind": "OLD"}, {"who": "b", "n": 1, "kind": "?"}], stream
    )
    good, bad = sink.encode(rows)
    message = message_class(PROTO, "Order")()
    message.ParseFromString(good)
    assert (message.who.name, message.kind, message.HasField("n")) == ("a", 7, False)
    assert isinstance(bad, Refusal)
    assert 'no value of enum "Kind"' in bad.decode()
    paths = [(attribute, path) for path, attribute in keyed]
    found = source_mapper("protobuf", options, paths, stream).decode([good])
    assert found.rows.to_pylist() == [{"who": "a", "n": None, "kind": "OLD"}]


LARGE_PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
option (file).opt = { a: 1 b: [1, 2] c { d: "}" } };
message Order {
  reserved 20, 22 to 30; reserved "old";
  enum Kind { option allow_alias = true; NEW = 0; OLD = 7 [deprecated = true]; PAST = 7;
    HEX = 0x10; }
  message Person { string name = 1; message Deep { int32 x = 1; } Deep deep = 2; }
  map<string, Person> people_by = 1 [(opt) = { z: ["]"] }];
  oneof what { string a = 2; Person.Deep b = 3; }
  optional int32 n = 4;
  google.protobuf.Timestamp at = 5;
  extend Order { }
}
service Shop { rpc Get (Order) returns (stream Order) { option (http) = { get: "/v1" }; }
               rpc Put (Order) returns (Order); }
"""


def test_a_definition_with_all_usual_parts_is_read() -> None:
    made = message_class(LARGE_PROTO, "Order")
    message = made()
    message.people_by["k"].deep.x = 3
    message.b.x = 4
    message.at.seconds = 5
    again = made.FromString(message.SerializeToString())
    assert (again.people_by["k"].deep.x, again.WhichOneof("what"), again.HasField("n")) == (
        3, "b", False,
    )  # fmt: skip
    assert again.at.ToJsonString() == "1970-01-01T00:00:05Z"


def test_a_compiled_definition_has_what_a_text_can_not_have() -> None:
    from google.protobuf import descriptor_pb2

    files = descriptor_pb2.FileDescriptorSet()
    first, second = files.file.add(name="a.proto"), files.file.add(name="b.proto")
    first.package = "lib"
    inner = first.message_type.add(name="Who").field.add(name="name", number=1, label=1, type=9)
    assert inner.name == "name"
    second.dependency.append("a.proto")
    event = second.message_type.add(name="Event")
    event.field.add(name="who", number=1, label=1, type_name=".lib.Who")
    # A group of proto2.
    event.nested_type.add(name="G").field.add(name="n", number=1, label=1, type=5)
    event.field.add(name="g", number=2, label=1, type=10, type_name=".Event.G")
    text = base64.b64encode(files.SerializeToString()).decode()
    options = {"descriptor": text, "message": "Event"}
    stream = StreamSchema("T", SMALL.attributes[:1])
    (payload,) = sink_mapper("protobuf", options, [("who.name", "who")], stream).encode(
        rows_of([{"who": "ä"}], stream)
    )
    found = source_mapper("protobuf", options, [("who", "who.name")], stream).decode([payload])
    assert found.rows.to_pylist() == [{"who": "ä"}]


def test_a_refusal_of_avro_names_the_field_inside_of_the_record() -> None:
    template = '{"who":{"name":5},"n":{{n}},"tags":[]}'
    sink = sink_mapper("avro", {"schema.def": json.dumps(SCHEMA)}, [(None, template)], SMALL)
    (refusal,) = sink.encode(rows_of([{"who": "a", "n": 7}], SMALL))
    assert refusal.decode().endswith('field "who.name" is 5, not a string')


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
        await stage.until("the others", lambda: instance._counts()["events_out"] == 2)


REGISTRY = """@App:name('Reg')
@source(type='http', receiver.url='http://127.0.0.1:0/in', @map(type='avro', schema.id='5',
        schema.registry='{}', use.avro.deserializer='true'))
define stream S (id long, name string);
@sink(type='http', publisher.url='{}', @map(type='avro', schema.registry='{}', schema.id='5',
      use.avro.serializer='true'))
define stream T (id long, name string);
from S select id, name insert into T;
"""


@pytest.mark.nats
async def test_schemas_of_a_registry(nats_server: NatsServer) -> None:
    # The field's name differs in case, and there is one that the stream does not have.
    fields = [
        {"name": "name", "type": ["null", "string"]},
        {"name": "id", "type": "long"},
        {"name": "more", "type": "int", "default": 3},
    ]
    schema = {"type": "record", "name": "R", "fields": fields}
    statuses = [503]
    taken: list[bytes] = []

    async def answer(request: Request) -> Response:
        if statuses:
            return Response(statuses.pop())
        return Response(200, orjson.dumps({"schema": orjson.dumps(schema).decode()}))

    async def take(request: Request) -> Response:
        taken.append(await request.body(1000) or b"")
        return Response(200)

    servers = HttpServers()
    port = await servers.open("127.0.0.1", 0, "/sub/schemas/ids/5", answer)
    await servers.open("127.0.0.1", port, "/take", take)
    root = f"http://127.0.0.1:{port}"
    try:
        text = REGISTRY.format(f"{root}/sub/", f"{root}/take", f"{root}/sub")
        async with staged(nats_server, text) as stage, httpx.AsyncClient() as client:
            status = await stage.until_running(stage.start("receiver-S"))
            reasons = [report.error for report in stage.reports if report.error]
            assert "the schema registry answered 503" in reasons
            out = io.BytesIO(b"\0\0\0\0\5")
            out.seek(5)
            event = {"name": "x", "id": 7, "more": 1}
            fastavro.schemaless_writer(out, fastavro.parse_schema(schema), event)
            url = status.connectors[0].endpoint
            assert (await client.post(url, content=out.getvalue())).status_code == 200
            other = b"\0\0\0\0\6" + out.getvalue()[5:]
            refused = await client.post(url, content=other)
            assert "schema 6, and schema 5 is read" in refused.json()["reason"]
            assert await stage.events("S") == [{"id": 7, "name": "x"}]
            stage.start("sink-T")
            await stage.publish("T", {"id": 7, "name": "x"})
            await stage.until("a request", lambda: taken)
    finally:
        for path in ("/sub/schemas/ids/5", "/take"):
            await servers.close("127.0.0.1", port, path)
    (payload,) = taken
    assert payload[:5] == b"\0\0\0\0\5"
    read: Any = fastavro.schemaless_reader(io.BytesIO(payload[5:]), fastavro.parse_schema(schema))
    assert read == {"name": "x", "id": 7, "more": 3}
