"""Protocol Buffers: paths, enums, and compiled definitions."""

from __future__ import annotations

import base64

from mesh.mapping import sink_mapper, source_mapper
from mesh.mapping.events import Refusal
from mesh.mapping.proto_text import message_class
from mesh.model.types import Attribute, AttributeType, StreamSchema
from tests.support.binary_maps import SMALL, rows_of

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
