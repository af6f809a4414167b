"""Definitions of Protocol Buffers as texts."""

from __future__ import annotations

from mesh.mapping.proto_text import message_class

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
