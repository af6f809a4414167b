"""Mappers: payloads of the outside world to rows and back, vectorised and without I/O.

A payload that can't be read gives an error by its number and the event's index, never an exception.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mesh.mapping import sinks
from mesh.mapping.avro import AvroSink, AvroSource
from mesh.mapping.binary import BinarySink, BinarySource
from mesh.mapping.encoder import against_json, against_xml
from mesh.mapping.json_source import JsonPathSource, JsonSource, PlainSource
from mesh.mapping.protobuf import ProtobufSink, ProtobufSource, class_for
from mesh.mapping.row_source import RowSource
from mesh.mapping.text_sources import CsvSource, KeyValueSource, PropertySource, TextSource, split
from mesh.mapping.xml_source import XmlSource
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from mesh.mapping.events import SinkMapper, SourceMapper
    from mesh.model.types import StreamSchema

_PLAIN: Final = {
    "passThrough": "application/json",
    "msgpack": "application/msgpack",
    "arrow": "application/vnd.apache.arrow.stream",
}
_REGEX: Final = "regex."
#: Mappers of JSON objects, which a row is.
_OF_ROWS: Final = ("passThrough", "json", "keyvalue")
M = TypeVar("M")


def source_mapper(
    kind: str,
    options: Mapping[str, object],
    attributes: Sequence[tuple[str | None, str]],
    stream: StreamSchema,
    *,
    are_rows: bool = False,
) -> SourceMapper:
    """The mapper of a source.

    Args:
        kind: its type.
        options: values by name, as ``Spec.values`` gives them.
        attributes: of ``@attributes``; empty for the default mapping.
        stream: the stream that the events are for.
        are_rows: whether payloads are rows of a database, see ``row_source``.

    Raises:
        ValueError: the mapping is invalid, with the reason.
    """
    _refuse_objects(stream)
    make_mapper = _row_mapper if are_rows and kind in _OF_ROWS else _payload_mapper
    missing = "error" if options.get("fail.on.missing.attribute", True) else "null"
    by_place = [name is None for name, _ in attributes]
    named = zip(stream.names, (text for _, text in attributes), strict=False)
    paths = dict(named) if any(by_place) else {n: text for n, text in attributes if n is not None}
    if attributes and set(paths) != set(stream.names):
        raise ValueError("@attributes does not name each attribute of the stream")
    body_paths, keys = split(paths)
    if not keys:
        return make_mapper(kind, options, body_paths, stream, missing)
    rest = replace(stream, attributes=tuple(a for a in stream.attributes if a.name in body_paths))
    inner = make_mapper(kind, options, body_paths, rest, missing) if body_paths else None
    return PropertySource(stream.arrow, missing, keys, inner)


def _row_mapper(
    kind: str,
    options: Mapping[str, object],
    paths: Mapping[str, str],
    stream: StreamSchema,
    missing: str,
) -> SourceMapper:
    """As ``_payload_mapper``, for payloads that are rows."""
    if (options.get("enclosing.element") or "$") != "$":
        return _payload_mapper(kind, options, paths, stream, missing)
    is_path = kind == "json" and bool(paths)
    places = paths or {name: name for name in stream.names}
    casts = bool(options.get("implicit.cast.enable"))
    return RowSource(stream.arrow, missing, places, is_path=is_path, casts=casts)


def _payload_mapper(
    kind: str,
    options: Mapping[str, Any],
    paths: Mapping[str, str],
    stream: StreamSchema,
    missing: str,
) -> SourceMapper:
    """The mapper of the attributes that are in payloads; ``paths`` is empty for the default."""
    schema = stream.arrow
    match kind:
        case "passThrough" | "msgpack" | "arrow":
            renamed = [path for name, path in paths.items() if path != name]
            return _without(renamed, PlainSource(schema, missing, _PLAIN[kind]), kind)
        case "json" if paths:
            return JsonPathSource(schema, missing, paths, options.get("enclosing.element") or "$")
        case "json":
            if (options.get("enclosing.element") or "$") == "$":
                return JsonSource(schema, missing)
            default_paths = {name: f"$['{name}']" for name in stream.names}
            return JsonPathSource(schema, missing, default_paths, options["enclosing.element"])
        case "csv":
            return CsvSource(
                schema,
                delimiter=options.get("delimiter") or ",",
                has_header=bool(options.get("header")),
                positions=_places(paths, stream.names) if paths else (),
                wrong="error" if options.get("fail.on.unknown.attribute", True) else "null",
            )
        case "text":
            patterns = {n[len(_REGEX) :]: t for n, t in options.items() if n.startswith(_REGEX)}
            return TextSource(
                schema, missing, delimiter=options["delimiter"], patterns=patterns, groups=paths
            )
        case "keyvalue":
            keys = paths or {name: name for name in stream.names}
            casts = bool(options.get("implicit.cast.enable"))
            return KeyValueSource(schema, missing, keys, casts=casts)
        case "xml":
            return _xml_source(options, paths, stream, missing)
        case "binary":
            renamed = [path for name, path in paths.items() if path != name]
            return _without(renamed, BinarySource(schema), kind)
        case "avro":
            _check_registry(options)
            return AvroSource(
                schema, missing, options.get("schema.def"), paths,
                has_head=bool(options.get("use.avro.deserializer")),
                number=options.get("schema.id"),
            )  # fmt: skip
        case "protobuf":
            message_class = class_for(*_definition(options), schema)
            return ProtobufSource(schema, missing, message_class, paths)
        case _:
            raise ValueError(f'there is no source mapper "{kind}"')


def _xml_source(
    options: Mapping[str, Any], paths: Mapping[str, str], stream: StreamSchema, missing: str
) -> XmlSource:
    pairs = (one.partition("=") for one in (options.get("namespaces") or "").split(","))
    spaces = {name.strip(): uri.strip() for name, equals, uri in pairs if equals}
    # Streamed content of the original has events there.
    is_event = options.get("enclosing.element.as.event") or options.get(
        "enable.streaming.xml.content"
    )
    return XmlSource(
        stream.arrow, missing, paths=paths, enclosing=options.get("enclosing.element") or "",
        namespaces=spaces, is_event=bool(is_event),
        takes_leaves=bool(options.get("extract.leaf.node.data")),
    )  # fmt: skip


def sink_mapper(
    kind: str,
    options: Mapping[str, Any],
    payload: Sequence[tuple[str | None, str]],
    stream: StreamSchema,
) -> SinkMapper:
    """The mapper of a sink; ``payload`` is that of ``@payload``, else as ``source_mapper``."""
    _refuse_objects(stream)
    keyed = [(key, text) for key, text in payload if key is not None]
    text = next((text for key, text in payload if key is None), None)
    more: dict[str, Any] = {"is_grouping": bool(options.get("event.grouping.enabled"))}
    if options.get(f"validate.{kind}"):
        more["objection"] = {"json": against_json, "xml": against_xml}[kind]
    enclosing = options.get("enclosing.element") or ""
    raw = _raw_attributes(options, stream)
    match kind:
        case "json" | "xml" | "text" if text is not None:
            return sinks.template_sink(text, stream.names, kind, options, **more)
        case "json":
            return sinks.json_sink(options.get("envelope") or "event", enclosing, raw, **more)
        case "xml":
            return sinks.xml_sink(enclosing, stream.names, **more)
        case "text":
            return sinks.text_sink(options, **more)
        case "csv":
            order = _order(keyed, stream.names) if keyed else stream.names
            return sinks.csv_sink(
                options.get("delimiter") or ",", order, has_header=bool(options.get("header")),
                **more,
            )  # fmt: skip
        case "keyvalue":
            return sinks.keyvalue_sink(keyed, stream.names, raw)
        case "passThrough":
            return sinks.plain_json_sink(raw)
        case "msgpack":
            return _without(payload, sinks.msgpack_sink(), kind)
        case "arrow":
            return _without(payload, sinks.arrow_sink(), kind)
        case "binary":
            return _without(payload, BinarySink(), kind)
        case "avro":
            _check_registry(options)
            head = int(options.get("schema.id") or 0)
            return AvroSink(
                stream.arrow, options.get("schema.def"), text,
                head if options.get("use.avro.serializer") else None,
            )  # fmt: skip
        case "protobuf":
            message_class = class_for(*_definition(options), stream.arrow)
            return ProtobufSink(stream.arrow, message_class, keyed)
        case _:
            raise ValueError(f'there is no sink mapper "{kind}"')


def _raw_attributes(options: Mapping[str, Any], stream: StreamSchema) -> tuple[str, ...]:
    """The attributes of ``json.attributes``, which are texts."""
    listed = str(options.get("json.attributes") or "").split(",")
    raw = tuple(one.strip() for one in listed if one.strip())
    texts = {one.name for one in stream.attributes if one.type is AttributeType.STRING}
    other = next((one for one in raw if one not in texts), None)
    if other is not None:
        raise ValueError(f'json.attributes names "{other}", which is no attribute of type string')
    return raw


def _definition(options: Mapping[str, Any]) -> tuple[str | None, str | None, str | None]:
    definition = options.get("proto"), options.get("descriptor"), options.get("message")
    if options.get("class") and not any(definition[:2]):
        raise ValueError(
            f"class {options['class']} is of Java: give the definition of its message by proto or "
            "descriptor"
        )
    return definition


def _check_registry(options: Mapping[str, object]) -> None:
    if options.get("schema.registry") and options.get("schema.id") is None:
        raise ValueError("schema.registry needs schema.id")


def _without(pairs: Collection[object], mapper: M, kind: str) -> M:
    if pairs:
        raise ValueError(f'mapper "{kind}" has no custom mapping')
    return mapper


def _refuse_objects(stream: StreamSchema) -> None:
    for attribute in stream.attributes:
        if attribute.type is AttributeType.OBJECT:
            raise ValueError(f'attribute "{attribute.name}" is an object, and no payload has those')


def _places(paths: Mapping[str, str], names: Sequence[str]) -> tuple[int, ...]:
    if not all(text.isdecimal() and len(text) < 5 for text in paths.values()):
        raise ValueError("@attributes of csv are positions, such as a='0'")
    return tuple(int(paths[name]) for name in names)


def _order(keyed: Sequence[tuple[str, str]], names: Sequence[str]) -> tuple[str, ...]:
    places = {int(text): name for name, text in keyed if text.isdecimal() and name in names}
    if len(places) != len(keyed):
        raise ValueError("@payload of csv gives an attribute's position, such as a='0'")
    return tuple(places[place] for place in sorted(places))
