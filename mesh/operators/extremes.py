"""Min and max over a sliding window: range queries over the few values that can still win.

Within a group values leave in the order they came.  So a value counts only until a smaller one (for
min) comes; what is kept between batches are the others, the suffix minima.  Each row then asks for
the least of a range of the group's values, which a sparse table answers for all rows at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mesh.functions.vectors import Vector, dtype_of
from mesh.operators.aggregates import Array, Batch, Columns, worst
from mesh.operators.segments import Segments, running

if TYPE_CHECKING:
    from mesh.model.types import AttributeType
    from mesh.operators.base import Bools, Longs

#: A key is a group and the number of a value in it: numbers stay below this.
_SHIFT = 40


def _is_nan(values: Array) -> Bools:
    if values.dtype.kind != "f":
        return np.zeros(len(values), dtype=np.bool_)
    return np.isnan(values)


class WindowExtreme:
    """``min(x)``, ``max(x)`` over the values in the window, by group; null over none."""

    def __init__(self, type: AttributeType, larger: bool) -> None:
        self._type = type
        self._larger = larger
        #: How many values came, and how many have left.
        self.columns = Columns(came=np.int64, left=np.int64)
        #: The values that can still win, by (group, number); never changed in place.
        self.keys: Longs = np.empty(0, dtype=np.int64)
        self.values: Array = np.empty(0, dtype=dtype_of(type))

    def run(self, values: Vector | None, batch: Batch) -> Vector:
        """The extreme after each row."""
        assert values is not None
        present = ~values.null_mask
        came, left = self._numbers(batch, present)
        groups = batch.segments.spread(batch.groups)

        enters = np.flatnonzero(present & ~batch.expired)
        keys = np.concatenate([self.keys, (groups[enters] << _SHIFT) + came[enters] - 1])
        pool = np.concatenate([self.values, values.values[enters]])
        order = np.argsort(keys, kind="stable")
        keys, pool = keys[order], pool[order]

        base = groups << _SHIFT
        first = np.searchsorted(keys, base + left, side="left")
        stop = np.searchsorted(keys, base + came, side="left")
        empty = first >= stop
        # The range ends at a NaN; if it begins with one, that is the result.
        blocks = np.append(np.flatnonzero(_is_nan(pool)), len(pool))
        stop = np.minimum(stop, blocks[np.searchsorted(blocks, np.minimum(first, len(pool)))])
        hidden = (stop <= first) & ~empty
        result = self._best_of(pool, first, np.maximum(stop, first + 1), empty | hidden)
        if hidden.any():
            result = np.where(hidden, np.nan, result).astype(pool.dtype)
        self._keep(keys, pool)
        return Vector(self._type, result, empty if empty.any() else None)

    def _numbers(self, batch: Batch, present: Any) -> tuple[Longs, Longs]:
        """How many values of its group came, and left, up to and with each row."""
        out = []
        for name, counted in (
            ("came", present & ~batch.expired),
            ("left", present & batch.expired),
        ):
            before = self.columns.get(name, batch.groups)
            numbers = running(np.add, counted.astype(np.int64), batch.segments, before)
            self.columns.put(name, batch, numbers)
            out.append(numbers)
        return out[0], out[1]

    def _best_of(self, pool: Array, first: Longs, stop: Longs, empty: Any) -> Array:
        """The best of ``pool[first:stop]`` for each row, by a sparse table."""
        fold = np.maximum if self._larger else np.minimum
        result = np.full(len(first), worst(pool.dtype, self._larger), dtype=pool.dtype)
        lengths = stop - first
        # floor(log2): the two spans of that power of two cover the range.
        levels = np.where(empty, -1, np.frexp(lengths.astype(np.float64))[1] - 1)
        table = pool
        for level in range(int(levels.max(initial=-1)) + 1):
            rows = np.flatnonzero(levels == level)
            span = 1 << level
            result[rows] = fold(table[first[rows]], table[stop[rows] - span])
            table = fold(table[:-span], table[span:])
        return result

    def _keep(self, keys: Longs, pool: Array) -> None:
        """Forget what has left and what a later value of its group beats."""
        groups = keys >> _SHIFT
        live = (keys & ((1 << _SHIFT) - 1)) >= self.columns.arrays["left"][groups]
        keys, pool, groups = keys[live], pool[live], groups[live]
        if len(keys):
            # From the right: the best value behind each, within its group and up to a NaN.
            nan = _is_nan(pool)
            cuts = np.concatenate([[False], (groups[1:] != groups[:-1]) | nan[1:] | nan[:-1]])
            segments = Segments.of_sorted(np.cumsum(cuts)[::-1])
            none = np.full(len(segments.starts), worst(pool.dtype, self._larger), dtype=pool.dtype)
            fold = np.maximum if self._larger else np.minimum
            best = running(fold, pool[::-1], segments, none)
            behind = segments.shifted(best, none)[::-1]
            wins = pool >= behind if self._larger else pool <= behind
            keys, pool = keys[wins | nan], pool[wins | nan]
        self.keys, self.values = keys, pool
