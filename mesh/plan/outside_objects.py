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

import dataclasses
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final, cast

from mesh.language.syntax import (
    AggregationDefinition,
    Annotation,
    Call,
    InsertInto,
    OutputAttribute,
    Partition,
    Query,
    SelectClause,
    StreamDefinition,
    StreamInput,
    StreamKind,
    StreamReference,
    Variable,
    find,
)
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mesh.language.syntax import App


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
    places = (n for n, one in enumerate(elements) if isinstance(one, Query | Partition))
    at = next(places, len(elements))
    streams = [replace(one, name=new_names[n], annotations=()) for n, one in changed.items()]
    queries = [_query(one, new_names[name]) for name, one in changed.items()]
    return replace(app, elements=(*elements[:at], *streams, *elements[at:], *queries))


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


def references(node: object) -> Iterator[StreamReference]:
    """The streams and tables that are named below a node."""
    if isinstance(node, StreamReference):
        yield node
    elif isinstance(node, tuple):
        for one in node:
            yield from references(one)
    elif dataclasses.is_dataclass(node):
        for one in dataclasses.fields(node):
            yield from references(getattr(node, one.name))


def _texts(stream: StreamDefinition) -> StreamDefinition:
    """The stream with texts in the place of objects, marked if no source maps its payloads."""
    attributes = tuple(
        replace(one, type=AttributeType.STRING) if one.type is AttributeType.OBJECT else one
        for one in stream.attributes
    )
    has_source = find(stream.annotations, "source") is not None
    marks = () if has_source else (Annotation(TEXTS),)
    return replace(stream, attributes=attributes, annotations=(*stream.annotations, *marks))


def _query(stream: StreamDefinition, target: str) -> Query:
    """The query that makes objects of texts."""
    place = stream.position
    selected = tuple(
        OutputAttribute(
            Call("toObject", (Variable(one.name, position=place),), "json", position=place)
            if one.type is AttributeType.OBJECT
            else Variable(one.name, position=place),
            one.name,
        )
        for one in stream.attributes
    )
    return Query(
        StreamInput(StreamReference(stream.name, position=place), position=place),
        SelectClause(selected),
        InsertInto(StreamReference(target)),
        (Annotation("info", (("name", target),)),),
        position=place,
    )


def free_name(name: str, taken: set[str]) -> str:
    """The name, or one like it, that is not taken."""
    return next(one for n in count(1) if (one := name + (f"_{n}" if n > 1 else "")) not in taken)


def renamed(node: object, names: Mapping[str, str]) -> Any:
    """A node that reads the streams of ``names`` by their new names."""
    if isinstance(node, StreamReference):
        is_read = node.kind is StreamKind.PLAIN and node.name in names
        return replace(node, name=names[node.name]) if is_read else node
    if isinstance(node, tuple):
        return tuple(renamed(one, names) for one in node)
    if not dataclasses.is_dataclass(node) or isinstance(node, type | Annotation):
        return node
    changed = {
        one.name: value
        for one in dataclasses.fields(node)
        if (value := renamed(was := getattr(node, one.name), names)) is not was and value != was
    }
    if isinstance(node, Variable) and node.kind is StreamKind.PLAIN and node.source in names:
        changed["source"] = names[cast("str", node.source)]
    return replace(node, **changed) if changed else node
