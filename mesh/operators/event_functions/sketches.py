"""``#approximate:count`` and ``#approximate:distinctCount``: counts in a bounded memory.

Events that leave the window before the function are counted back.  ``count`` is a count-min sketch:
the estimate is never below the true count.  Distinct values are counted by HyperLogLog, which
counts the hashes of each rank in each register, so that the last one takes its rank away.  Equal
values are equal as texts.

Source: API documentation of siddhi-execution-approximate 2.0; Cormode and Muthukrishnan, "An
improved data stream summary" (2005); Flajolet et al., "HyperLogLog" (2007).

``#extrema:topK(a, k)`` and ``bottomK``: the most frequent values so far or in the window.

An event is passed on if the ranks have changed since the last one that was.  Of equal counts the
value that came first precedes.  Null stands for ranks without a value.

Source: API documentation of siddhi-execution-extrema 5.0.
"""

from __future__ import annotations

import math
from hashlib import blake2b
from heapq import nsmallest
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mesh.functions.identifiers import splitmix64
from mesh.functions.objects import object_text
from mesh.functions.vectors import python_values
from mesh.model.types import AttributeType
from mesh.operators.base import CURRENT
from mesh.operators.event_functions.model import Form

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mesh.functions.vectors import Vector
    from mesh.model.values import Json, Row
    from mesh.operators.event_functions.model import Added


#: Bits of a hash that decide a rank.  So the sum of all registers is a whole number of 64 bits, and
#: does not depend on the order of its terms.
_RANK_BITS: Final = 40
_WORD: Final = (1 << 32) - 1


class Ranks:
    """Counts of values; ``sign``: -1 for the most frequent ones, 1 for the rarest."""

    def __init__(self, count: int, sign: int) -> None:
        self._ranks = count
        self._sign = sign
        self._counts: dict[Any, int] = {}
        self._before: list[object] | None = None
        #: The values with ranks at the last event; None if they may be others now.
        self._listed: set[Any] | None = None

    def step(self, values: Row, kind: int, time_ms: int) -> Added | None:
        """Count one event, or count it back if it leaves the window."""
        value, counts = _one_nan(values[0]), self._counts
        if kind != CURRENT:
            self._listed = None
            if counts.get(value, 0) > 1:
                counts[value] -= 1
            else:
                counts.pop(value, None)
            return None
        counts[value] = counts.get(value, 0) + 1
        sign = self._sign
        if self._is_below(value):
            return None
        ranking: list[Any] = []
        # The sort is stable, and a dict has its keys in order of arrival.
        for pair in nsmallest(self._ranks, counts.items(), key=lambda one: sign * one[1]):
            ranking += pair
        self._listed = set(ranking[::2])
        ranking += [None] * (2 * self._ranks - len(ranking))
        if ranking == self._before:
            return None
        self._before = ranking
        return tuple(ranking)

    def _is_below(self, value: object) -> bool:
        """Whether a value gets no rank by its last event: else each would search all values."""
        listed, count = self._listed, self._counts[value]
        if listed is None or value in listed or len(listed) < self._ranks:
            return False
        worst = max(self._sign * self._counts[one] for one in listed)
        # A new value comes after those of the same count.
        return self._sign * count > worst or (self._sign * count == worst and count == 1)

    def dump(self) -> object:
        """Its state as JSON."""
        return [list(self._counts), list(self._counts.values()), self._before]

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        values, counts, before = state
        self._counts = dict(zip(map(_one_nan, values), counts, strict=True))
        self._before = None if before is None else [*map(_one_nan, before)]
        self._listed = None


def _one_nan(value: object) -> object:
    """A value that is found again in a dict and in lists, NaN as well."""
    return value if value == value else math.nan


def ranks(sign: int, count: int) -> Form:
    """``topK(attribute, k)``."""
    return Form(lambda: Ranks(count, sign), skips_constants=True)


def read_hashes(arguments: Sequence[Vector]) -> list[list[int]]:
    """The hash of the first argument, 64 bits, for each event; the others are constants."""
    vector = arguments[0]
    if vector.type is AttributeType.STRING:
        coded = vector.values.dictionary_encode()
        hashes = [_hash(text) for text in coded.dictionary.to_pylist()]
        return [[hashes[code] if code is not None else 0 for code in coded.indices.to_pylist()]]
    if vector.type in (AttributeType.INT, AttributeType.LONG, AttributeType.BOOL):
        words = vector.values.astype(np.int64).view(np.uint64)
        return [splitmix64(words).tolist()]
    return [[0 if value is None else _hash(value) for value in python_values(vector)]]


def _hash(value: object) -> int:
    return int.from_bytes(blake2b(object_text(value).encode(), digest_size=8).digest())


