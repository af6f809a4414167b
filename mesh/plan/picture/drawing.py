"""The places of a plan's groups and channels, with room for what a page adds to each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mesh.plan.picture.graph import graph_of
from mesh.plan.picture.layers import layered
from mesh.plan.picture.places import Box, places
from mesh.plan.picture.svg import line_of, size_of

if TYPE_CHECKING:
    from mesh.model.app import AppSpec
    from mesh.plan.picture.graph import Edge, GraphNode

#: Lines that a page adds to a box, and their least width, in points.
ROOM_LINES: Final = 2
LINE: Final = 15.0
WIDTH_MIN: Final = 176.0


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A node and its box."""

    node: GraphNode
    box: Box

    @property
    def name(self) -> str:
        """The name of the group, or the subject of the channel."""
        return self.node.id.partition(" ")[2]

    @property
    def is_group(self) -> bool:
        """Whether it is a group."""
        return self.node.id.startswith("group ")


@dataclass(frozen=True, slots=True)
class DrawnEdge:
    """An edge, and its line as SVG draws it."""

    edge: Edge
    line: str
    #: Whether it leads back, in a loop.
    is_back: bool


@dataclass(frozen=True, slots=True)
class Drawing:
    """All places; the origin is the upper left corner."""

    name: str
    width: float
    height: float
    nodes: tuple[DrawnNode, ...]
    edges: tuple[DrawnEdge, ...]


def drawing_of(spec: AppSpec) -> Drawing:
    """The drawing of a plan."""
    graph = graph_of(spec)
    layout = layered([n.id for n in graph.nodes], [(e.source, e.target) for e in graph.edges])
    boxes = places(layout, {node.id: _roomy(node) for node in graph.nodes})
    edges = [
        (
            edge,
            layout.paths[edge.source, edge.target],
            (edge.source, edge.target) in layout.backward,
        )
        for edge in graph.edges
    ]
    return Drawing(
        graph.name,
        max((box.x + box.width for box in boxes.values()), default=0.0),
        max((box.y + box.height for box in boxes.values()), default=0.0),
        tuple(DrawnNode(node, boxes[node.id]) for node in graph.nodes),
        tuple(
            DrawnEdge(edge, line_of(path, boxes, is_back=is_back), is_back)
            for edge, path, is_back in edges
        ),
    )


def _roomy(node: GraphNode) -> tuple[float, float]:
    width, height = size_of(node)
    return max(width, WIDTH_MIN), height + ROOM_LINES * LINE
