"""Second streams beside those of an app, and the queries that copy one into the other."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from mesh.language.syntax import (
    Annotation,
    InsertInto,
    OutputAttribute,
    Partition,
    Query,
    SelectClause,
    StreamInput,
    StreamKind,
    StreamReference,
    Variable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mesh.language.syntax import App, AttributeDefinition, Expression, StreamDefinition
    from mesh.language.syntax.apps import Element


def extended(
    app: App,
    elements: Sequence[Element],
    streams: Iterable[StreamDefinition],
    queries: Iterable[Query],
) -> App:
    """The app with other elements, further streams before its first query, and queries last."""
    places = (n for n, one in enumerate(elements) if isinstance(one, Query | Partition))
    at = next(places, len(elements))
    return replace(app, elements=(*elements[:at], *streams, *elements[at:], *queries))


def copying(
    stream: StreamDefinition,
    target: str,
    value: Callable[[AttributeDefinition, Variable], Expression] = lambda _, variable: variable,
    dist: tuple[Annotation, ...] = (),
) -> Query:
    """The query that inserts all events of a stream into another one, whose name it has.

    Args:
        stream: that is read.
        target: name of the other one.
        value: makes what is inserted of an attribute and its value.
        dist: its group.
    """
    place = stream.position
    selected = tuple(
        OutputAttribute(value(one, Variable(one.name, position=place)), one.name)
        for one in stream.attributes
    )
    return Query(
        StreamInput(StreamReference(stream.name, position=place), position=place),
        SelectClause(selected),
        InsertInto(StreamReference(target)),
        (Annotation("info", (("name", target),)), *dist),
        position=place,
    )


def inserts(elements: Iterable[object]) -> Iterator[StreamReference]:
    """The streams and tables into which queries insert, those of partitions included."""
    for one in elements:
        if isinstance(one, Partition):
            yield from inserts(one.queries)
        elif isinstance(one, Query) and isinstance(one.output, InsertInto):
            yield one.output.stream


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
