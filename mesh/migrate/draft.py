"""A text while it is migrated: edits by offsets, and a note for each of them."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from mesh.language.substitution import Places, replaced
from mesh.language.tokens import TokenKind, tokenize
from mesh.language.written import annotations_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.errors import MeshError
    from mesh.language.written import WrittenAnnotation, WrittenElement

#: Words between an annotation and the name of its definition.
_DEFINED: Final = ("stream", "table", "window", "trigger", "aggregation", "function")


class NoteKind(StrEnum):
    """Kind of a note; the values are its heading."""

    CHANGED = "changed"
    DIFFERS = "has another meaning here"
    ABSENT = "has no counterpart"


class MigrationState(StrEnum):
    """Outcome for a text."""

    AS_IS = "deployable as it is"
    CHANGED = "deployable after changes"
    REFUSED = "not deployable"


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence about one place of the original text."""

    kind: NoteKind
    #: From 1; 0 for the text as a whole.
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Migrated:
    """A migrated text, with everything that a person should know about it."""

    #: Name of the app; empty if it can't be read.
    app: str
    #: ``3`` for Siddhi 3, ``4, 5`` for later ones.
    version: str
    text: str
    state: MigrationState
    notes: tuple[Note, ...]
    #: Reasons why the migrated text can't be deployed; positions are those of ``text``.
    errors: tuple[MeshError, ...] = ()


@dataclass(slots=True)
class Draft:
    """Edits and notes of one text."""

    text: str
    edits: list[tuple[int, int, str]] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    _places: Places = field(init=False)

    def __post_init__(self) -> None:
        self._places = Places(self.text)

    @property
    def result(self) -> str:
        """The text with all edits; one inside of another range is left out with it."""
        edits: list[tuple[int, int, str]] = []
        for edit in sorted(self.edits, key=lambda one: (one[0], -one[1])):
            if not edits or edit[0] >= edits[-1][1]:
                edits.append(edit)
        return str(replaced(self.text, edits)) if edits else self.text

    def annotations(self) -> list[WrittenAnnotation]:
        """The annotations of the text, those inside of others left out."""
        return annotations_of(self.text)

    def change(self, start: int, stop: int, text: str, note: str) -> None:
        """Replace a range, and say so."""
        self.edits.append((start, stop, text))
        self.note(NoteKind.CHANGED, start, note)

    def note(self, kind: NoteKind, at: int, text: str) -> None:
        """Add a note about an offset; the same one is added once for a line."""
        entry = Note(kind, self._places.line(at) if at >= 0 else 0, text)
        if entry not in self.notes:
            self.notes.append(entry)

    def comment_out(self, annotation: WrittenAnnotation, why: str) -> None:
        """Keep an annotation as a comment only."""
        written = self.text[annotation.start : annotation.stop].replace("*/", "* /")
        self.edits.append((annotation.start, annotation.stop, f"/* {written} */"))
        self.note(NoteKind.ABSENT, annotation.start, why)

    def set_text(self, element: WrittenElement, text: str, note: str) -> None:
        """Give an element another text."""
        self.change(element.text_start, element.stop, f"'{text}'", note)

    def rename(self, annotation: WrittenAnnotation, name: str) -> None:
        """Give an annotation another name."""
        stop = annotation.stop if annotation.opened is None else annotation.opened - 1
        written = self.text[annotation.start : stop].rstrip()
        self.change(
            annotation.start,
            annotation.start + len(written),
            f"@{name}",
            f"@{annotation.name} is @{name}",
        )


@dataclass(frozen=True, slots=True)
class Definitions:
    """Names of definitions by the annotations before them."""

    _starts: list[int]
    _names: list[tuple[str, str]]

    @staticmethod
    def of(text: str) -> Definitions:
        """The definitions of a text, which may be of an earlier version."""
        definitions = list(_definitions(text))
        return Definitions(
            [at for at, _, _ in definitions], [(kind, name) for _, kind, name in definitions]
        )

    def after(self, offset: int) -> tuple[str, str]:
        """Kind and name of the first definition after an offset; empty texts without one."""
        at = bisect_left(self._starts, offset)
        return self._names[at] if at < len(self._names) else ("", "")


def _definitions(text: str) -> Iterator[tuple[int, str, str]]:
    tokens = tokenize(text).tokens
    for at, token in enumerate(tokens[:-2]):
        if token.kind is TokenKind.NAME and token.text.lower() == "define":
            kind = tokens[at + 1].text.lower()
            if kind in _DEFINED:
                yield token.start, kind, str(tokens[at + 2].value or tokens[at + 2].text)
