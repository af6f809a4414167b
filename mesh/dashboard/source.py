"""The lines of a text with the errors in them, for a page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.errors import MeshError


@dataclass(frozen=True, slots=True)
class Line:
    """A line, cut where its first error is."""

    before: str
    #: The place of the error; empty in a line without one.
    wrong: str
    after: str
    errors: tuple[MeshError, ...] = ()


def lines_of(text: str, errors: Sequence[MeshError]) -> list[Line]:
    """The lines of ``text``; errors without a position are in none."""
    found: dict[int, list[MeshError]] = {}
    for error in errors:
        if error.position is not None:
            found.setdefault(error.position.line, []).append(error)
    lines = []
    for number, line in enumerate(text.split("\n"), 1):
        here = tuple(found.get(number, ()))
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
