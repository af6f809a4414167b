"""Sinks of streams with object attributes, whose payloads have texts or JSON of them.

    @sink(type='http', .., @map(type='json')) define stream S (k string, o object);

is planned as it would be written with a second stream:

    define stream S (k string, o object);
    @sink(type='http', .., @map(type='json', json.attributes='o'))
    define stream S_json (k string, o string);
    @info(name='S_json') from S select k, json:toString(o) as o insert into S_json;

Templates and formats of texts have a text as it is, and JSON of lists and maps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mesh.language.syntax import (
    Annotation,
    Call,
    Literal,
    Partition,
    Query,
    StreamDefinition,
    StreamKind,
    find,
)
from mesh.model.types import AttributeType
from mesh.plan.outside_objects import has_objects
from mesh.plan.second_streams import copying, extended, free_name, inserts

if TYPE_CHECKING:
    from mesh.language.syntax import App, AttributeDefinition, Expression, Variable
    from mesh.language.syntax.apps import Element

#: Mappers that write JSON of the attributes, and those whose payloads are texts.
_OF_JSON: Final = ("", "json", "keyvalue", "passthrough")
_OF_TEXTS: Final = ("csv", "text", "xml")


def with_sink_objects(app: App) -> App:
    """The app with texts in the place of objects for its sinks; the same one without such sinks.

    Sinks with binary formats stay, and those whose failures are in the stream's fault stream.
    """
    taken = {one.name for one in app.definitions}
    elements: list[Element] = []
    streams: list[StreamDefinition] = []
    queries: list[Query] = []
    for element in app.elements:
        if not isinstance(element, StreamDefinition) or not has_objects(element):
            elements.append(element)
            continue
        moved = {id(a): kind for a in element.annotations if (kind := _kind(a))}
        left = tuple(a for a in element.annotations if id(a) not in moved)
        elements.append(replace(element, annotations=left) if moved else element)
        for kind in dict.fromkeys(moved.values()):
            name = free_name(f"{element.name}_{kind}", taken)
            taken.add(name)
            sinks = tuple(
                _with_option(a, element) if kind == "json" else a
                for a in element.annotations
                if moved.get(id(a)) == kind
            )
            streams.append(_texts(element, name, sinks))
            value = _json if kind == "json" else _text
            queries.append(copying(element, name, value, dist=_dist_of_writer(app, element)))
    if not streams:
        return app
    return extended(app, elements, streams, queries)


def _kind(annotation: Annotation) -> str:
    """``json`` or ``texts``, by the payloads of a sink; empty for others."""
    if annotation.name.lower() != "sink":
        return ""
    mapper = find(annotation.annotations, "map")
    kind = (mapper.get("type") or "").lower() if mapper is not None else ""
    if (annotation.get("on.error") or "").lower() == "stream":
        return ""
    has_template = mapper is not None and find(mapper.annotations, "payload") is not None
    if kind in _OF_JSON:
        return "texts" if has_template else "json"
    return "texts" if kind in _OF_TEXTS else ""


def _with_option(sink: Annotation, stream: StreamDefinition) -> Annotation:
    """A sink whose mapper puts the texts of objects in as they are."""
    listed = ",".join(one.name for one in stream.attributes if one.type is AttributeType.OBJECT)
    mapper = find(sink.annotations, "map") or Annotation("map", (("type", "passThrough"),))
    mapper = replace(mapper, elements=(*mapper.elements, ("json.attributes", listed)))
    others = tuple(one for one in sink.annotations if one.name.lower() != "map")
    return replace(sink, annotations=(mapper, *others))


def _texts(stream: StreamDefinition, name: str, sinks: tuple[Annotation, ...]) -> StreamDefinition:
    attributes = tuple(
        replace(one, type=AttributeType.STRING) if one.type is AttributeType.OBJECT else one
        for one in stream.attributes
    )
    return replace(stream, name=name, attributes=attributes, annotations=sinks)


def _json(attribute: AttributeDefinition, variable: Variable) -> Expression:
    """JSON of an object, and other values as they are."""
    if attribute.type is not AttributeType.OBJECT:
        return variable
    return Call("toString", (variable,), "json", position=variable.position)


def _text(attribute: AttributeDefinition, variable: Variable) -> Expression:
    """A text as it is, and else as ``_json``."""
    json = _json(attribute, variable)
    if json is variable:
        return variable
    place = variable.position
    is_text = Call("instanceOfString", (variable,), position=place)
    string = Literal("string", AttributeType.STRING, position=place)
    text = Call("convert", (variable, string), position=place)
    return Call("ifThenElse", (is_text, text, json), position=place)


def _dist_of_writer(app: App, stream: StreamDefinition) -> tuple[Annotation, ...]:
    """``@dist`` of the first query or partition that inserts into a stream."""
    writers = (
        one
        for one in app.elements
        if isinstance(one, Query | Partition)
        and any(
            into.name == stream.name and into.kind is StreamKind.PLAIN for into in inserts([one])
        )
    )
    writer = next(writers, None)
    dist = find(writer.annotations, "dist") if writer is not None else None
    return () if dist is None else (dist,)
