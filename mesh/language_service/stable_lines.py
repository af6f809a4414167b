"""Lines that edits elsewhere in a text do not change, for the analysis of a text that is edited.

Trees are kept by their text and their place, and so is what is known of them.  Were the place a
line of the text, a new line would move all statements below it, and each would be read, bound and
planned again.  Here each statement has lines of its own, which it keeps as long as its text is the
same; answers are converted to lines of the text.

    line of the text   statement                     stable lines
    1                  define stream S (a int);      7 << 32
    2, 3               from S select a               9 << 32, (9 << 32) + 1
                       insert into T;
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from functools import lru_cache
from itertools import count
from typing import Final

from mesh.errors import Position
from mesh.language.chunks import chunks_of
from mesh.language.parser import STATEMENTS_MAX
from mesh.language.substitution import SubstitutedText
from mesh.language.tokens import Places

#: Bits of the line in its statement; the number of the statement is above them.
_BITS: Final = 32
_NUMBERS: Final = count(1)


@lru_cache(maxsize=4 * STATEMENTS_MAX)
def _number(statement: str, column: int, before: int) -> int:
    """The number of a statement that starts at a column, with so many equal ones before it."""
    return next(_NUMBERS)


class StableText(SubstitutedText):
    """A text whose places have stable lines."""

    __slots__ = ()


def stable(text: str) -> tuple[StableText, StableLines]:
    """The text with places of stable lines, and these."""
    result, lines = StableText(text), StableLines(text)
    result.places = lines
    return result, lines


class StableLines(Places):
    """Converter from offsets to stable lines and columns, and from these to lines of the text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        #: Offset of each statement, and what its stable lines are above those of the text.
        self._first: list[int] = []
        self._above: list[int] = []
        #: The line of the text in which a statement starts, by its number.
        self._line_of: dict[int, int] = {}
        #: The statement of the last lookup.
        self._last = 0
        equal: Counter[tuple[str, int]] = Counter()
        for start, chunk in chunks_of(text):
            line, column = super().at(start)
            key = chunk, column
            number = _number(*key, equal[key])
            equal[key] += 1
            self._first.append(start)
            self._above.append((number << _BITS) - line)
            self._line_of[number] = line

    def _statement(self, offset: int) -> int:
        """Index of the statement that an offset is in."""
        first, last = self._first, self._last
        is_last = last + 1 == len(first)
        if not (first[last] <= offset and (is_last or offset < first[last + 1])):
            self._last = last = max(0, bisect_right(first, offset) - 1)
        return last

    def of(self, start: int, stop: int) -> Position:
        """The position of ``text[start:stop]``; see ``Places``."""
        at = super().of(start, stop)
        return Position(at.line + self._above[self._statement(start)], at.column, at.length)

    def at(self, offset: int) -> tuple[int, int]:
        """The stable line and the column of an offset."""
        line, column = super().at(offset)
        return line + self._above[self._statement(offset)], column

    def origin(self, start: int, stop: int) -> tuple[int, int] | None:
        """The place of a range in one statement; see ``Places``."""
        return self.at(start) if self._statement(start) == self._statement(stop) else None

    def place(self, line: int, column: int) -> tuple[int, int]:
        """The stable line and the column of a place in the text; of one outside the nearest."""
        return self.at(self.offset(line, column))

    def offset_of(self, place: tuple[int, int]) -> int:
        """The offset of a stable line and a column; -1 for a place of no statement."""
        line, column = place
        number = line >> _BITS
        first = self._line_of.get(number)
        return -1 if first is None else self.offset(first + line - (number << _BITS), column)

    def written(self, position: Position) -> Position:
        """The position in the text of one with a stable line."""
        number, line = position.line >> _BITS, position.line & ((1 << _BITS) - 1)
        if not number:
            return position
        return Position(self._line_of[number] + line, position.column, position.length)
