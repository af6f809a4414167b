"""The picture of a plan in Graphviz's language, for users who draw with it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from mesh.model.app import Strategy
from mesh.plan.picture.graph import Shape, graph_of

if TYPE_CHECKING:
    from mesh.model.app import AppSpec

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
