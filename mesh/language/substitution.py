"""Substitution of variables in an app's text before parsing: ``${NAME}``, ``${NAME:default}``.

Variables may occur anywhere except in comments, also inside strings.  The reference engine has no
defaults, and substitutes in comments as well.  ``${secret:NAME}`` is no variable
(``mesh.model.secrets``): it stays in strings, and is invalid elsewhere.

Positions in a text: offsets to lines and columns.
"""

from __future__ import annotations

import difflib
import os
import re
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from mesh.errors import LINE_END, MeshError, MeshErrors, Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Places:
    """Converter from offsets to lines and columns."""

    def __init__(self, text: str) -> None:
        ends = [(m.start(), m.end()) for m in LINE_END.finditer(text)]
        self._starts = [0, *(end for _, end in ends)]
        self._ends = [*(start for start, _ in ends), len(text)]
        # A sentinel for the end of the last line, greater than all offsets.
        self._starts.append(len(text) + 1)
        #: The line of the last lookup; the next lookup is mostly in the same line.
        self._line = 0

    def of(self, start: int, stop: int) -> Position:
        """The position of ``text[start:stop]``, cut at the end of its first line."""
        # Texts with other places have offsets of their own, and these are of the original.
        line, column = Places.at(self, start)
        return Position(line, column, max(1, min(stop, self._ends[line - 1]) - start))

    def at(self, offset: int) -> tuple[int, int]:
        """The line and column of an offset."""
        line = self._line
        if not self._starts[line] <= offset < self._starts[line + 1]:
            self._line = line = bisect_right(self._starts, offset) - 1
        return line + 1, offset - self._starts[line] + 1

    def offset(self, line: int, column: int) -> int:
        """The offset of a place; of one outside of the text the nearest inside."""
        if line < 1:
            return 0
        if line > len(self._ends):
            return self._ends[-1]
        return min(self._starts[line - 1] + max(0, column - 1), self._ends[line - 1])

    def origin(self, start: int, stop: int) -> tuple[int, int] | None:
        """The place of ``start``, if the range is written in the text as it is here.

        The positions in it depend on this place and on its own text alone then.
        """
        del stop
        return self.at(start)

    def line(self, offset: int) -> int:
        """The line of an offset, from 1."""
        return bisect_right(self._starts, offset)


VARIABLE: Final = re.compile(r"\$\{(\w+)(?::([^}\r\n]*))?\}")
_COMMENT_OR_STRING: Final = re.compile(
    r"""(--[^\r\n]*|/\*.*?(?:\*/|\Z))|\"\"\".*?\"\"\"|"[^"\r\n]*"|'[^'\r\n]*'""", re.DOTALL
)


class SubstitutedText(str):
    """A text with substituted variables that maps positions to the original text.

    The parser reports positions in the text as the user wrote it.
    """

    __slots__ = ("places",)

    places: Places


class _Written(Places):
    """Positions in the original text, by offsets into the substituted one."""

    def __init__(self, text: str, values: list[tuple[int, int, int]]) -> None:
        super().__init__(text)
        #: Positions in the text before an earlier change; None if there was none.
        self._before = text.places if isinstance(text, SubstitutedText) else None
        #: For each variable: its start in the original text, its length, the length of its value.
        self._values = values
        self._starts_now = []
        moved = 0
        for start, length, value_length in values:
            self._starts_now.append(start + moved)
            moved += value_length - length

    def of(self, start: int, stop: int) -> Position:
        """The position of a range of the substituted text."""
        first, _ = self._as_written(start)
        _, last = self._as_written(max(start, stop - 1))
        if self._before is not None:
            return self._before.of(first, max(first, last) + 1)
        return super().of(first, last + 1)

    def at(self, offset: int) -> tuple[int, int]:
        """The line and column of an offset in the original."""
        first, _ = self._as_written(offset)
        return super().at(first) if self._before is None else self._before.at(first)

    def origin(self, start: int, stop: int) -> tuple[int, int] | None:
        """The place of a range without a variable in it; see ``Places``."""
        index = bisect_right(self._starts_now, start) - 1
        is_plain = index == bisect_right(self._starts_now, stop) - 1 and (
            index < 0 or start >= self._starts_now[index] + self._values[index][2]
        )
        if not is_plain:
            return None
        if self._before is None:
            return self.at(start)
        (first, _), (last, _) = self._as_written(start), self._as_written(stop)
        return self._before.origin(first, last)

    def line(self, offset: int) -> int:
        """The original line of an offset."""
        first, _ = self._as_written(offset)
        return super().line(first) if self._before is None else self._before.line(first)

    def _as_written(self, offset: int) -> tuple[int, int]:
        """The offsets of the first and the last original character that produced an offset."""
        index = bisect_right(self._starts_now, offset) - 1
        if index < 0:
            return offset, offset
        start, length, value_length = self._values[index]
        behind = offset - self._starts_now[index] - value_length
        if behind < 0:
            return start, start + length - 1
        return start + length + behind, start + length + behind


