"""Layers of a graph: what points backward, and where a loop is entered."""

from __future__ import annotations

from mesh.plan.build import plan
from mesh.plan.picture.graph import graph_of
from mesh.plan.picture.layers import layered
from tests.support.pictures import LOOP, NODES


def test_what_has_no_loop_has_nothing_backward() -> None:
    edges = [("n0", "n1"), ("n1", "n2"), ("n0", "n2"), ("n3", "n2"), ("n2", "n4")]
    assert not layered(NODES, edges).backward


def test_a_loop_is_entered_at_the_first_stream() -> None:
    spec = plan(LOOP).spec
    graph = graph_of(spec)
    found = layered([n.id for n in graph.nodes], [(e.source, e.target) for e in graph.edges])
    assert found.backward == {("group back", "channel mesh.Loop.S")}
    assert "channel mesh.Loop.S" in found.layers[0]
