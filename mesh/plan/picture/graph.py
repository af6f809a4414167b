"""The graph of a plan to draw: groups and channels as nodes, writing and reading as edges.

The picture of a plan in Graphviz's language, for users who draw with it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from mesh.model.app import GroupKind, Strategy
from mesh.plan.bind.apps import bind_group

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.model.app import AppSpec, Channel, GroupSpec


_LINE_MAX: Final = 30
_QUERIES_MAX: Final = 4


class Shape(StrEnum):
    """The kind of a node."""

    STATEFUL = "stateful"
    STATELESS = "stateless"
    #: A group that the planner adds.
    ADDED = "added"
    CHANNEL = "channel"
    #: A channel that clients fill, or one that only clients read.
    OUTER = "outer"


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A box: its first line is its name."""

    id: str
    shape: Shape
    lines: tuple[str, ...]
    #: Text of the tooltip, with all details.
    title: str


@dataclass(frozen=True, slots=True)
class Edge:
    """An arrow between a group and a channel; ``strategy`` if the group reads it."""

    source: str
    target: str
    strategy: Strategy | None = None


@dataclass(frozen=True, slots=True)
class Graph:
    """The whole graph, in the order of the plan."""

    name: str
    nodes: tuple[GraphNode, ...]
    edges: tuple[Edge, ...]


def graph_of(spec: AppSpec) -> Graph:
    """The graph of a plan."""
    written = {c.subject() for g in spec.groups for c in g.outputs}
    read = {i.channel.subject() for g in spec.groups for i in g.inputs}
    # A fork reads channels of another app.
    inputs = (i.channel for g in spec.groups for i in g.inputs)
    all_channels = {_channel_id(c): c for c in (*spec.channels, *inputs)}
    channels = tuple(
        _channel(c, is_outer=c.subject() not in written or c.subject() not in read)
        for c in all_channels.values()
    )
    groups = tuple(_group(g) for g in spec.groups)
    # Channels first: where all is one loop, it is entered at the first stream of the app.
    return Graph(spec.name, (*channels, *groups), tuple(_edges(spec)))


def _edges(spec: AppSpec) -> Iterator[Edge]:
    for group in spec.groups:
        for one in group.inputs:
            yield Edge(_channel_id(one.channel), _group_id(group), one.strategy)
        for channel in group.outputs:
            yield Edge(_group_id(group), _channel_id(channel))


def _group(group: GroupSpec) -> GraphNode:
    name = group.name if group.parallel == 1 else f"{group.name} \u00d7{group.parallel}"
    queries: tuple[str, ...] = ()
    if group.kind is GroupKind.QUERIES:
        app = bind_group(group)
        queries = (
            *(f"aggregation {one.schema.name}" for one in app.aggregations),
            *(query.name for query in app.all_queries),
        )
        shape = Shape.STATEFUL if group.stateful else Shape.STATELESS
        kind = str(shape)
    else:
        shape = Shape.ADDED
        kind = str(group.kind)
    about = [kind]
    about += [f"source of {', '.join(group.sources)}"] if group.sources else []
    about += [f"sink of {', '.join(group.sinks)}"] if group.sinks else []
    about += [f"on {', '.join(group.node)}"] if group.node else []
    shown = list(queries)
    if len(shown) > _QUERIES_MAX:
        shown = [*shown[: _QUERIES_MAX - 1], f"and {len(shown) - _QUERIES_MAX + 1} more"]
    lines = tuple(_short(line) for line in (name, *about, *shown))
    return GraphNode(_group_id(group), shape, lines, "\n".join((name, *about, *queries)))


def _channel(channel: Channel, *, is_outer: bool) -> GraphNode:
    stream = channel.stream
    lines = [stream.name]
    if channel.is_keyed:
        lines += [f"by ({channel.key_text})", f"{channel.partitions} partitions"]
    attributes = ", ".join(f"{a.name} {a.type}" for a in stream.attributes)
    title = "\n".join((" ".join(lines), f"({attributes})", channel.subject(), str(channel.format)))
    shape = Shape.OUTER if is_outer else Shape.CHANNEL
    return GraphNode(_channel_id(channel), shape, tuple(_short(line) for line in lines), title)


def _group_id(group: GroupSpec) -> str:
    return f"group {group.name}"


def _channel_id(channel: Channel) -> str:
    return f"channel {channel.subject()}"


def _short(text: str) -> str:
    return text if len(text) <= _LINE_MAX else f"{text[: _LINE_MAX - 1]}…"


_SHAPES: Final = {
    Shape.STATEFUL: 'shape=box style="filled" fillcolor="#dbe9ff"',
    Shape.STATELESS: 'shape=box style="filled" fillcolor="#e4f4e6"',
    Shape.ADDED: 'shape=box style="filled,dashed" fillcolor="#f1eefb"',
    Shape.CHANNEL: 'shape=box style="rounded"',
    Shape.OUTER: 'shape=box style="rounded,filled" fillcolor="#fff6df"',
}
_EDGES: Final = {
    None: "",
    Strategy.ALL: "",
    Strategy.ROUND_ROBIN: ' [style=dashed label="round robin"]',
    Strategy.BY_KEY: ' [penwidth=2 color="#7a3fa0"]',
}


def to_dot(spec: AppSpec) -> str:
    """The picture, as the text of a file for ``dot``."""
    graph = graph_of(spec)
    lines = [
        f"digraph {_quoted(graph.name)} {{",
        "  rankdir=LR;",
        '  node [fontname="Helvetica" fontsize=11];',
        '  edge [fontname="Helvetica" fontsize=9];',
    ]
    for node in graph.nodes:
        label = _quoted("\n".join(node.lines))
        title = _quoted(node.title)
        lines.append(f"  {_quoted(node.id)} [label={label} tooltip={title} {_SHAPES[node.shape]}];")
    lines += (
        f"  {_quoted(edge.source)} -> {_quoted(edge.target)}{_EDGES[edge.strategy]};"
        for edge in graph.edges
    )
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
