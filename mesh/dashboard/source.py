"""The errors of a text that a form was sent with, and its lines with the errors in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError, all_errors, text_lines

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Line:
    """A line, cut where its first error is."""

    before: str
    #: The place of the error; empty in a line without one.
    wrong: str
    after: str
    errors: tuple[MeshError, ...] = ()


@dataclass(frozen=True, slots=True)
class TextErrors:
    """Errors with the lines of their text; without lines where no error has a place in it."""

    errors: Sequence[MeshError] = ()
    lines: Sequence[Line] = ()


NO_ERRORS: Final = TextErrors()


def errors_in(text: str, error: MeshError) -> TextErrors:
    """The errors that ``error`` stands for, in their text."""
    errors = all_errors(error)
    has_place = any(one.position is not None for one in errors)
    return TextErrors(errors, lines_of(text, errors) if has_place else ())


def form_errors(text: str, error: MeshError) -> TextErrors:
    """``errors_in`` for a form that shows them; a missing permission, MESH-A403, is raised."""
    if error.code == "MESH-A403":
        raise error
    return errors_in(text, error)


def lines_of(text: str, errors: Sequence[MeshError]) -> list[Line]:
    """The lines of ``text``; errors without a position are in none."""
    by_line: dict[int, list[MeshError]] = {}
    for error in errors:
        if error.position is not None:
            by_line.setdefault(error.position.line, []).append(error)
    lines = []
    for number, line in enumerate(text_lines(text), 1):
        here = tuple(by_line.get(number, ()))
        first = here[0].position if here else None
        if first is None:
            lines.append(Line(line, "", ""))
            continue
        start = min(max(first.column - 1, 0), len(line))
        end = min(len(line), start + max(1, first.length))
        # An error at the end of a line has no character of its own.
        wrong = line[start:end] or "\u2423"
        lines.append(Line(line[:start], wrong, line[end:], here))
    return lines
