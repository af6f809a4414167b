"""The picture of a plan: layers and places for any graph, and the content of SVG and dot."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from mesh.cli.commands import app
from mesh.plan.build import plan
from mesh.plan.picture import to_dot, to_svg
from mesh.plan.picture.graph import graph_of
from mesh.plan.picture.layers import layered
from mesh.plan.picture.places import BOX_GAP, places
from tests.support.examples import examples
from tests.support.paths import EXAMPLE

SVG = "{http://www.w3.org/2000/svg}"
LOOP = """
@App:name('Loop') define stream S (k string, a int); define stream M (k string, a int);
@dist(execGroup='first') from S[a < 5] select k, a insert into M;
@dist(execGroup='sums', parallel='2') from M select k, sum(a) as a group by k insert into N;
@dist(execGroup='many', parallel='3') from N[a > 1] select k insert into Out;
@dist(execGroup='back', node='gpu=true') from N select k, convert(a, 'int') as a insert into S;
"""
NODES = [f"n{n}" for n in range(9)]


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


def test_what_has_no_loop_has_nothing_backward() -> None:
    edges = [("n0", "n1"), ("n1", "n2"), ("n0", "n2"), ("n3", "n2"), ("n2", "n4")]
    assert not layered(NODES, edges).backward


def test_a_loop_is_entered_at_the_first_stream() -> None:
    spec = plan(LOOP).spec
    graph = graph_of(spec)
    found = layered([n.id for n in graph.nodes], [(e.source, e.target) for e in graph.edges])
    assert found.backward == {("group back", "channel mesh.Loop.S")}
    assert "channel mesh.Loop.S" in found.layers[0]


def test_the_svg_names_all_groups_and_streams() -> None:
    spec = plan(LOOP).spec
    root = ET.fromstring(to_svg(spec))
    texts = {text.text for text in root.iter(f"{SVG}text")}
    assert {"first", "sums \u00d72", "many \u00d73", "back", "S", "M", "N", "Out"} <= texts
    assert {"by (k)", "8 partitions", "on gpu=true", "partitioner", "stateful"} <= texts
    paths = [path.get("class", "") for path in root.iter(f"{SVG}path")]
    # The last four are the legend's.
    assert sorted(filter(None, paths[:-4])) == ["back", "by-key", "round-robin"]
    titles = [title.text or "" for title in root.iter(f"{SVG}title")]
    assert any("mesh.Loop.M.by.k.0" in title for title in titles)


def test_every_box_lies_within_the_picture() -> None:
    root = ET.fromstring(to_svg(plan(EXAMPLE.read_text()).spec))
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for box in root.iter(f"{SVG}rect"):
        x, y = float(box.get("x", 0)), float(box.get("y", 0))
        assert 0 <= x <= x + float(box.get("width", 0)) <= width
        assert 0 <= y <= y + float(box.get("height", 0)) <= height


def test_the_same_plan_is_drawn_alike() -> None:
    assert to_svg(plan(EXAMPLE.read_text()).spec) == to_svg(plan(EXAMPLE.read_text()).spec)


def test_dot_quotes_what_it_names() -> None:
    text = to_dot(plan(EXAMPLE.read_text()).spec)
    assert text.startswith('digraph "Temperature" {\n')
    assert '"channel mesh.Temperature.TempStream" -> "group group-1";' in text
    assert re.search(r'-> "group group-2" \[style=dashed label="round robin"\];', text)
    assert text.count("{") == text.count("}") == 1


@pytest.mark.parametrize(("form", "start"), [("svg", "<svg "), ("dot", "digraph ")])
def test_the_command_draws(form: str, start: str) -> None:
    said = CliRunner().invoke(app, ["plan", str(EXAMPLE), "--output", form])
    assert said.exit_code == 0
    assert said.stdout.startswith(start)
