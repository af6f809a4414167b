"""The picture of a plan as SVG: no script, no font of its own, as good on paper as in a browser.

The places of a plan's groups and channels, with room for what a page adds to each.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape, quoteattr

from mesh.model.app import Strategy
from mesh.plan.picture.graph import Box, Shape, graph_of, layered, places

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mesh.model.app import AppSpec
    from mesh.plan.picture.graph import Edge, GraphNode


_LINE: Final = 15.0
_PADDING: Final = 9.0
#: A generous mean of a sans-serif's letters at 12 points, and of a bold one's.
_LETTER: Final = 6.9
_BOLD: Final = 8.0
_MARGIN: Final = 24.0
_HEAD: Final = 34.0
_LEGEND: Final = 40.0
_BACK: Final = "back"

_STYLE: Final = """\
text { font: 12px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1c2733 }
.name { font-weight: 600 }
.more { fill: #55636f }
.head { font-size: 16px; font-weight: 600 }
rect { stroke-width: 1.2 }
.stateful { fill: #dbe9ff; stroke: #2f6fd0 }
.stateless { fill: #e4f4e6; stroke: #3d8b4b }
.added { fill: #f1eefb; stroke: #7a63b8; stroke-dasharray: 5 3 }
.channel { fill: #ffffff; stroke: #9aa7b3 }
.outer { fill: #fff6df; stroke: #c08a1e }
path { fill: none; stroke: #5d6b78; stroke-width: 1.4; marker-end: url(#tip) }
.round-robin { stroke-dasharray: 6 4 }
.by-key { stroke: #7a3fa0; stroke-width: 2.4 }
.back { stroke: #c2452d }"""

_OPEN: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
    'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label={label}>'
)
_TIP: Final = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
    'markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">'
    '<path d="M0 0L8 4L0 8z" style="fill:#5d6b78;stroke:none;marker-end:none"/></marker></defs>'
)

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


def to_svg(spec: AppSpec) -> str:
    """The picture, as the text of an SVG file."""
    graph = graph_of(spec)
    layout = layered([n.id for n in graph.nodes], [(e.source, e.target) for e in graph.edges])
    boxes = places(layout, {node.id: size_of(node) for node in graph.nodes})
    width = max(max((b.x + b.width for b in boxes.values()), default=0.0) + 2 * _MARGIN, 640.0)
    bottom = max((b.y + b.height for b in boxes.values()), default=0.0)
    height = bottom + _HEAD + _LEGEND + 2 * _MARGIN
    moved = {
        name: Box(b.x + _MARGIN, b.y + _MARGIN + _HEAD, b.width, b.height)
        for name, b in boxes.items()
    }
    groups = sum(node.shape not in (Shape.CHANNEL, Shape.OUTER) for node in graph.nodes)
    head = f"{graph.name}: {groups} groups, {len(graph.nodes) - groups} channels"
    lines = [
        _OPEN.format(width=width, height=height, label=quoteattr(head)),
        f"<style>\n{_STYLE}\n</style>",
        _TIP,
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        f'<text class="head" x="{_MARGIN:.0f}" y="{_MARGIN + 8:.0f}">{escape(head)}</text>',
    ]
    for edge in graph.edges:
        path = layout.paths[edge.source, edge.target]
        is_back = (edge.source, edge.target) in layout.backward
        lines.append(_edge(edge, path, moved, is_back=is_back))
    for node in graph.nodes:
        lines += _node(node, moved[node.id])
    lines += _legend(_MARGIN, bottom + _HEAD + _MARGIN + 32)
    lines.append("</svg>")
    return "\n".join(lines) + "\n"


def size_of(node: GraphNode) -> tuple[float, float]:
    """Width and height of a node's box."""
    widths = [len(node.lines[0]) * _BOLD, *(len(line) * _LETTER for line in node.lines[1:])]
    return max(widths) + 2 * _PADDING, len(node.lines) * _LINE + 2 * _PADDING - 4


def _node(node: GraphNode, box: Box) -> Iterator[str]:
    is_channel = node.shape in (Shape.CHANNEL, Shape.OUTER)
    radius = min(box.height / 2, 14.0) if is_channel else 4.0
    yield f"<g><title>{escape(node.title)}</title>"
    yield (
        f'<rect class="{node.shape}" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="{radius:.1f}"/>'
    )
    for number, line in enumerate(node.lines):
        y = box.y + _PADDING + 9 + number * _LINE
        kind = "name" if number == 0 else "more"
        yield (
            f'<text class="{kind}" x="{box.x + box.width / 2:.1f}" y="{y:.1f}" '
            f'text-anchor="middle">{escape(line)}</text>'
        )
    yield "</g>"


def _edge(edge: Edge, path: tuple[str, ...], boxes: Mapping[str, Box], *, is_back: bool) -> str:
    kinds = [] if edge.strategy is None or edge.strategy is Strategy.ALL else [str(edge.strategy)]
    kinds += [_BACK] if is_back else []
    kind = f' class="{" ".join(kinds)}"' if kinds else ""
    return f'<path{kind} d="{line_of(path, boxes, is_back=is_back)}"/>'


def line_of(path: tuple[str, ...], boxes: Mapping[str, Box], *, is_back: bool) -> str:
    """The line of an edge along its path, as SVG draws it."""
    points: list[tuple[float, float]] = []
    for number, name in enumerate(path):
        box = boxes[name]
        if number:
            points.append((box.x, box.middle))
        if number < len(path) - 1:
            points.append((box.x + box.width, box.middle))
    if is_back:
        points.reverse()
    start = points[0]
    drawn = f"M{start[0]:.1f} {start[1]:.1f}"
    for (x, y), (to_x, to_y) in pairwise(points):
        if y == to_y:
            drawn += f"L{to_x:.1f} {to_y:.1f}"
        else:
            half = (x + to_x) / 2
            drawn += f"C{half:.1f} {y:.1f} {half:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
    return drawn


def _legend(x: float, y: float) -> Iterator[str]:
    for kind, text in (
        ("", "all events"),
        ("round-robin", "round robin"),
        ("by-key", "by key"),
        (_BACK, "back, in a loop"),
    ):
        yield f'<path class="{kind}" d="M{x:.0f} {y - 4:.0f}L{x + 34:.0f} {y - 4:.0f}"/>'
        yield f'<text class="more" x="{x + 42:.0f}" y="{y:.0f}">{text}</text>'
        x += 42 + len(text) * _LETTER + 24
