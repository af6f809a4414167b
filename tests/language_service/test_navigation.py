"""Definitions, references and changes of names, on the eight examples."""

from __future__ import annotations

from pathlib import Path

from mesh.language_service.document import Document
from mesh.language_service.hover import hover
from mesh.language_service.navigation import applied, definition, references, rename
from mesh.language_service.outline import inferred_types
from mesh.language_service.symbols import SymbolKind
from tests.support.edited_examples import document_of, each, names_in

_NEW = "entirely_new"


@each
def test_every_name_has_a_definition_a_type_and_references(path: Path) -> None:
    document = document_of(path)
    for one in names_in(document):
        line, column = one.position.line, one.position.column
        defined = definition(document, line, column)
        assert defined is not None, document.slice(one.position)
        if one.symbol.name != "triggered_time":
            assert document.slice(defined) == one.symbol.name
        assert one.position in references(document, line, column)
        shown = hover(document, line, column)
        assert shown is not None
        assert one.symbol.name in shown.code
        if one.symbol.kind is SymbolKind.ATTRIBUTE:
            assert " " in shown.code, "an attribute has a type"


@each
def test_every_name_can_be_changed_and_changed_back(path: Path) -> None:
    document = document_of(path)
    for one in names_in(document):
        if not one.is_definition:
            continue
        line, column = one.position.line, one.position.column
        renamed = applied(document, rename(document, line, column, _NEW))
        after = Document(renamed, path.stem)
        assert not after.problems
        own = [o for o in names_in(after) if o.symbol.name == _NEW]
        assert len(own) >= len(references(document, line, column))
        if " as " in renamed.replace(document.text, ""):
            assert len(inferred_types(after, 1, 999)) == len(inferred_types(document, 1, 999))
        if renamed.count(" as ") == document.text.count(" as "):
            first = own[0].position
            back = rename(after, first.line, first.column, one.symbol.name)
            assert applied(after, back).replace("`", "") == document.text.replace("`", "")
