"""Code actions: the edits that the hints of errors name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mesh.errors import Position
from mesh.language_service.navigation import TextEdit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.errors import MeshError
    from mesh.language_service.document import Document

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
