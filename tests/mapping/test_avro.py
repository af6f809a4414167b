"""Avro: paths, templates, registries, and refusals."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import fastavro
import httpx
import orjson
import pyarrow as pa
import pytest

from mesh.mapping import sink_mapper, source_mapper
from mesh.mapping.events import Refusal
from mesh.receiver.http_server import HttpServers, Request, Response
from tests.support.binary_maps import SMALL, rows_of
from tests.support.connectors import staged

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

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


def test_a_refusal_of_avro_names_the_field_inside_of_the_record() -> None:
    template = '{"who":{"name":5},"n":{{n}},"tags":[]}'
    sink = sink_mapper("avro", {"schema.def": json.dumps(SCHEMA)}, [(None, template)], SMALL)
    (refusal,) = sink.encode(rows_of([{"who": "a", "n": 7}], SMALL))
    assert refusal.decode().endswith('field "who.name" is 5, not a string')


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