def variables_for(
    text: str, values: Mapping[str, str] | None = None, environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The given values, and the environment variables that ``text`` refers to.

    Other environment variables are left out, as error messages list the names that have a value.
    """
    names = {match.group(1) for match in VARIABLE.finditer(text)}
    return {**{name: environment[name] for name in names if name in environment}, **(values or {})}


def substitute(text: str, variables: Mapping[str, str]) -> SubstitutedText:
    """Replace each ``${NAME}`` in ``text`` by its value.

    Args:
        text: the app as written.
        variables: the values; the default applies to a variable without one.

    Raises:
        MeshErrors: MESH-L108 for each variable that has neither.
    """
    parts: list[str] = []
    values: list[tuple[int, int, int]] = []
    errors: list[MeshError] = []
    written: Places | None = None
    end = 0
    for match in _variables(text):
        default: str | None = match.group(2)
        value = variables.get(match.group(1), default)
        if value is None:
            written = written or Places(text)
            errors.append(_missing(match, variables, written))
            continue
        parts += (text[end : match.start()], value)
        values.append((match.start(), match.end() - match.start(), len(value)))
        end = match.end()
    if errors:
        raise MeshErrors(errors)
    result = SubstitutedText("".join((*parts, text[end:])))
    result.places = _Written(text, values)
    return result


def replaced(text: str, edits: Iterable[tuple[int, int, str]]) -> SubstitutedText:
    """A text with other text in the place of ranges; positions are those of the original.

    ``edits`` are (start, stop, text) by offsets, in their order, and don't overlap.
    """
    parts: list[str] = []
    values: list[tuple[int, int, int]] = []
    end = 0
    for start, stop, value in edits:
        parts += (text[end:start], value)
        values.append((start, stop - start, len(value)))
        end = stop
    result = SubstitutedText("".join((*parts, text[end:])))
    result.places = _Written(text, values)
    return result


def _variables(text: str) -> list[re.Match[str]]:
    """The variables of ``text`` outside of comments."""
    comments = [m.span() for m in _COMMENT_OR_STRING.finditer(text) if m.group(1)]
    starts = [start for start, _ in comments]
    matches = []
    for match in VARIABLE.finditer(text):
        # A secret is no variable with a default: its value is no part of any text.
        if match.group(1) == "secret" and match.group(2) is not None:
            continue
        index = bisect_right(starts, match.start()) - 1
        if index < 0 or match.start() >= comments[index][1]:
            matches.append(match)
    return matches


def _missing(match: re.Match[str], variables: Mapping[str, str], places: Places) -> MeshError:
    name = match.group(1)
    near = difflib.get_close_matches(name, variables, n=1, cutoff=0.6)
    return MeshError(
        "MESH-L108",
        f'variable "{name}" has no value',
        detail=f"Variables given: {', '.join(sorted(variables)[:20])}." if variables else None,
        hint=f'Did you mean "{near[0]}"?'
        if near
        else f"Give it one, or a default: ${{{name}:default}}.",
        position=places.of(*match.span()),
    )
