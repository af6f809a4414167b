"""Places of boxes, for any graph."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.plan.picture.layers import layered
from mesh.plan.picture.places import BOX_GAP, places
from tests.support.examples import examples
from tests.support.pictures import NODES


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
