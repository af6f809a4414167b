"""Lenses, types and the outline, on the eight examples."""

from __future__ import annotations

from pathlib import Path

from mesh.language_service.outline import inferred_types, lenses, outline
from tests.support.edited_examples import document_of, each


@each
def test_lenses_types_and_outline_are_of_each_query(path: Path) -> None:
    document = document_of(path)
    assert document.plan is not None
    queries = document.plan.bound.all_queries
    shown = lenses(document)
    assert {one.position for one in shown} == {document.in_text(q.position) for q in queries}
    assert len(shown) == len(queries)
    groups = {group.name for group in document.plan.spec.groups}
    assert {one.text.split(",")[0].removeprefix("group ") for one in shown} <= groups
    types = {
        str(output.expression.type)
        for query in queries
        for output in query.outputs
        if output.expression.position.line
    }
    assert {one.text.removeprefix(": ") for one in inferred_types(document, 1, 999)} <= types
    names = {inside.name for part in outline(document) for inside in (part, *part.parts)}
    assert {query.name for query in queries} <= names
