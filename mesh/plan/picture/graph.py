"""The graph of a plan to draw: groups and channels as nodes, writing and reading as edges.

The picture of a plan in Graphviz's language, for users who draw with it.

Layers for a graph that is drawn from left to right, and the order of nodes in each.

Loops are cut where a walk from the first node finds them; an edge that leads back counts the other
way round.  Each node is one layer after the last of its predecessors, or, without any, right before
its first successor.  Edges over several layers get waypoints.  Nodes of a layer are sorted by their
neighbours' middles, in alternating directions, and the order with the fewest crossings is kept.

Source: Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system
structures" (1981); the barycentre heuristic.

Places for the boxes of a layered graph: no two overlap, and edges run as straight as they can.

Each layer is a column.  Boxes are drawn towards the middles of their neighbours, in alternating
directions; within a column the places nearest to the wishes that keep order and distance are an
isotonic regression.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from mesh.model.app import GroupKind, Strategy
from mesh.plan.bind.apps import bind_group

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

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


_SWEEPS: Final = 24

#: Between columns, and between the boxes of one; points.
COLUMN_GAP: Final = 56.0
BOX_GAP: Final = 16.0
_WAYPOINT: Final = (0.0, 6.0)
_PLACE_SWEEPS: Final = 40


@dataclass(frozen=True, slots=True)
class Box:
    """Position and size of a box: the upper left corner, width and height."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        """The height of its middle."""
        return self.y + self.height / 2


def places(layout: Layers, sizes: Mapping[str, tuple[float, float]]) -> dict[str, Box]:
    """A box for each node, by its width and height in ``sizes``, and for each waypoint."""
    size = {node: sizes.get(node, _WAYPOINT) for layer in layout.layers for node in layer}
    neighbours: dict[str, list[str]] = {node: [] for node in size}
    for path in layout.paths.values():
        for a, b in pairwise(path):
            neighbours[a].append(b)
            neighbours[b].append(a)
    layer_of = {node: n for n, layer in enumerate(layout.layers) for node in layer}
    middles: dict[str, float] = {}
    for layer in layout.layers:
        wishes = [0.0] * len(layer)
        middles |= zip(layer, _apart(layer, wishes, size), strict=True)
    for sweep in range(_PLACE_SWEEPS):
        ahead = sweep % 2 == 0
        for number in range(len(layout.layers)) if ahead else reversed(range(len(layout.layers))):
            layer = layout.layers[number]
            wishes = []
            for node in layer:
                # At last both sides count, so that an edge bends on neither more than it must.
                both = sweep >= _PLACE_SWEEPS - 4
                near = [
                    middles[one]
                    for one in neighbours[node]
                    if both or (layer_of[one] < number) == ahead
                ] or [middles[one] for one in neighbours[node]]
                wishes.append(sum(near) / len(near) if near else middles[node])
            middles |= zip(layer, _apart(layer, wishes, size), strict=True)
    top = min((middles[n] - size[n][1] / 2 for n in size), default=0.0)
    boxes: dict[str, Box] = {}
    x = 0.0
    for layer in layout.layers:
        column = max((size[node][0] for node in layer), default=0.0)
        for node in layer:
            width, height = size[node]
            width = width or column
            left = x + (column - width) / 2
            boxes[node] = Box(left, middles[node] - height / 2 - top, width, height)
        x += column + COLUMN_GAP
    return boxes


def _apart(
    layer: Sequence[str], wishes: Sequence[float], size: Mapping[str, tuple[float, float]]
) -> list[float]:
    """The middles nearest to ``wishes``, by their squares, that keep order and distance."""
    offsets = [0.0]
    for above, below in pairwise(layer):
        offsets.append(offsets[-1] + (size[above][1] + size[below][1]) / 2 + BOX_GAP)
    # Less the offsets, places may not fall: neighbours that would are pooled at their mean.
    pools: list[tuple[float, int]] = []
    for wish, offset in zip(wishes, offsets, strict=False):
        pools.append((wish - offset, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, m), (b, n) = pools[-2:]
            pools[-2:] = [((a * m + b * n) / (m + n), m + n)]
    flat = [value for value, count in pools for _ in range(count)]
    return [value + offset for value, offset in zip(flat, offsets, strict=False)]


@dataclass(frozen=True, slots=True)
class Layers:
    """Nodes and waypoints by layer, in order; the waypoints of each edge from start to end."""

    layers: tuple[tuple[str, ...], ...]
    #: (source, target) to all that it passes, both ends included, in layers that only grow.
    paths: Mapping[tuple[str, str], tuple[str, ...]]
    #: Edges whose path runs from target to source.
    backward: frozenset[tuple[str, str]]


def layered(nodes: Sequence[str], edges: Iterable[tuple[str, str]]) -> Layers:
    """Layers of a graph without edges from a node to itself; ``nodes`` are all of them."""
    unique = list(dict.fromkeys(edges))
    backward = _backward(nodes, unique)
    forward = [(b, a) if (a, b) in backward else (a, b) for a, b in unique]
    layer = _layers(nodes, forward)
    rows: list[list[str]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for node in nodes:
        rows[layer[node]].append(node)
    paths = {}
    for original, (a, b) in zip(unique, forward, strict=True):
        between = [f"{a} > {b} @{at}" for at in range(layer[a] + 1, layer[b])]
        for at, waypoint in enumerate(between, layer[a] + 1):
            # Two edges between the same nodes, in opposite directions, share their waypoints.
            if waypoint not in rows[at]:
                rows[at].append(waypoint)
        paths[original] = (a, *between, b)
    links = sorted({pair for path in paths.values() for pair in pairwise(path)})
    return Layers(_ordered(rows, links), paths, frozenset(backward))


def _backward(nodes: Sequence[str], edges: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """Edges whose removal cuts all loops."""
    after: dict[str, list[str]] = {node: [] for node in nodes}
    for a, b in edges:
        after[a].append(b)
    back_edges: set[tuple[str, str]] = set()
    done: set[str] = set()
    for start in nodes:
        path: list[str] = []
        on_path: set[str] = set()
        pending: list[tuple[str, bool]] = [(start, True)]
        while pending:
            node, enters = pending.pop()
            if not enters:
                on_path.discard(path.pop())
                done.add(node)
                continue
            if node in done or node in on_path:
                continue
            path.append(node)
            on_path.add(node)
            pending.append((node, False))
            for target in reversed(after[node]):
                if target in on_path:
                    back_edges.add((node, target))
                elif target not in done:
                    pending.append((target, True))
    return back_edges


def _layers(nodes: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    before: dict[str, list[str]] = {node: [] for node in nodes}
    after: dict[str, list[str]] = {node: [] for node in nodes}
    for a, b in edges:
        before[b].append(a)
        after[a].append(b)
    layer: dict[str, int] = {}
    waits = {node: len(before[node]) for node in nodes}
    ready = [node for node in nodes if not waits[node]]
    for node in ready:
        layer[node] = max((layer[one] + 1 for one in before[node]), default=0)
        for target in after[node]:
            waits[target] -= 1
            if not waits[target]:
                ready.append(target)
    for node in nodes:
        if not before[node] and after[node]:
            layer[node] = min(layer[target] for target in after[node]) - 1
    return layer


def _ordered(
    rows: Sequence[Sequence[str]], links: Sequence[tuple[str, str]]
) -> tuple[tuple[str, ...], ...]:
    left: dict[str, list[str]] = {node: [] for row in rows for node in row}
    right: dict[str, list[str]] = {node: [] for row in rows for node in row}
    for a, b in links:
        right[a].append(b)
        left[b].append(a)
    best = now = [list(row) for row in rows]
    fewest = _crossings(now, right)
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        now = [list(row) for row in now]
        for at in range(1, len(now)) if forward else range(len(now) - 2, -1, -1):
            beside = {node: n for n, node in enumerate(now[at - 1 if forward else at + 1])}
            neighbours = left if forward else right
            place = {node: n for n, node in enumerate(now[at])}
            now[at].sort(key=lambda node: _middle(neighbours[node], beside, place[node]))
        count = _crossings(now, right)
        if count < fewest:
            best, fewest = now, count
    return tuple(tuple(row) for row in best)


def _middle(neighbours: Sequence[str], beside: Mapping[str, int], place: int) -> float:
    positions = [beside[node] for node in neighbours]
    return sum(positions) / len(positions) if positions else place


def _crossings(rows: Sequence[Sequence[str]], right: Mapping[str, Sequence[str]]) -> int:
    total = 0
    for row, following in pairwise(rows):
        place = {node: n for n, node in enumerate(following)}
        ends = [sorted(place[b] for b in right[a]) for a in row]
        for n, targets in enumerate(ends):
            for others in ends[n + 1 :]:
                total += sum(one > other for one in targets for other in others)
    return total
