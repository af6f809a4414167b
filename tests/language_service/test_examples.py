"""Every feature on the eight examples, compared with the binder and with the text itself."""

from __future__ import annotations

from pathlib import Path

from mesh.language.layout import canonical
from mesh.language_service.completion import complete
from mesh.language_service.document import Document
from mesh.language_service.hover import hover
from mesh.language_service.navigation import fixes, references
from mesh.language_service.outline import inferred_types, outline
from tests.support.edited_examples import EXAMPLES, document_of, each, names_in


def test_there_are_eight() -> None:
    assert len(EXAMPLES) == 8


@each
def test_a_text_of_any_length_has_answers(path: Path) -> None:
    text = path.read_text()
    whole = document_of(path)
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
    whole = document_of(path)
    assert [one.symbol.name for one in names_in(made)] == [
        one.symbol.name for one in names_in(whole)
    ]
