"""Declarations of the mappers of this project."""

from __future__ import annotations

from typing import Final

from mesh.connect.spec import Kind, Option, Role, Spec

_FAIL: Final = Option(
    "fail.on.missing.attribute",
    Kind.SWITCH,
    "true",
    doc="An event without an attribute is an error; false: the attribute is null.",
)
_GROUPING: Final = Option("event.grouping.enabled", Kind.SWITCH, "false", is_ignored=True)
_GROUPS: Final = Option(
    "event.grouping.enabled",
    Kind.SWITCH,
    "false",
    doc="One payload for all events of a message of the channel that have equal dynamic options.",
)
_DELIMITER: Final = Option("delimiter", default=",", doc="Between values; \\t is a tab.")
_AVRO: Final = (
    Option("schema.def", doc="Schema of the record; made of the stream by default."),
    Option("schema.registry", Kind.URL, doc="Registry that has the schema instead."),
    Option("schema.id", Kind.NUMBER, doc="Number of the schema."),
)
_PROTO: Final = (
    Option("proto", doc="Text of a definition; made of the stream by default: fields 1 to n."),
    Option(
        "descriptor",
        doc="Instead of proto: base64 of what protoc --include_imports "
        "--descriptor_set_out writes; for definitions of several files, groups, editions.",
    ),
    Option("message", doc="Name of the message in it; of the last file, if it has no package."),
    Option("class", doc="Class of the original's apps, which proto or descriptor defines here."),
)
_WHOLE: Final = "each payload is a whole document: have files read with mode='text.full'"
_LINE: Final = Option("new.line.character", default="\n", doc="Between lines.")


def _source(name: str, doc: str, *options: Option, fails: bool = True, extra: str = "") -> Spec:
    all_options = (_FAIL, *options) if fails else options
    # The text mapper has an option for each of its expressions.
    is_open = name == "text"
    return Spec(
        name, Role.SOURCE_MAPPER, doc, all_options, "mesh.mapping:source_mapper", is_open=is_open,
        extra=extra,
    )  # fmt: skip


def _sink(name: str, doc: str, *options: Option, extra: str = "") -> Spec:
    return Spec(name, Role.SINK_MAPPER, doc, options, "mesh.mapping:sink_mapper", extra=extra)


#: Of sinks that write JSON.
_RAW: Final = Option(
    "json.attributes",
    doc="Attributes whose texts are JSON, comma-separated: they are put in as they are.",
)
SPECS: Final = (
    _source("passThrough", "Events as the transport has them: JSON.", fails=False),
    _source(
        "json",
        "Objects by attribute name, alone, in an array, or each inside of 'event'.",
        Option("enclosing.element", default="$", doc="JSON path of the events in the payload."),
        Option("validate.json", Kind.SWITCH, "false", is_ignored=True),
        _GROUPING,
    ),
    _source(
        "csv",
        "Values in the order of the attributes, one event a line.",
        _DELIMITER,
        Option("header", Kind.SWITCH, "false", aliases=("header.present",),
               doc="The first line of each payload has names; without @attributes values go by "
               "them. Names that are none of the stream's, in any case, leave values in place."),
        Option("fail.on.unknown.attribute", Kind.SWITCH, "true",
               doc="False: a value that is missing, or is none of its attribute, is null."),
        _GROUPING,
    ),
    _source(
        "text",
        'Lines such as a:"x"; or regular expressions by name, as in regex.A.',
        Option("delimiter", default="~~~~~~~~~~", doc="A line between two events."),
        _LINE,
        _GROUPING,
    ),
    _source(
        "keyvalue",
        "A map by attribute name: JSON, or a form (a=1&b=2).",
        Option("implicit.cast.enable", Kind.SWITCH, "false", doc="Convert texts to types."),
    ),
    _source(
        "xml",
        "Elements by attribute name in <events><event>.",
        Option("enclosing.element", doc="Path of the element whose children are events."),
        Option("namespaces", doc="prefix=uri, comma-separated."),
        Option("enclosing.element.as.event", Kind.SWITCH, "false",
               doc="Each enclosing element is an event itself."),
        Option("extract.leaf.node.data", Kind.SWITCH, "false",
               doc="Also elements inside of an event's elements. With @attributes each innermost "
               "one is an event, with the values of those around it: /child/detail/@key."),
        Option("enable.streaming.xml.content", Kind.SWITCH, "false", note=_WHOLE,
               doc=f"Each enclosing element is an event itself; {_WHOLE}."),
    ),
    _source("msgpack", "MessagePack maps by attribute name, alone or in an array."),
    _source(
        "avro",
        "Avro records by attribute name, or by paths.",
        *_AVRO,
        Option("use.avro.deserializer", Kind.SWITCH, "false",
               doc="Payloads begin with byte 0 and the number of a schema."),
        extra="avro",
    ),
    _source("protobuf", "Messages by attribute name, or by paths.", *_PROTO, extra="protobuf"),
    _source(
        "binary",
        "Numbers of fixed sizes and texts with their lengths, as the original's source tcp has.",
        fails=False,
    ),
    _source("arrow", "An Arrow IPC stream with a column for each attribute."),
    _sink("passThrough", "Events as JSON objects by attribute name.", _RAW),
    _sink(
        "json",
        '{"event":{..}} for each event.',
        Option("enclosing.element", doc="Path such as $.p: gives {\"p\":..}."),
        Option("envelope", default="event", choices=("event", "none"),
               doc="none: the object without 'event'."),
        Option("enable.null.attribute.value", Kind.SWITCH, "true", is_ignored=True),
        Option("validate.json", Kind.SWITCH, "false",
               doc="Refuse events whose @payload gives no JSON."),
        _RAW,
        _GROUPS,
    ),
    _sink(
        "csv",
        "Values in the order of the attributes, null as null.",
        _DELIMITER,
        Option("header", Kind.SWITCH, "false",
               doc="A line of names begins each payload, or each file of the sink file."),
        _GROUPS,
    ),
    _sink("text", 'Lines such as a:"x",', _LINE, _GROUPS,
          Option("delimiter", default="~~~~~~~~~~", doc="A line between events of a group."),
          Option("mustache.enabled", Kind.SWITCH, "false",
                 doc="@payload is of Mustache: {{a}} escapes for HTML, {{{a}}} does not.")),
    _sink("keyvalue", "A map by attribute name, as JSON.", _RAW),
    _sink(
        "xml",
        "<events><event><a>1</a></event></events>",
        Option("enclosing.element", doc="Element around each payload, such as <p>."),
        Option("validate.xml", Kind.SWITCH, "false",
               doc="Refuse events whose @payload gives no XML."),
        _GROUPS,
    ),
    _sink("binary", "Numbers of fixed sizes and texts with their lengths, with the event's time."),
    _sink("msgpack", "A MessagePack map by attribute name."),
    _sink(
        "avro",
        "Avro records by attribute name, or of a JSON template.",
        *_AVRO,
        Option("use.avro.serializer", Kind.SWITCH, "false",
               doc="Payloads begin with byte 0 and schema.id."),
        extra="avro",
    ),
    _sink("protobuf", "Messages by attribute name, or @payload(field='attribute').", *_PROTO,
          extra="protobuf"),
    _sink("arrow", "An Arrow IPC stream of one event."),
)  # fmt: skip
