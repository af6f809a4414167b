"""Completion on the eight examples."""

from __future__ import annotations

from pathlib import Path

from mesh.language.tokens import TokenKind
from mesh.language_service.completion import complete
from tests.support.edited_examples import document_of, each


@each
def test_every_word_is_proposed_where_it_is_written(path: Path) -> None:
    document = document_of(path)
    assert document.readable is not None
    cursor = document.readable.reading.cursor
    defined = {
        (one.position.line, one.position.column)
        for one in document.symbols.occurrences
        if one.is_definition
    }
    named = {(o.position.line, o.position.column) for o in document.symbols.occurrences}
    asked = 0
    for index, token in enumerate(cursor.tokens):
        at = cursor.place(token)
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
