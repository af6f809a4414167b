"""The picture of a plan as dot.

Layers of a graph: what points backward, and where a loop is entered.
"""

from __future__ import annotations

import re
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.plan.build import plan
from mesh.plan.picture import to_dot
from mesh.plan.picture.graph import BOX_GAP, graph_of, layered, places
from tests.support.examples import examples
from tests.support.paths import EXAMPLE
from tests.support.pictures import LOOP, NODES


def test_dot_quotes_what_it_names() -> None:
    text = to_dot(plan(EXAMPLE.read_text()).spec)
    assert text.startswith('digraph "Temperature" {\n')
    assert '"channel mesh.Temperature.TempStream" -> "group group-1";' in text
    assert re.search(r'-> "group group-2" \[style=dashed label="round robin"\];', text)
    assert text.count("{") == text.count("}") == 1


def test_what_has_no_loop_has_nothing_backward() -> None:
    edges = [("n0", "n1"), ("n1", "n2"), ("n0", "n2"), ("n3", "n2"), ("n2", "n4")]
    assert not layered(NODES, edges).backward


def test_a_loop_is_entered_at_the_first_stream() -> None:
    spec = plan(LOOP).spec
    graph = graph_of(spec)
    found = layered([n.id for n in graph.nodes], [(e.source, e.target) for e in graph.edges])
    assert found.backward == {("group back", "channel mesh.Loop.S")}
    assert "channel mesh.Loop.S" in found.layers[0]


@st.composite
def graphs(draw: st.DrawFn) -> list[tuple[str, str]]:
    pairs = [(a, b) for a in NODES for b in NODES if a != b]
    return draw(st.lists(st.sampled_from(pairs), max_size=16))


@given(graphs())
@settings(max_examples=examples(60), deadline=None)
def test_edges_lead_from_layer_to_layer_and_boxes_do_not_overlap(
    edges: list[tuple[str, str]],
) -> None:
    found = layered(NODES, edges)
    layer = {node: n for n, row in enumerate(found.layers) for node in row}
    assert set(NODES) <= set(layer)
    assert len(layer) == sum(len(row) for row in found.layers)
    for edge in edges:
        path = found.paths[edge]
        assert {path[0], path[-1]} == set(edge)
        assert (path[0] == edge[1]) == (edge in found.backward)
        assert all(layer[b] == layer[a] + 1 for a, b in pairwise(path))
    boxes = places(found, dict.fromkeys(NODES, (20.0, 30.0)))
    assert min(box.y for box in boxes.values()) == pytest.approx(0)
    for row in found.layers:
        for above, below in pairwise(row):
            assert boxes[below].y - boxes[above].y - boxes[above].height >= BOX_GAP - 1e-6
    for left, right in combinations(range(len(found.layers)), 2):
        edge_of = max(boxes[n].x + boxes[n].width for n in found.layers[left])
        assert all(boxes[n].x > edge_of for n in found.layers[right])
