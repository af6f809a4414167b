"""Every feature on the eight examples, compared with the binder and with the text itself."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mesh.language.formatting import canonical
from mesh.language.tokens import TokenKind
from mesh.language_service.completion import complete
from mesh.language_service.document import Document
from mesh.language_service.fixes import fixes
from mesh.language_service.hover import hover
from mesh.language_service.navigation import applied, definition, references, rename
from mesh.language_service.outline import inferred_types, lenses, outline
from mesh.language_service.symbols import SymbolKind
from mesh.plan.bound import (
    BoundJoin,
    BoundPattern,
    BoundQuery,
    BoundStream,
    Column,
)
from tests.support import paths

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = sorted(
    path
    for path in paths.ROOT.joinpath("examples").glob("*.siddhi")
    if not path.name.endswith(".engine.siddhi")
)
_NEW = "entirely_new"
each = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)


def _document(path: Path) -> Document:
    document = Document(path.read_text(), path.stem)
    assert not document.problems
    return document


def test_there_are_eight() -> None:
    assert len(EXAMPLES) == 8


@each
def test_names_resolve_as_the_binder_resolves_them(path: Path) -> None:
    document = _document(path)
    assert document.plan is not None
    compared = 0
    for query in document.plan.bound.all_queries:
        read = _read(query)
        for column in _columns(query.outputs):
            found = document.symbols.at(_name_place(document, column))
            if found is None:
                # ``select *`` names nothing.
                continue
            assert found.symbol.name == column.name
            owner = found.symbol.owner.rpartition("#")[2]
            assert owner == read[column.step].lstrip("#!")
            compared += 1
    assert compared


def _read(query: BoundQuery) -> list[str]:
    match query.input:
        case BoundStream():
            return [query.input.schema.name]
        case BoundJoin():
            return [query.input.left.schema.name, query.input.right.schema.name]
        case BoundPattern():
            return [step.schema.name for step in query.input.steps]


def _columns(part: Any) -> Iterator[Column]:
    if isinstance(part, Column):
        if part.step >= 0:
            yield part
    elif isinstance(part, tuple):
        for one in part:
            yield from _columns(one)
    elif is_dataclass(part):
        for field in fields(part):
            yield from _columns(getattr(part, field.name))


def _name_place(document: Document, column: Column) -> tuple[int, int]:
    """The place of the attribute's name after its prefix."""
    at = column.position
    written = document.slice(at)
    return at.line, at.column + written.rfind(".") + 1


@each
def test_every_word_is_proposed_where_it_is_written(path: Path) -> None:
    document = _document(path)
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


@each
def test_every_name_has_a_definition_a_type_and_references(path: Path) -> None:
    document = _document(path)
    for one in document.symbols.occurrences:
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
    document = _document(path)
    for one in document.symbols.occurrences:
        if not one.is_definition:
            continue
        line, column = one.position.line, one.position.column
        renamed = applied(document, rename(document, line, column, _NEW))
        after = Document(renamed, path.stem)
        assert not after.problems
        own = [o for o in after.symbols.occurrences if o.symbol.name == _NEW]
        assert len(own) >= len(references(document, line, column))
        if " as " in renamed.replace(document.text, ""):
            assert len(inferred_types(after, 1, 999)) == len(inferred_types(document, 1, 999))
        if renamed.count(" as ") == document.text.count(" as "):
            first = own[0].position
            back = rename(after, first.line, first.column, one.symbol.name)
            assert applied(after, back).replace("`", "") == document.text.replace("`", "")


@each
def test_lenses_types_and_outline_are_of_each_query(path: Path) -> None:
    document = _document(path)
    assert document.plan is not None
    queries = document.plan.bound.all_queries
    shown = lenses(document)
    assert sorted((one.position.line, one.position.column) for one in shown) == sorted(
        (one.position.line, one.position.column) for one in queries
    )
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


@each
def test_a_text_of_any_length_has_answers(path: Path) -> None:
    text = path.read_text()
    whole = _document(path)
    for token in whole.written.tokens[::3]:
        cut = Document(text[: token.start], path.stem)
        at = cut.places.of(token.start, token.start)
        complete(cut, at.line, at.column)
        hover(cut, at.line, max(1, at.column - 1))
        references(cut, at.line, at.column)
        outline(cut)
        inferred_types(cut, 1, 999)
        fixes(cut, 1, 999)
        assert all(error.position is not None for error in cut.problems)


@each
def test_formatting_is_that_of_the_command_and_keeps_all_answers(path: Path) -> None:
    made = Document(canonical(path.read_text()), path.stem)
    whole = _document(path)
    assert [one.symbol.name for one in made.symbols.occurrences] == [
        one.symbol.name for one in whole.symbols.occurrences
    ]
