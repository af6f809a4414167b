"""Annotations as an editor proposes them."""

from __future__ import annotations

from mesh.language_service.annotations import kind_of
from mesh.language_service.document import Document


def test_each_annotation_names_options_that_the_planner_accepts() -> None:
    options = " ".join(f"{o.name}='1'," for o in kind_of("dist", "query").options)  # type: ignore[union-attr]  # it is known
    text = f"define stream S (a int); @dist({options} @x) from S select a insert into T;"
    codes = {error.code for error in Document(text, "A").problems}
    assert "MESH-P203" not in codes
