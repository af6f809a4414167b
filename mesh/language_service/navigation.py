"""Go to definition, references and rename.

Code actions: the edits that the hints of errors name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError, Position
from mesh.language.print_expressions import print_name
from mesh.language.tokens import TokenKind
from mesh.language_service.document import Document
from mesh.language_service.symbols import SymbolKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.language_service.symbols import Occurrence, Symbol


_MEANT: Final = re.compile(r"Did you mean ([\"'])(.+?)\1\?")
_LITERAL: Final = re.compile(r"Write (-?[0-9][0-9.]*L?)(?:,|\.(?!\d))")
_BACKQUOTES: Final = re.compile(r"'(\w+)' is a keyword; as a name it is in backquotes")
_QUOTED: Final = re.compile(r"\"([^\"]+)\"|'([^']+)'")


@dataclass(frozen=True, slots=True)
class Fix:
    """An edit that a hint names."""

    title: str
    error: MeshError
    edit: TextEdit


def fixes(document: Document, first: int, last: int) -> list[Fix]:
    """The fixes of the errors in lines ``first`` to ``last``."""
    return [
        fix
        for error in document.problems
        if error.position is not None and first <= error.position.line <= last
        for fix in _fixes(document, error, error.position)
    ]


def _fixes(document: Document, error: MeshError, at: Position) -> Iterator[Fix]:
    hint = error.hint or ""
    meant = _MEANT.search(hint)
    if meant is not None:
        place = _wrong(document, error.message, at)
        if place is not None:
            yield Fix(f"Replace with {meant[2]}", error, TextEdit(place, meant[2]))
    elif "Is a ';' missing before it?" in hint:
        yield _insertion(document, error, at, ";")
    elif "Is a ',' missing before it?" in hint:
        yield _insertion(document, error, at, ",")
    elif hint.startswith("One ';' too many"):
        yield Fix("Remove ';'", error, TextEdit(at, ""))
    elif (literal := _LITERAL.match(hint)) is not None and document.slice(at)[:1] in "-0123456789":
        yield Fix(f"Write {literal[1]}", error, TextEdit(at, literal[1]))
    elif (word := _BACKQUOTES.search(hint)) is not None:
        yield Fix(f"Write `{word[1]}`", error, TextEdit(at, f"`{word[1]}`"))


def _insertion(document: Document, error: MeshError, at: Position, symbol: str) -> Fix:
    """Insert a symbol after the token before the error."""
    offset = document.places.offset(at.line, at.column)
    before = [token for token in document.written.tokens if token.start < offset]
    end = before[-1].start + len(before[-1].text) if before else 0
    place = document.places.of(end, end)
    return Fix(f"Insert '{symbol}'", error, TextEdit(Position(place.line, place.column, 0), symbol))


def _wrong(document: Document, message: str, at: Position) -> Position | None:
    """The place of the name that an error's message quotes, at its position or soon after."""
    start = document.places.offset(at.line, at.column)
    end = document.text.find(";", start)
    statement = document.text[start : end if end >= 0 else len(document.text)]
    quoted = [one[0] or one[1] for one in _QUOTED.findall(message)]
    # The wrong name is quoted after the names of the things around it.
    for wrong in reversed(quoted):
        for name in (wrong, wrong.lstrip("#!")):
            match = re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", statement)
            if match is not None:
                return document.places.of(start + match.start(), start + match.end())
    match = re.search(rf"(?<=\.){re.escape(quoted[0])}(?!\w)", statement) if quoted else None
    if match is None:
        return None
    return document.places.of(start + match.start(), start + match.end())


@dataclass(frozen=True, slots=True)
class TextEdit:
    """A replacement in the text."""

    position: Position
    text: str


def definition(document: Document, line: int, column: int) -> Position | None:
    """The position of the definition of the name at a place.

    The definition of a stream without one is the first query that inserts into it.
    """
    occurrence = _name_at(document, line, column)
    if occurrence is None:
        return None
    defined = document.symbols.definition(occurrence)
    return document.in_text(defined.position) if defined is not None else None


def references(document: Document, line: int, column: int) -> list[Position]:
    """The positions of all occurrences of the name at a place, its definition among them."""
    occurrence = _name_at(document, line, column)
    if occurrence is None:
        return []
    return [at for at, _ in _in_order(document, document.symbols.of(occurrence.symbol))]


def renamable(document: Document, line: int, column: int) -> Position | None:
    """The position of the name at a place, if it can be changed."""
    occurrence = _name_at(document, line, column)
    if occurrence is None or document.symbols.definition(occurrence) is None:
        return None
    return document.in_text(occurrence.position)


def rename(document: Document, line: int, column: int, name: str) -> list[TextEdit]:
    """The edits that give the name at a place another one, everywhere.

    Attributes that ``select *`` gives one name are changed together; a selected attribute that
    keeps its name in the output, or outside, gets ``as``.

    Raises:
        MeshError: MESH-U184 where there is no name, or the text would have an error afterwards.
    """
    occurrence = _name_at(document, line, column)
    if occurrence is None or document.symbols.definition(occurrence) is None:
        raise MeshError(
            "MESH-U184",
            "there is no name to change here",
            hint="Place the cursor on a name of the app.",
        )
    if not name.strip():
        raise MeshError("MESH-U184", "the new name is empty", hint="Give a name.")
    occurrences = _in_order(document, document.symbols.of(occurrence.symbol))
    edits = [
        TextEdit(at, _renamed(document, one, occurrence.symbol, name)) for at, one in occurrences
    ]
    after = applied(document, edits)
    new = [str(one) for one in Document(after, document.name, document.fill).problems]
    if new and not document.problems:
        raise MeshError(
            "MESH-U184",
            f'"{occurrence.symbol.name}" can\'t become "{name}"',
            detail=f"The text would have an error: {new[0]}.",
            hint="Choose a name that nothing else has.",
        )
    return edits


def applied(document: Document, edits: list[TextEdit]) -> str:
    """The text with the edits."""
    text = document.text
    for edit in sorted(edits, key=lambda e: (e.position.line, e.position.column), reverse=True):
        start = document.places.offset(edit.position.line, edit.position.column)
        text = text[:start] + edit.text + text[start + edit.position.length :]
    return text


def _name_at(document: Document, line: int, column: int) -> Occurrence | None:
    return document.symbols.at(document.stable_place(line, column))


def _in_order(
    document: Document, occurrences: list[Occurrence]
) -> list[tuple[Position, Occurrence]]:
    """The occurrences with their positions in the text, in its order."""
    placed = [(document.in_text(one.position), one) for one in occurrences]
    unique = {(at.line, at.column): (at, one) for at, one in placed}
    return [unique[key] for key in sorted(unique)]


def _renamed(document: Document, one: Occurrence, symbol: Symbol, name: str) -> str:
    """The text in the place of an occurrence."""
    symbols = document.symbols
    if one.symbol.kind is SymbolKind.QUERY:
        return name
    index = document.token_index((one.position.line, one.position.column))
    tokens = document.readable.reading.cursor.tokens if document.readable else ()
    is_text = index is None or tokens[index].kind is TokenKind.STRING
    written = name if is_text else print_name(name)
    if one.output is None:
        return written
    is_input = symbols.root(one.symbol) == symbols.root(symbol)
    is_output = symbols.root(one.output) == symbols.root(symbol)
    if is_input and is_output:
        return written
    original = document.slice(document.in_text(one.position))
    return f"{written} as {original}" if is_input else f"{original} as {written}"
