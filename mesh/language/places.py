"""Positions in a text: offsets to lines and columns."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Final

from mesh.errors import Position

LINE_END: Final = re.compile(r"\r\n|\r|\n")


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
        line = self._line
        if not self._starts[line] <= start < self._starts[line + 1]:
            self._line = line = bisect_right(self._starts, start) - 1
        length = max(1, min(stop, self._ends[line]) - start)
        return Position(line + 1, start - self._starts[line] + 1, length)

    def offset(self, line: int, column: int) -> int:
        """The offset of a place; of one outside of the text the nearest inside."""
        if line < 1:
            return 0
        if line > len(self._ends):
            return self._ends[-1]
        return min(self._starts[line - 1] + max(0, column - 1), self._ends[line - 1])

    def line(self, offset: int) -> int:
        """The line of an offset, from 1."""
        return bisect_right(self._starts, offset)
