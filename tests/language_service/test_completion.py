"""Completion on the eight examples."""

from __future__ import annotations

from pathlib import Path

from mesh.language.tokens import TokenKind
from mesh.language_service.completion import complete
from tests.support.edited_examples import document_of, each, names_in


@each
def test_every_word_is_proposed_where_it_is_written(path: Path) -> None:
    document = document_of(path)
    assert document.readable is not None
    cursor = document.readable.reading.cursor
    names = names_in(document)
    defined = {(o.position.line, o.position.column) for o in names if o.is_definition}
    named = {(o.position.line, o.position.column) for o in names}
    asked = 0
    for index, token in enumerate(cursor.tokens):
        at = document.in_text(cursor.place(token))
        place = at.line, at.column
        if token.kind is not TokenKind.NAME or place in defined:
            continue
        if index not in cursor.layout.words and place not in named:
            continue
        if place in named and index in cursor.layout.words:
            continue
        found = complete(document, at.line, at.column + 1)
        labels = [one.label.rstrip(".") for one in found.proposals]
        before = document.text[found.start : token.start]
        assert f"{before}{token.text}" in labels, f"{token.text} at {place}"
        asked += 1
    assert asked > 10
