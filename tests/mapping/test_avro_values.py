"""Each cell of the tables of conversions of Avro in docs/types.md."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import fastavro
import numpy as np

from mesh.mapping import conversions as tables
from tests.support.conversions import Sample, check
from tests.support.payloads import ANY, LONGS, NULL, ODD, cases, read, whole, written
from tests.support.together import together

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_nats.conversions import ConversionCell


def logical(base: str, kind: str, /, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": kind, **more}


FIXED = {"type": "fixed", "name": "F", "size": 2}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
DECIMALS = [
    logical("bytes", "decimal", precision=20, scale=2),
    logical("fixed", "decimal", precision=20, scale=2, name="D", size=9),
]
UUIDS = [logical("string", "uuid"), logical("fixed", "uuid", name="U", size=16)]
DURATION = logical("fixed", "duration", name="DU", size=12)


class Raw:
    """A value of a schema as the octets have it, without logical types."""

    def __init__(self, schema: Any, value: Any) -> None:
        self.schema, self.value = schema, value

    @property
    def definition(self) -> str:
        fields = [{"name": "a", "type": self.schema}]
        return json.dumps({"type": "record", "name": "R", "fields": fields})

    def payload(self) -> bytes:
        out = io.BytesIO()
        plain = json.loads(self.definition, object_hook=without_logical)
        fastavro.schemaless_writer(out, fastavro.parse_schema(plain), {"a": self.value})
        return out.getvalue()

    def __repr__(self) -> str:
        return f"{self.schema}: {self.value}"


def without_logical(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "logicalType"}


def raw(schema: Any, value: Any, inside: Mapping[str, Any], **beyond: Any) -> Sample:
    return Sample(Raw(schema, value), inside, {c: Raw(schema, v) for c, v in beyond.items()})


def unscaled(schema: Any, value: int) -> bytes:
    return value.to_bytes(schema.get("size", 9), "big", signed=True)


def decimal_samples() -> list[Sample]:
    return [
        raw(schema, unscaled(schema, 1200), whole(12, "12.00"), int=unscaled(schema, 1250),
            long=unscaled(schema, 1), float=unscaled(schema, 1677721701),
            double=unscaled(schema, 12345678901234567801))
        for schema in DECIMALS
    ]  # fmt: skip


AVRO = {
    "null": [raw(["null", kind], None, NULL) for kind in ("int", DECIMALS[0])],
    "boolean": [raw("boolean", True, {"string": "true", "bool": True})],
    "int": [raw("int", 7, whole(7), float=(1 << 24) + 1)],
    "long": [raw("long", 7, whole(7), **LONGS)],
    "float": [raw("float", 1.5, {"string": "1.5", "float": 1.5, "double": 1.5})],
    "double": [raw("double", 0.5, {"string": "0.5", "float": 0.5, "double": 0.5}, float=1e39)],
    "string, enum": [raw("string", "ä", {"string": "ä"}), raw(ENUM, "B", {"string": "B"})],
    "bytes, fixed": [raw("bytes", b"x", {}), raw(FIXED, b"xy", {})],
    "array, map, record": [
        raw({"type": "array", "items": logical("int", "date")}, [0], {"string": '["1970-01-01"]'}),
        raw({"type": "map", "values": DECIMALS[0]}, {"k": b"\x05"}, {"string": '{"k":0.05}'}),
        raw({"type": "record", "name": "I", "fields": [{"name": "x", "type": "long"}]},
            {"x": 1 << 60}, {"string": '{"x":1152921504606846976}'}),
    ],
    "date, time-millis": [
        raw(logical("int", "date"), -1, whole(-1, "1969-12-31"), float=(1 << 24) + 1),
        raw(logical("int", "time-millis"), 1, whole(1, "00:00:00.001"), float=(1 << 24) + 1),
    ],
    "time-micros": [
        raw(logical("long", "time-micros"), 10**6, whole(10**6, "00:00:01"),
            int=1 << 31, float=(1 << 24) + 1),
    ],
    "timestamp-, local-timestamp-": [
        raw(logical("long", f"{zone}timestamp-{unit}"), 7, whole(7, f"{text}{'' if zone else 'Z'}"),
            **LONGS)
        for zone in ("", "local-")
        for unit, text in (("millis", "1970-01-01T00:00:00.007"),
                           ("micros", "1970-01-01T00:00:00.000007"),
                           ("nanos", "1970-01-01T00:00:00.000000007"))
    ],
    "uuid": [
        raw(UUIDS[0], "00010203-0405-0607-0809-0a0b0c0d0e0f",
            {"string": "00010203-0405-0607-0809-0a0b0c0d0e0f"}),
        raw(UUIDS[1], bytes(range(16)), {"string": "00010203-0405-0607-0809-0a0b0c0d0e0f"}),
    ],
    "decimal": decimal_samples(),
    "duration": [
        raw(DURATION, bytes([1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]), {"string": "P1M2DT0.003S"}),
    ],
}  # fmt: skip


@together(("kind", "column", "cell", "sample"), cases(tables.AVRO_READ, AVRO))
def test_avro_is_read_as_the_table_says(
    kind: str, column: str, cell: ConversionCell, sample: Sample
) -> None:
    def convert(value: Any) -> Any:
        return read_avro(column, value)

    check(cell, sample, column, convert)


def read_avro(column: str, value: Raw) -> Any:
    return read("avro", column, value.payload(), **{"schema.def": value.definition})


def write(schema: Any, values: Mapping[str, Any], octets: Any, **beyond: Any) -> Sample:
    """Values by Siddhi type, all written as ``octets``; values that are refused."""
    expected = dict.fromkeys(values, Raw(schema, octets).payload())
    return Sample(
        (schema, dict(values)), expected, {c: (schema, {c: v}) for c, v in beyond.items()}
    )


def temporal(schema: Any, text: str, number: int, **beyond: Any) -> Sample:
    return write(schema, {"string": text, "int": number, "long": number}, number, **beyond)


AVRO_WRITTEN = {
    "boolean": [write("boolean", {"bool": True}, True)],
    "int": [write("int", {"int": 7, "long": 7}, 7, long=1 << 31)],
    "long": [write("long", {"int": 7, "long": 7}, 7)],
    "float": [
        write("float", {"int": 2, "long": 2, "float": 2.0, "double": 2.0}, 2.0,
              int=(1 << 24) + 1, long=ODD, double=1e39),
    ],
    "double": [
        write("double", {"int": 2, "long": 2, "float": 2.0, "double": 2.0}, 2.0, long=ODD),
    ],
    "string": [write("string", {"string": "ä"}, "ä")],
    "enum": [write(ENUM, {"string": "B"}, "B", string="C")],
    "bytes, fixed": [write("bytes", {}, b""), write(FIXED, {}, b"xy")],
    "date, time-millis": [
        temporal(logical("int", "date"), "1969-12-31", -1, string="1969-12-32", long=1 << 31),
        temporal(logical("int", "time-millis"), "00:00:00.001", 1, string="00:00:00.0001",
                 long=1 << 31),
    ],
    "time-micros": [
        temporal(logical("long", "time-micros"), "00:00:01.5", 1_500_000, string="24:00:00"),
    ],
    "timestamp-, local-timestamp-": [
        temporal(logical("long", "timestamp-millis"), "1970-01-01T01:00:00.007+01:00", 7,
                 string="1970-01-01T00:00:00.0001Z"),
        temporal(logical("long", "timestamp-micros"), "1969-12-31 23:59:59.999999Z", -1,
                 string="1969-12-31"),
        temporal(logical("long", "timestamp-nanos"), "1970-01-01T00:00:00.000000007Z", 7,
                 string="x"),
        temporal(logical("long", "local-timestamp-millis"), "1970-01-01T00:00:00.007", 7,
                 string="1970-01-01T00:00:00Z"),
    ],
    "uuid": [
        write(UUIDS[0], {"string": "00010203-0405-0607-0809-0a0b0c0d0e0f"},
              "00010203-0405-0607-0809-0a0b0c0d0e0f", string="x"),
        write(UUIDS[1], {"string": "00010203-0405-0607-0809-0a0b0c0d0e0f"}, bytes(range(16)),
              string="0001"),
    ],
    "decimal": [
        write(logical("bytes", "decimal", precision=4, scale=1),
              {"string": "2.0", "int": 2, "long": 2, "float": 2.0, "double": 2.0}, b"\x14",
              string="2.05", int=1000, long=1000, float=float(np.float32(2.05)), double=2.05),
    ],
    "duration": [
        write(DURATION, {"string": "P1M2DT0.003S"}, bytes([1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]),
              string="1 month"),
    ],
}  # fmt: skip


@together(("kind", "column", "cell", "sample"), cases(tables.AVRO_WRITTEN, AVRO_WRITTEN))
def test_avro_is_written_as_the_table_says(
    kind: str, column: str, cell: ConversionCell, sample: Sample
) -> None:
    def convert(given: Any) -> Any:
        schema, values = given
        definition = Raw(schema, None).definition
        value = values.get(column, ANY[column])
        return written("avro", column, value, **{"schema.def": definition})

    check(cell, sample, column, convert)
