"""Each cell of the tables of conversions of Protocol Buffers in docs/types.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mesh.mapping import conversions as tables
from mesh.mapping.proto_text import message_class
from tests.support.conversions import Sample, check
from tests.support.payloads import ANY, LONGS, NULL, ODD, REAL, WHOLE, cases, read, whole, written
from tests.support.together import together

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_nats.conversions import ConversionCell

PROTO = """
syntax = "proto3";
import "google/protobuf/duration.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/wrappers.proto";
message M {{ {field} a = 1;{more}
  enum Kind {{ NEW = 0; OLD = 7; }} message In {{ string x = 1; repeated int64 y = 2; }} }}
"""


class Field:
    """A field of a message, and its value in the JSON of Protocol Buffers."""

    def __init__(self, kind: str, value: Any) -> None:
        self.kind, self.value = kind, value

    @property
    def text(self) -> str:
        return PROTO.format(field=self.kind, more=" oneof o { int32 b = 2; }")

    def payload(self) -> bytes:
        from google.protobuf import json_format

        message = message_class(self.text, "M")()
        json_format.ParseDict({} if self.value is None else {"a": self.value}, message)
        return bytes(message.SerializeToString(deterministic=True))


def field(kind: str, value: Any, inside: Mapping[str, Any], **beyond: Any) -> Sample:
    return Sample(Field(kind, value), inside, {c: Field(kind, v) for c, v in beyond.items()})


TIMESTAMP, SPAN = "google.protobuf.Timestamp", "google.protobuf.Duration"
PROTOBUF = {
    "not set": [field(kind, None, NULL) for kind in ("optional int32", TIMESTAMP, "In",
                                                     "google.protobuf.Int64Value")],
    "bool": [field("bool", True, {"string": "true", "bool": True}),
             field("google.protobuf.BoolValue", False, {"string": "false", "bool": False})],
    "int32, sint32, sfixed32": [
        field(kind, -7, whole(-7), float=(1 << 24) + 1)
        for kind in ("int32", "sint32", "sfixed32", "google.protobuf.Int32Value")
    ],
    "int64, sint64, sfixed64": [
        field(kind, -7, whole(-7), **LONGS)
        for kind in ("int64", "sint64", "sfixed64", "google.protobuf.Int64Value")
    ],
    "uint32, fixed32": [
        field(kind, 7, whole(7), int=1 << 31, float=(1 << 24) + 1) for kind in ("uint32", "fixed32")
    ],
    "uint64, fixed64": [field(kind, 7, whole(7), **WHOLE) for kind in ("uint64", "fixed64")],
    "float": [field("float", 0.5, REAL)],
    "double": [field("double", 0.5, REAL, float=1e39)],
    "string": [field("string", "ä", {"string": "ä"}),
               field("google.protobuf.StringValue", "", {"string": ""})],
    "bytes": [field("bytes", "eA==", {})],
    "enum": [field("Kind", "OLD", whole(7, "OLD"), float=(1 << 24) + 1)],
    "message, map, repeated": [
        field("In", {"x": "ä", "y": [1]}, {"string": '{"x":"ä","y":["1"]}'}),
        field("map<string, int32>", {"k": 1}, {"string": '{"k":1}'}),
        field("map<int64, In>", {"5": {}}, {"string": '{"5":{}}'}),
        field("repeated Kind", ["OLD"], {"string": '["OLD"]'}),
        field("google.protobuf.Struct", {"k": [True, None]}, {"string": '{"k":[true,null]}'}),
    ],
    "Timestamp, Duration": [
        field(TIMESTAMP, "1970-01-01T00:00:00.007Z", whole(7, "1970-01-01T00:00:00.007Z"),
              int="2026-01-01T00:00:00Z", long="1970-01-01T00:00:00.000001Z",
              float="1970-01-01T04:39:37.217Z", double="1970-01-01T00:00:00.000001Z"),
        field(SPAN, "-1.500s", whole(-1500, "-1.5s"), int="10000000s", long="0.000000001s",
              float="16777.217s", double="0.000000001s"),
    ],
}  # fmt: skip


@together(("kind", "column", "cell", "sample"), cases(tables.PROTOBUF_READ, PROTOBUF))
def test_protobuf_is_read_as_the_table_says(
    kind: str, column: str, cell: ConversionCell, sample: Sample
) -> None:
    def convert(value: Field) -> Any:
        return read("protobuf", column, value.payload(), proto=value.text, message="M")

    check(cell, sample, column, convert)


def put(kind: str, values: Mapping[str, Any], value: Any, **beyond: Any) -> Sample:
    expected = dict.fromkeys(values, Field(kind, value).payload())
    return Sample((kind, dict(values)), expected, {c: (kind, {c: v}) for c, v in beyond.items()})


SEVEN = {"int": 7, "long": 7}
HALF = {"float": 0.5, "double": 0.5}
TWO = {"int": 2, "long": 2, "float": 2.0, "double": 2.0}
PROTOBUF_WRITTEN = {
    "bool": [put("bool", {"bool": True}, True)],
    "int32, sint32, sfixed32": [put(k, SEVEN, 7, long=1 << 31) for k in ("int32", "sfixed32")],
    "int64, sint64, sfixed64": [
        put(k, SEVEN, 7) for k in ("sint64", "google.protobuf.Int64Value")
    ],
    "uint64, fixed64": [put("uint64", SEVEN, 7, int=-1, long=-1)],
    "float": [put("float", TWO, 2.0, int=(1 << 24) + 1, long=ODD, double=1e39)],
    "double": [put("double", TWO, 2.0, long=ODD)],
    "string": [put("string", {"string": "ä"}, "ä")],
    "bytes": [put("bytes", {}, "")],
    "enum": [put("Kind", {"string": "OLD", **SEVEN}, "OLD", string="?", long=1 << 31)],
    "message, map, repeated": [
        put("In", {"string": '{"x":"ä"}'}, {"x": "ä"}, string='{"z":1}'),
        put("map<string, int32>", {"string": '{"k":1}'}, {"k": 1}, string="[1]"),
        put("repeated Kind", {"string": '["OLD"]'}, ["OLD"], string="x"),
    ],
    "Timestamp, Duration": [
        put(TIMESTAMP, {"string": "1970-01-01T00:00:00.007Z", **SEVEN}, "1970-01-01T00:00:00.007Z",
            string="1970"),
        put(SPAN, {"string": "0.007s", **SEVEN}, "0.007s", string="7"),
    ],
}  # fmt: skip


@together(("kind", "column", "cell", "sample"), cases(tables.PROTOBUF_WRITTEN, PROTOBUF_WRITTEN))
def test_protobuf_is_written_as_the_table_says(
    kind: str, column: str, cell: ConversionCell, sample: Sample
) -> None:
    def convert(given: Any) -> Any:
        name, values = given
        text = Field(name, None).text
        value = values.get(column, ANY[column])
        return written("protobuf", column, value, proto=text, message="M")

    check(cell, sample, column, convert)