class ValueCount:
    """Count-min sketch of ``depth`` rows of ``width`` counters."""

    def __init__(self, error: float, width: int, depth: int) -> None:
        self._error = error
        self._width = width
        self._depth = depth
        self._total = 0
        #: The counters that are not 0.
        self._cells: dict[int, int] = {}

    def step(self, values: Row, kind: int, time_ms: int) -> Added:
        """Count one event; the estimate of its value's count, and the bounds."""
        word = values[0]
        low, high, width = word & _WORD, word >> 32, self._width
        change = 1 if kind == CURRENT else -1
        cells = self._cells
        count = None
        for row in range(self._depth):
            cell = row * width + (low + row * high) % width
            now = cells.get(cell, 0) + change
            if now:
                cells[cell] = now
            else:
                cells.pop(cell, None)
            count = now if count is None or now < count else count
        self._total += change
        assert count is not None, "a sketch has a row at least"
        count = max(0, count)
        return count, max(0, math.floor(count - self._total * self._error)), count

    def dump(self) -> object:
        """Its state as JSON."""
        return [self._total, list(self._cells), list(self._cells.values())]

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        self._total, cells, counts = state
        self._cells = dict(zip(cells, counts, strict=True))


class DistinctValues:
    """HyperLogLog of 2 ** ``bits`` registers; ``forgets``: whether events may be counted back."""

    def __init__(self, error: float, bits: int, *, forgets: bool) -> None:
        self._error = error
        self._bits = bits
        self._forgets = forgets
        #: Hashes by register and rank; only if they may be counted back.
        self._counts: dict[int, int] = {}
        #: By register, a bit for each rank of a hash in it.
        self._ranks: dict[int, int] = {}
        #: The sum of 2 ** -rank over all registers, in units of 2 ** -``_RANK_BITS``.
        self._sum = 1 << (bits + _RANK_BITS)

    def step(self, values: Row, kind: int, time_ms: int) -> Added:
        """Count one event; the estimate of the number of distinct values, and the bounds."""
        word = values[0]
        register = word & ((1 << self._bits) - 1)
        rest = (word >> self._bits) & ((1 << _RANK_BITS) - 1)
        # 1 for a hash whose next bit is set, up to the number of bits for none.
        rank = _RANK_BITS - rest.bit_length() + 1 if rest else _RANK_BITS
        before = self._ranks.get(register, 0)
        after = before | (1 << rank)
        if self._forgets:
            cell = register << 6 | rank
            count = self._counts.get(cell, 0) + (1 if kind == CURRENT else -1)
            if count > 0:
                self._counts[cell] = count
            else:
                self._counts.pop(cell, None)
                after = before & ~(1 << rank)
        if after != before:
            self._sum += _unit(after) - _unit(before)
            if after:
                self._ranks[register] = after
            else:
                self._ranks.pop(register, None)
        return self._estimate()

    def _estimate(self) -> Added:
        size = 1 << self._bits
        estimate = _alpha(size) * size * size / (self._sum / (1 << _RANK_BITS))
        empty = size - len(self._ranks)
        if estimate <= 2.5 * size and empty:
            estimate = size * math.log(size / empty)
        count = round(estimate)
        spread = estimate * self._error
        return count, max(0, round(estimate - spread)), round(estimate + spread)

    def dump(self) -> object:
        """Its state as JSON."""
        counts = [list(self._counts), list(self._counts.values())]
        # Without counts the highest rank alone matters.
        ranks = [mask.bit_length() - 1 for mask in self._ranks.values()]
        return [counts] if self._forgets else [counts, list(self._ranks), ranks]

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        (cells, counts), *highest = state
        self._counts = dict(zip(cells, counts, strict=True))
        self._ranks = {}
        if highest:
            self._ranks = {r: 1 << rank for r, rank in zip(*highest, strict=True)}
        for cell in cells:
            self._ranks[cell >> 6] = self._ranks.get(cell >> 6, 0) | 1 << (cell & 63)
        size = 1 << self._bits
        self._sum = (size - len(self._ranks)) << _RANK_BITS
        self._sum += sum(map(_unit, self._ranks.values()))


def _unit(ranks: int) -> int:
    """2 ** -rank of the highest rank, in units of 2 ** -``_RANK_BITS``; 1 for none."""
    return 1 << (_RANK_BITS - (ranks.bit_length() - 1 if ranks else 0))


def _alpha(size: int) -> float:
    small = {16: 0.673, 32: 0.697, 64: 0.709}
    return small.get(size, 0.7213 / (1 + 1.079 / size))


def value_count(error: float = 0.01, confidence: float = 0.99) -> Form:
    """``count(value, error, confidence)``: off by at most ``error`` of all events counted."""
    width = math.ceil(math.e / error)
    depth = max(1, math.ceil(math.log(1 / (1 - confidence))))
    return Form(lambda: ValueCount(error, width, depth), read_hashes)


def distinct_values(*, forgets: bool) -> Callable[..., Form]:
    """``distinctCount(value, error, confidence)``: off by at most ``error`` of itself."""

    def form(error: float = 0.01, confidence: float = 0.95) -> Form:
        deviations = NormalDist().inv_cdf((1 + confidence) / 2)
        bits = max(4, math.ceil(2 * math.log2(1.04 * deviations / error)))
        return Form(lambda: DistinctValues(error, bits, forgets=forgets), read_hashes)

    return form
