"""Elements of an app: the graph of definitions and queries, independent of execution groups.

``mesh.plan.explain`` describes the division of an app into groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.language.parser import parse
from mesh.language.printer import print_query
from mesh.plan.bind import bind
from mesh.plan.bind.apps import bind_group
from mesh.plan.bound import Insert, SourceKind, TableCheck, walk
from mesh.plan.dependencies import expressions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mesh.model.app import AppSpec
    from mesh.model.types import StreamSchema
    from mesh.model.values import JsonObject
    from mesh.plan.bound import BoundApp, BoundQuery


def elements(spec: AppSpec) -> JsonObject:
    """The graph as JSON values: ``elements``, ``edges`` between their ids, and ``groups``."""
    tree = parse(spec.text)
    app = bind(tree)
    texts = {
        bound.name: print_query(written)
        for written, bound in [
            *zip(tree.queries, app.queries, strict=True),
            *(
                pair
                for partition, bound_partition in zip(tree.partitions, app.partitions, strict=True)
                for pair in zip(partition.queries, bound_partition.queries, strict=True)
            ),
        ]
    }
    group_of = {
        query.name: group.name for group in spec.groups for query in bind_group(group).all_queries
    }
    wired = {channel.stream.name for channel in spec.channels}
    edges = dict.fromkeys(
        edge for query, partition in _with_partitions(app) for edge in _edges(query, partition)
    )
    return {
        "app": spec.name,
        "elements": [
            *_definitions(app, wired),
            *(
                {
                    "id": f"query {query.name}",
                    "type": "query",
                    "name": query.name,
                    "group": group_of.get(query.name),
                    "partition": partition,
                    "text": texts[query.name],
                }
                for query, partition in _with_partitions(app)
            ),
        ],
        "edges": [
            *({"from": source, "to": target} for source, target in edges),
            *(
                {
                    "from": _id(a.input.kind, a.input.schema.name, None),
                    "to": _id(SourceKind.AGGREGATION, a.schema.name, None),
                }
                for a in app.aggregations
            ),
        ],
        "groups": [
            {
                "name": group.name,
                "kind": str(group.kind),
                "parallel": group.parallel,
                "stateful": group.stateful,
                "instances": list(group.instances),
                "queries": [f"query {q}" for q, name in group_of.items() if name == group.name],
            }
            for group in spec.groups
        ],
    }


def _definitions(app: BoundApp, wired: set[str]) -> Iterator[JsonObject]:
    triggers = {trigger.schema.name for trigger in app.triggers}
    for schema in app.streams:
        if schema.name not in triggers:
            yield {**_defined("stream", schema), "on_the_wire": schema.name in wired}
    yield from (_defined("trigger", one.schema) for one in app.triggers)
    yield from (_defined("table", one.schema) for one in app.tables)
    yield from (_defined("window", one.schema) for one in app.windows)
    yield from (_defined("aggregation", one.schema) for one in app.aggregations)
    for number, partition in enumerate(app.partitions, 1):
        for schema in partition.inner_streams:
            yield {
                **_defined("inner stream", schema),
                "id": _id(SourceKind.INNER, schema.name, number),
                "partition": number,
            }
    for script in app.scripts:
        yield {"id": f"function {script.name}", "type": "function", "name": script.name}


def _defined(kind: str, schema: StreamSchema) -> JsonObject:
    return {
        "id": f"{kind} {schema.name}",
        "type": kind,
        "name": schema.name,
        "attributes": [{"name": a.name, "type": str(a.type)} for a in schema.attributes],
    }


def _with_partitions(app: BoundApp) -> Iterator[tuple[BoundQuery, int | None]]:
    """Queries with the number of their partition, from 1."""
    yield from ((query, None) for query in app.queries)
    for number, partition in enumerate(app.partitions, 1):
        yield from ((query, number) for query in partition.queries)


def _edges(query: BoundQuery, partition: int | None) -> Iterator[tuple[str, str]]:
    name = f"query {query.name}"
    for source, kind in query.inputs:
        yield _id(kind, source, partition), name
    for table in _checked_tables(query):
        yield _id(SourceKind.TABLE, table, partition), name
    action = query.action
    kind = action.kind if isinstance(action, Insert) else SourceKind.TABLE
    yield name, _id(kind, query.target.name, partition)


def _checked_tables(query: BoundQuery) -> Iterable[str]:
    parts = (part for root in expressions(query) for part in walk(root))
    return dict.fromkeys(part.table for part in parts if isinstance(part, TableCheck))


def _id(kind: SourceKind, name: str, partition: int | None) -> str:
    """The id of a query's input or output; two partitions may have inner streams of one name."""
    if name.startswith("#"):
        return f"inner stream {name} of partition {partition}"
    # A fault stream is listed as a stream, with its mark.
    return f"{SourceKind.STREAM if kind is SourceKind.FAULT else kind} {name}"
