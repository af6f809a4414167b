"""Object attributes of streams from outside: read as texts, of which a query makes objects.

    @source(.., @map(type='json')) define stream S (k string, o object);
    from S select json:getString(o, '$.a') as a insert into T;

is planned as it would be written with texts:

    @source(.., @map(type='json')) define stream S (k string, o string);
    define stream S_objects (k string, o object);
    from S_objects select json:getString(o, '$.a') as a insert into T;
    @info(name='S_objects') from S select k, json:toObject(o) as o insert into S_objects;

A mapper gives the lists and objects of a payload as texts in JSON.  Messages in JSON that clients
publish to the subject of a stream without sources are read as by the mapper ``json``: its
definition is marked by ``TEXTS``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mesh.language.syntax import (
    AggregationDefinition,
    Annotation,
    Call,
    InsertInto,
    StreamDefinition,
    StreamKind,
    find,
)
from mesh.model.types import AttributeType
from mesh.plan.second_streams import copying, extended, free_name, references, renamed

if TYPE_CHECKING:
    from mesh.language.syntax import App, AttributeDefinition, Expression, Variable


#: Annotation of a stream whose messages are read by the mapper ``json``.
TEXTS: Final = "jsonTexts"


def with_objects(app: App, *, of_clients: bool = False) -> App:
    """The app with the objects of its sources as texts; the same one if it has none.

    A stream with a sink, and one whose failed events are read, stay as they are: both have its
    attributes.  So does one with a source that has no mapper, or one of Arrow.

    ``of_clients``: those of streams without sources as well, which have objects in tests of an app.
    """
    changed = {
        one.name: one
        for one in app.streams
        if has_objects(one) and _is_read_alone(app, one, of_clients=of_clients)
    }
    if not changed:
        return app
    taken = {one.name for one in app.definitions}
    new_names = {name: free_name(f"{name}_objects", taken) for name in changed}
    elements = [
        _texts(element)
        if isinstance(element, StreamDefinition) and element.name in changed
        else renamed(element, new_names)
        for element in app.elements
    ]
    streams = [replace(one, name=new_names[n], annotations=()) for n, one in changed.items()]
    queries = [copying(one, new_names[name], _value) for name, one in changed.items()]
    return extended(app, elements, streams, queries)


def has_objects(stream: StreamDefinition) -> bool:
    """Whether an attribute is an object."""
    return any(one.type is AttributeType.OBJECT for one in stream.attributes)


def _is_read_alone(app: App, stream: StreamDefinition, *, of_clients: bool) -> bool:
    """Whether sources give texts, queries or aggregations read them, and nothing else does."""
    name = stream.name
    sources = [one for one in stream.annotations if one.name.lower() == "source"]
    maps = [find(one.annotations, "map") for one in sources]
    types = {str(one.get("type")).lower() if one is not None else "" for one in maps}
    has_texts = not types & {"", "arrow"} if types else of_clients
    if not has_texts or find(stream.annotations, "sink") is not None:
        return False
    inside = (query for partition in app.partitions for query in partition.queries)
    queries = (*app.queries, *inside)
    if any(isinstance(q.output, InsertInto) and q.output.stream.name == name for q in queries):
        return False
    inputs = [query.input for query in queries]
    inputs += [one.input for one in app.definitions if isinstance(one, AggregationDefinition)]
    kinds = {one.kind for one in references(tuple(inputs)) if one.name == name}
    return kinds == {StreamKind.PLAIN}


def _texts(stream: StreamDefinition) -> StreamDefinition:
    """The stream with texts in the place of objects, marked if no source maps its payloads."""
    attributes = tuple(
        replace(one, type=AttributeType.STRING) if one.type is AttributeType.OBJECT else one
        for one in stream.attributes
    )
    has_source = find(stream.annotations, "source") is not None
    marks = () if has_source else (Annotation(TEXTS),)
    return replace(stream, attributes=attributes, annotations=(*stream.annotations, *marks))


def _value(attribute: AttributeDefinition, variable: Variable) -> Expression:
    """An object of a text, and other values as they are."""
    if attribute.type is not AttributeType.OBJECT:
        return variable
    return Call("toObject", (variable,), "json", position=variable.position)
