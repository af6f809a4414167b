"""Positions in a text: offsets to lines and columns."""

from __future__ import annotations

from bisect import bisect_right

from mesh.errors import LINE_END, Position


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
