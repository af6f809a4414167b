"""The picture of a plan as SVG."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from mesh.plan.build import plan
from mesh.plan.picture import to_svg
from tests.support.paths import EXAMPLE
from tests.support.pictures import LOOP

SVG = "{http://www.w3.org/2000/svg}"


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
