"""Running values over groups: left-to-right folds whose floating-point bits are the engine's.

Rows are sorted by group, so that a group is a segment ``[start, start + length)``.  A running
double sum has to be added up one after the other: differences of prefix sums would round
differently.  Long segments are folded one by one, short ones side by side, one row of each at a
time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mesh.operators.base import Longs

#: Segments longer than this are folded by themselves.
_LONG = 48

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Segments:
    """m segments that cover n rows; no segment is empty."""

    starts: Longs
    lengths: Longs

    @classmethod
    def of_sorted(cls, codes: Array) -> Segments:
        """A segment for each run of equal codes."""
        if not len(codes):
            none = np.empty(0, dtype=np.int64)
            return cls(none, none)
        starts = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
        return cls(starts, np.diff(np.append(starts, len(codes))))

    @property
    def ends(self) -> Longs:
        """The last row of each segment."""
        return self.starts + self.lengths - 1

    def spread(self, of_segment: Array) -> Array:
        """A value for each segment as one for each row."""
        return np.repeat(of_segment, self.lengths)

    def shifted(self, values: Array, first: Array) -> Array:
        """The row before's value within the segment; ``first`` (length m) for its first row."""
        out = np.empty_like(values)
        out[1:] = values[:-1]
        out[self.starts] = first
        return out


def running(fold: np.ufunc, values: Array, segments: Segments, carried: Array) -> Array:
    """``fold`` from the left over each segment, beginning with ``carried`` (length m).

    Returns the value after each row, length n, in the type of ``values``.
    """
    if len(segments.starts) == 1:
        return fold.accumulate(np.concatenate([carried, values]))[1:]
    out = np.empty_like(values)
    if fold is np.add and values.dtype.kind == "i":
        # Integers wrap, so differences of prefix sums are exact.
        sums = np.cumsum(values)
        before = sums[segments.starts] - values[segments.starts]
        return sums - segments.spread(before - carried)
    long = segments.lengths > _LONG
    for index in np.flatnonzero(long).tolist():
        start = segments.starts[index]
        part = slice(start, start + segments.lengths[index])
        out[part] = fold.accumulate(np.concatenate([carried[index : index + 1], values[part]]))[1:]

    # The longest first, so that those that have a row more are always the first ones.
    short = np.flatnonzero(~long)
    short = short[np.argsort(-segments.lengths[short], kind="stable")]
    starts, lengths = segments.starts[short], segments.lengths[short]
    current = carried[short]
    for step in range(int(lengths[0]) if len(short) else 0):
        live = int(np.searchsorted(-lengths, -step, side="left"))
        rows = starts[:live] + step
        current = fold(current[:live], values[rows])
        out[rows] = current
    return out
